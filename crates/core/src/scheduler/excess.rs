//! A quota that would be exceeded, and the sentence about it.

use super::World;
use super::event::Limits;
use super::measure;
use super::purse::Held;
use super::quota::Holder;

/// A quota that a grant would exceed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excess {
    pub(super) holder: Holder,
    pub(super) what: Limited,
    pub(super) most: i128,
    pub(super) used: i128,
    /// The part of that which nobody uses: it is kept for servers of the same holder that wait ahead.
    pub(super) kept: i128,
    pub(super) need: i128,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Limited {
    Servers,
    Devices,
    /// Devices of this flavor.
    Flavor(String),
    Cpu,
    Memory,
}

/// Billionths in a thousandth and in one.
const MILLI: i128 = 1_000_000;
const WHOLE: i128 = 1_000_000_000;

type Found = (Limited, i128, i128, i128);

pub(super) fn first_excess(limits: &Limits, used: Held, need: Held, but: impl Fn(&Limited) -> bool) -> Option<Found> {
    let devices = limits.devices.map(|most| (Limited::Devices, most.into(), used.devices.into(), need.devices.into()));
    let cpu = limits.cpu.map(|most| (Limited::Cpu, most, nanos(used.cpu, MILLI), nanos(need.cpu, MILLI)));
    let memory =
        limits.memory.map(|most| (Limited::Memory, most, nanos(used.memory, WHOLE), nanos(need.memory, WHOLE)));
    [devices, cpu, memory].into_iter().flatten().find(|(what, most, used, need)| {
        // What asks for nothing exceeds nothing, also where the quota is below what is used.
        *need > 0 && used + need > *most && !but(what)
    })
}

/// What somebody may hold so that something more is within all limits: to compare with many amounts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ceiling {
    devices: i64,
    cpu: i64,
    memory: i64,
}

impl Ceiling {
    pub fn under(limits: &Limits, need: Held) -> Self {
        let below = |most: Option<i128>, each: i128, need: i64| match most {
            Some(most) if need > 0 => saturated(most.div_euclid(each) - i128::from(need)),
            // What asks for nothing exceeds nothing, also where the quota is below what is used.
            Some(_) | None => i64::MAX,
        };
        Self {
            devices: below(limits.devices.map(i128::from), 1, need.devices),
            cpu: below(limits.cpu, MILLI, need.cpu),
            memory: below(limits.memory, WHOLE, need.memory),
        }
    }

    /// Whether [`first_excess`] finds nothing.
    pub fn is_above(&self, held: Held) -> bool {
        held.devices <= self.devices && held.cpu <= self.cpu && held.memory <= self.memory
    }
}

pub(super) fn flavor_excess(flavor: &str, most: i64, used: i64, need: Held) -> Option<Found> {
    let exceeded = need.devices > 0 && used.saturating_add(need.devices) > most;
    exceeded.then(|| (Limited::Flavor(flavor.to_owned()), most.into(), used.into(), need.devices.into()))
}

impl Limited {
    /// The most of it that is allowed, if it is limited.
    pub(super) fn most(&self, limits: &Limits) -> Option<i128> {
        match self {
            Self::Servers => limits.servers.map(i128::from),
            Self::Devices => limits.devices.map(i128::from),
            Self::Flavor(flavor) => limits.flavors.get(flavor).copied().map(i128::from),
            Self::Cpu => limits.cpu,
            Self::Memory => limits.memory,
        }
    }

    /// How much of what is limited this is.
    pub(super) fn of(&self, held: Held) -> i128 {
        match self {
            Self::Servers => 0,
            Self::Devices | Self::Flavor(_) => held.devices.into(),
            Self::Cpu => nanos(held.cpu, MILLI),
            Self::Memory => nanos(held.memory, WHOLE),
        }
    }
}

fn nanos(amount: i64, each: i128) -> i128 {
    i128::from(amount) * each
}

fn saturated(amount: i128) -> i64 {
    i64::try_from(amount).unwrap_or(if amount < 0 { i64::MIN } else { i64::MAX })
}

impl Excess {
    pub(super) fn message(&self, world: &World) -> String {
        let holder = match self.holder {
            Holder::User(_) => "user",
            Holder::Team(_) => "team",
        };
        let name = world.purse(self.holder).map_or("", |purse| purse.account.name.as_str());
        let Self { what, most, used, kept, need, .. } = self;
        let text = |amount: i128| match what {
            Limited::Servers | Limited::Devices | Limited::Flavor(_) => amount.to_string(),
            Limited::Cpu => measure::cpu(saturated(amount / MILLI)),
            Limited::Memory => measure::bytes_down(saturated(amount / WHOLE)),
        };
        let of = match what {
            Limited::Servers => {
                let servers = if *most == 1 { "server" } else { "servers" };
                return format!(
                    "The quota of {holder} {name} is {most} {servers}, sleeping ones included, and this is number {}: end \
                     an earlier one, or ask an administrator to raise the quota.",
                    used + 1,
                );
            }
            Limited::Devices if *most == 1 => " device".to_owned(),
            Limited::Devices => " devices".to_owned(),
            Limited::Flavor(flavor) => format!(" {flavor}"),
            Limited::Cpu => " CPU".to_owned(),
            Limited::Memory => " of memory".to_owned(),
        };
        let help = if need > most { "ask for less" } else { "end or hibernate another one" };
        let in_use = (used - kept > 0).then(|| format!("the {} in use", text(used - kept)));
        let kept = (*kept > 0).then(|| format!("the {} kept for servers of the {holder} ahead of it", text(*kept)));
        let besides = [in_use, kept].into_iter().flatten().collect::<Vec<_>>().join(" and ");
        let besides = if besides.is_empty() { besides } else { format!(" besides {besides}") };
        format!(
            "The quota of {holder} {name} is {}{of}, and this server needs {}{besides}: {help}, or ask an administrator \
             to raise the quota.",
            text(*most),
            text(*need),
        )
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Fractions of what is counted are there, too.
        #[test]
        fn what_is_under_the_ceiling_exceeds_nothing(
            (devices, cpu, memory) in (prop::option::of(0..9_i64), prop::option::of(0..9_000_000_i128), prop::option::of(0..9_000_000_000_i128)),
            used in (0..9_i64, 0..9_i64, 0..9_i64), need in (0..9_i64, 0..9_i64, 0..9_i64),
        ) {
            let limits = Limits { devices, cpu, memory, ..Limits::default() };
            let held = |(devices, cpu, memory)| Held { devices, cpu, memory };
            let found = first_excess(&limits, held(used), held(need), |_| false);
            prop_assert_eq!(Ceiling::under(&limits, held(need)).is_above(held(used)), found.is_none());
        }
    }
}
