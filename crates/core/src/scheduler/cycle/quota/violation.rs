//! Quota violations: an account, the exceeded resource and the amounts.

use super::AccountId;
use crate::scheduler::event::Limits;
use crate::scheduler::state::accounts::ResourceUsage;

/// A quota that a server would exceed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaViolation {
    pub(crate) account: AccountId,
    pub(crate) resource: QuotaResource,
    pub(crate) limit: i128,
    /// Includes `reserved`.
    pub(crate) used: i128,
    /// Reserved for pending servers of the same account that are ahead in the queue.
    pub(crate) reserved: i128,
    pub(crate) requested: i128,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum QuotaResource {
    Servers,
    Devices,
    /// Devices of this flavor.
    Flavor(String),
    Cpu,
    Memory,
}

/// An exceeded limit, without the account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ExceededLimit {
    pub resource: QuotaResource,
    pub limit: i128,
    pub used: i128,
    pub requested: i128,
}

/// Limits of CPU and memory are in nanocores and nanobytes; usage is in millicores and bytes.
pub(crate) const NANOS_PER_MILLI: i128 = 1_000_000;
pub(crate) const NANOS_PER_UNIT: i128 = 1_000_000_000;

/// Returns the first exceeded limit that is not ignored, except flavors. A request for nothing exceeds nothing, even if
/// the usage is above the limit.
pub(crate) fn find_exceeded_limit(
    limits: &Limits,
    used: ResourceUsage,
    requested: ResourceUsage,
    is_ignored: impl Fn(&QuotaResource) -> bool,
) -> Option<ExceededLimit> {
    let exceeded = |resource: QuotaResource| {
        let limit = resource.limit(limits)?;
        let (used, requested) = (resource.amount(used), resource.amount(requested));
        let is_exceeded = requested > 0 && used + requested > limit && !is_ignored(&resource);
        is_exceeded.then_some(ExceededLimit { resource, limit, used, requested })
    };
    [QuotaResource::Devices, QuotaResource::Cpu, QuotaResource::Memory].into_iter().find_map(exceeded)
}

pub(crate) fn exceeded_flavor_limit(
    flavor: &str,
    limit: i64,
    used: i64,
    requested: ResourceUsage,
) -> Option<ExceededLimit> {
    let is_exceeded = requested.devices > 0 && used.saturating_add(requested.devices) > limit;
    is_exceeded.then(|| ExceededLimit {
        resource: QuotaResource::Flavor(flavor.to_owned()),
        limit: limit.into(),
        used: used.into(),
        requested: requested.devices.into(),
    })
}

/// The highest usage with which a request is within all limits. Cheaper than [`find_exceeded_limit`] to compare with many
/// values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Headroom {
    devices: i64,
    cpu: i64,
    memory: i64,
}

impl Headroom {
    pub fn new(limits: &Limits, requested: ResourceUsage) -> Self {
        let max_usage = |limit: Option<i128>, unit: i128, requested: i64| match limit {
            Some(limit) if requested > 0 => saturating_i64(limit.div_euclid(unit) - i128::from(requested)),
            Some(_) | None => i64::MAX,
        };
        Self {
            devices: max_usage(limits.devices.map(i128::from), 1, requested.devices),
            cpu: max_usage(limits.cpu, NANOS_PER_MILLI, requested.cpu),
            memory: max_usage(limits.memory, NANOS_PER_UNIT, requested.memory),
        }
    }

    /// Reports whether [`find_exceeded_limit`] returns `None`.
    pub fn fits(&self, used: ResourceUsage) -> bool {
        used.devices <= self.devices && used.cpu <= self.cpu && used.memory <= self.memory
    }
}

impl QuotaResource {
    pub fn limit(&self, limits: &Limits) -> Option<i128> {
        match self {
            Self::Servers => limits.servers.map(i128::from),
            Self::Devices => limits.devices.map(i128::from),
            Self::Flavor(flavor) => limits.flavors.get(flavor).copied().map(i128::from),
            Self::Cpu => limits.cpu,
            Self::Memory => limits.memory,
        }
    }

    /// Returns the amount in the unit of the limit.
    pub fn amount(&self, usage: ResourceUsage) -> i128 {
        match self {
            Self::Servers => 0,
            Self::Devices | Self::Flavor(_) => usage.devices.into(),
            Self::Cpu => i128::from(usage.cpu) * NANOS_PER_MILLI,
            Self::Memory => i128::from(usage.memory) * NANOS_PER_UNIT,
        }
    }
}

pub(crate) fn saturating_i64(amount: i128) -> i64 {
    i64::try_from(amount).unwrap_or(if amount < 0 { i64::MIN } else { i64::MAX })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Limits may be fractions of a counted unit.
        #[test]
        fn usage_within_headroom_exceeds_nothing(
            (devices, cpu, memory) in (
                prop::option::of(0..9_i64),
                prop::option::of(0..9_000_000_i128),
                prop::option::of(0..9_000_000_000_i128),
            ),
            used in (0..9_i64, 0..9_i64, 0..9_i64),
            requested in (0..9_i64, 0..9_i64, 0..9_i64),
        ) {
            let limits = Limits { devices, cpu, memory, ..Limits::default() };
            let usage = |(devices, cpu, memory)| ResourceUsage { devices, cpu, memory };
            let exceeded = find_exceeded_limit(&limits, usage(used), usage(requested), |_| false);
            prop_assert_eq!(Headroom::new(&limits, usage(requested)).fits(usage(used)), exceeded.is_none());
        }
    }
}
