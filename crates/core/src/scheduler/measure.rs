//! Amounts in words.

use super::event::Ask;
use crate::amounts::{Amounts, driver};

/// One of the things a node has an amount of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Measure<'a> {
    Device(&'a str),
    /// Volumes that can be attached, by what they are called among amounts.
    Volumes(&'a str),
    Cpu,
    Memory,
    Storage,
    Pods,
}

impl<'a> Measure<'a> {
    /// What a request asks for, the rarest first.
    pub fn asked(request: &'a Ask) -> impl Iterator<Item = Self> {
        let devices = request.each.devices().map(|(name, _)| Self::Device(name));
        let volumes = request.each.volumes().map(|(name, _)| Self::Volumes(name));
        let all = devices.chain([Self::Cpu, Self::Memory, Self::Storage, Self::Pods]).chain(volumes);
        all.filter(|measure| measure.of(&request.each) > 0)
    }

    pub fn of(self, amounts: &Amounts) -> i64 {
        match self {
            Self::Device(name) | Self::Volumes(name) => amounts.device(name),
            Self::Cpu => amounts.cpu,
            Self::Memory => amounts.memory,
            Self::Storage => amounts.storage,
            Self::Pods => amounts.pods,
        }
    }

    /// What is needed, rounded up: `4 nvidia.com/gpu`, `1.5 CPU`, `16Gi of memory`.
    pub fn needed(self, amount: i64) -> String {
        match self {
            Self::Device(name) => format!("{amount} {name}"),
            Self::Volumes(name) => {
                let volumes = if amount == 1 { "volume" } else { "volumes" };
                format!("{amount} {volumes} of {}", driver(name).unwrap_or(name))
            }
            Self::Memory => format!("{} of memory", bytes_up(amount)),
            Self::Storage => format!("{} of local storage", bytes_up(amount)),
            Self::Cpu => format!("{} CPU", cpu(amount)),
            Self::Pods if amount == 1 => "room for a pod".to_owned(),
            Self::Pods => format!("room for {amount} pods"),
        }
    }

    /// That there is none at all.
    pub fn none_free(self) -> &'static str {
        match self {
            Self::Device(_) => "none is free",
            Self::Volumes(_) => "no node can attach one more",
            Self::Cpu => "no CPU is free",
            Self::Memory => "no memory is free",
            Self::Storage => "no local storage is free",
            Self::Pods => "no node takes one more pod",
        }
    }

    /// What is there, rounded down. The device was just named, so a number is enough.
    pub fn there(self, amount: i64) -> String {
        let amount = amount.max(0);
        match self {
            Self::Device(_) => amount.to_string(),
            Self::Volumes(_) => format!("room for {amount}"),
            Self::Cpu => format!("{} CPU", cpu(amount)),
            Self::Memory => format!("{} of memory", bytes_down(amount)),
            Self::Storage => format!("{} of local storage", bytes_down(amount)),
            Self::Pods => format!("{amount} pods"),
        }
    }

    /// The same again, in a place where its unit was just named.
    pub fn shortly(self, amount: i64) -> String {
        let amount = amount.max(0);
        match self {
            Self::Device(_) | Self::Volumes(_) | Self::Pods => amount.to_string(),
            Self::Cpu => cpu(amount),
            Self::Memory | Self::Storage => bytes_down(amount),
        }
    }

    /// `is` or `are`, for this amount.
    pub fn verb(self, amount: i64) -> &'static str {
        let one = match self {
            Self::Cpu => amount == 1_000,
            Self::Device(_) | Self::Pods => amount == 1,
            Self::Volumes(_) | Self::Memory | Self::Storage => true,
        };
        if one { "is" } else { "are" }
    }
}

/// Thousandths of a core as cores.
pub(super) fn cpu(amount: i64) -> String {
    let (sign, amount) = (if amount < 0 { "-" } else { "" }, amount.unsigned_abs());
    let fraction = format!("{:03}", amount % 1_000);
    match fraction.trim_end_matches('0') {
        "" => format!("{sign}{}", amount / 1_000),
        fraction => format!("{sign}{}.{fraction}", amount / 1_000),
    }
}

pub(super) fn bytes_down(amount: i64) -> String {
    bytes(amount, |amount, part| amount / part)
}

fn bytes_up(amount: i64) -> String {
    bytes(amount, |amount, part| amount.div_euclid(part) + i128::from(amount.rem_euclid(part) > 0))
}

/// In tenths of the largest unit that it has one of.
fn bytes(amount: i64, divide: fn(i128, i128) -> i128) -> String {
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
    fn amounts_are_short_and_never_promise_too_much() {
        let cpus = [
            (0, "0"),
            (4_000, "4"),
            (1_500, "1.5"),
            (50, "0.05"),
            (-250, "-0.25"),
            (i64::MIN, "-9223372036854775.808"),
        ];
        for (amount, expect) in cpus {
            assert_eq!(cpu(amount), expect);
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
            assert_eq!((bytes_down(amount).as_str(), bytes_up(amount).as_str()), (down, up), "{amount}");
        }
    }
}
