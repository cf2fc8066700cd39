//! Resources and their amounts as text.

use crate::resources::{Resources, driver};
use crate::scheduler::event::Request;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResourceKind<'a> {
    Device(&'a str),
    /// Attachable volumes, by their name in [`Resources`].
    Volumes(&'a str),
    Cpu,
    Memory,
    Storage,
    Pods,
}

impl<'a> ResourceKind<'a> {
    /// Returns the requested resources, scarcest first.
    pub fn requested(request: &'a Request) -> impl Iterator<Item = Self> {
        let devices = request.per_node.devices().map(|(name, _)| Self::Device(name));
        let volumes = request.per_node.volumes().map(|(name, _)| Self::Volumes(name));
        let all = devices.chain([Self::Cpu, Self::Memory, Self::Storage, Self::Pods]).chain(volumes);
        all.filter(|kind| kind.amount(&request.per_node) > 0)
    }

    pub fn amount(self, amounts: &Resources) -> i64 {
        match self {
            Self::Device(name) | Self::Volumes(name) => amounts.device(name),
            Self::Cpu => amounts.cpu,
            Self::Memory => amounts.memory,
            Self::Storage => amounts.storage,
            Self::Pods => amounts.pods,
        }
    }

    /// `nvidia.com/gpu`, `CPU`, `volume attachments of disks.example.org`.
    pub fn name(self) -> String {
        match self {
            Self::Device(name) => name.to_owned(),
            Self::Volumes(name) => format!("volume attachments of {}", driver(name).unwrap_or(name)),
            Self::Cpu => "CPU".to_owned(),
            Self::Memory => "memory".to_owned(),
            Self::Storage => "local storage".to_owned(),
            Self::Pods => "pods".to_owned(),
        }
    }

    /// `4 nvidia.com/gpu`, `1.5 CPU`, `16Gi of memory`; rounded up.
    pub fn request_text(self, amount: i64) -> String {
        match self {
            Self::Device(name) => format!("{amount} {name}"),
            Self::Volumes(name) => {
                let volumes = if amount == 1 { "volume" } else { "volumes" };
                format!("{amount} {volumes} of {}", driver(name).unwrap_or(name))
            }
            Self::Memory => format!("{} of memory", format_bytes_rounded_up(amount)),
            Self::Storage => format!("{} of local storage", format_bytes_rounded_up(amount)),
            Self::Cpu => format!("{} CPU", format_cpu(amount)),
            Self::Pods if amount == 1 => "1 pod".to_owned(),
            Self::Pods => format!("{amount} pods"),
        }
    }

    /// Formats a requested amount without its unit, rounded up.
    pub fn format_rounded_up(self, amount: i64) -> String {
        match self {
            Self::Device(_) | Self::Volumes(_) | Self::Pods => amount.to_string(),
            Self::Cpu => format_cpu(amount),
            Self::Memory | Self::Storage => format_bytes_rounded_up(amount),
        }
    }

    /// Formats an available amount without its unit, rounded down.
    pub fn format_rounded_down(self, amount: i64) -> String {
        let amount = amount.max(0);
        match self {
            Self::Device(_) | Self::Volumes(_) | Self::Pods => amount.to_string(),
            Self::Cpu => format_cpu(amount),
            Self::Memory | Self::Storage => format_bytes_rounded_down(amount),
        }
    }
}

/// Formats millicores as cores.
pub(crate) fn format_cpu(amount: i64) -> String {
    let (sign, amount) = (if amount < 0 { "-" } else { "" }, amount.unsigned_abs());
    let fraction = format!("{:03}", amount % 1_000);
    match fraction.trim_end_matches('0') {
        "" => format!("{sign}{}", amount / 1_000),
        fraction => format!("{sign}{}.{fraction}", amount / 1_000),
    }
}

pub(crate) fn format_bytes_rounded_down(amount: i64) -> String {
    format_bytes(amount, |amount, unit| amount / unit)
}

fn format_bytes_rounded_up(amount: i64) -> String {
    format_bytes(amount, |amount, unit| amount.div_euclid(unit) + i128::from(amount.rem_euclid(unit) > 0))
}

/// Formats bytes in tenths of the largest unit that is not larger than the amount.
fn format_bytes(amount: i64, divide: fn(i128, i128) -> i128) -> String {
    let units = ["Ei", "Pi", "Ti", "Gi", "Mi", "Ki"].into_iter().zip([60, 50, 40, 30, 20, 10]);
    for (unit, power) in units {
        let size = 1_i128 << power;
        if i128::from(amount) >= size {
            let tenths = divide(i128::from(amount) * 10, size);
            return match tenths % 10 {
                0 => format!("{}{unit}", tenths / 10),
                tenth => format!("{}.{tenth}{unit}", tenths / 10),
            };
        }
    }
    amount.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_rounded_to_tenths() {
        let cpus = [
            (0, "0"),
            (4_000, "4"),
            (1_500, "1.5"),
            (50, "0.05"),
            (-250, "-0.25"),
            (i64::MIN, "-9223372036854775.808"),
        ];
        for (amount, expect) in cpus {
            assert_eq!(format_cpu(amount), expect);
        }
        let bytes = [
            (0, "0", "0"),
            (1023, "1023", "1023"),
            (1024, "1Ki", "1Ki"),
            (16 << 30, "16Gi", "16Gi"),
            ((16 << 30) - 1, "15.9Gi", "16Gi"),
            ((16 << 30) + 1, "16Gi", "16.1Gi"),
            (3 << 29, "1.5Gi", "1.5Gi"),
            (i64::MAX, "7.9Ei", "8Ei"),
            (i64::MIN, "-9223372036854775808", "-9223372036854775808"),
        ];
        for (amount, down, up) in bytes {
            assert_eq!(
                (format_bytes_rounded_down(amount).as_str(), format_bytes_rounded_up(amount).as_str()),
                (down, up),
                "{amount}"
            );
        }
    }
}
