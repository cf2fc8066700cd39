//! The user's quota as a `ResourceQuota`, in addition to the quota that the scheduler enforces.
//!
//! `servers` is not included, because the API server would also count ended servers. A user without limits has no
//! `ResourceQuota`.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{ResourceQuota, ResourceQuotaSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use odc_api::name::UserName;
use odc_api::quantity::Quantity;
use odc_api::v1alpha1::Quota;

use super::OBJECT_NAME;
use crate::manifest::{Kind, Object};

const REQUESTS: &str = "requests.";
/// The maximum length of the domain of a qualified name.
const MAX_DOMAIN_LENGTH: usize = 253;

pub(super) fn object(user: &UserName, quota: &Quota, devices: &BTreeSet<String>) -> Option<Object> {
    let hard = hard(quota, devices);
    let spec = ResourceQuotaSpec { hard: Some(hard), ..ResourceQuotaSpec::default() };
    let is_limited = spec.hard.as_ref().is_some_and(|hard| !hard.is_empty());
    let object = || {
        let quota = ResourceQuota {
            metadata: super::metadata(user, OBJECT_NAME),
            spec: Some(spec),
            ..ResourceQuota::default()
        };
        Object::new(Kind::ResourceQuota, &quota)
    };
    is_limited.then(object)
}

fn hard(quota: &Quota, devices: &BTreeSet<String>) -> BTreeMap<String, ApiQuantity> {
    // The limit applies to each device resource separately: a ResourceQuota cannot limit their sum, nor flavors.
    let Quota { servers: _, flavors: _, devices: device_limit, cpu, memory, storage } = quota;
    let plain = [("cpu", cpu), ("memory", memory), ("storage", storage)];
    let plain = plain.into_iter().filter_map(|(name, amount)| Some((format!("{REQUESTS}{name}"), (*amount)?)));
    let device = |limit: &u32| {
        let amount = Quantity::whole((*limit).into());
        devices.iter().filter_map(move |device| Some((quota_name(device)?, amount)))
    };
    plain.chain(device_limit.iter().flat_map(device)).map(|(name, amount)| (name, amount.into())).collect()
}

/// Returns the name of a device resource in a quota, or `None` if it would be too long and the API server would reject the
/// quota.
fn quota_name(device: &str) -> Option<String> {
    let (domain, _) = device.split_once('/')?;
    (REQUESTS.len() + domain.len() <= MAX_DOMAIN_LENGTH).then(|| format!("{REQUESTS}{device}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(quota: &Quota, devices: &[&str], expect: &[(&str, &str)]) {
        let devices = devices.iter().map(|device| (*device).to_owned()).collect();
        let expect: BTreeMap<_, _> =
            expect.iter().map(|(name, amount)| ((*name).to_owned(), ApiQuantity((*amount).into()))).collect();
        assert_eq!(hard(quota, &devices), expect);
        assert_eq!(object(&"ada".parse().unwrap(), quota, &devices).is_some(), !expect.is_empty());
    }

    #[test]
    fn limits_apply_to_requests() {
        let quota = Quota {
            servers: Some(3),
            devices: Some(4),
            flavors: [("h100".to_owned(), 2)].into(),
            cpu: Some("0.5".parse().unwrap()),
            memory: Some("1024Mi".parse().unwrap()),
            storage: Some("2Ti".parse().unwrap()),
        };
        check(
            &quota,
            &["nvidia.com/gpu", "nvidia.com/mig-1g.10gb"],
            &[
                // In the canonical form of the API server, so that they compare equal.
                ("requests.cpu", "500m"),
                ("requests.memory", "1Gi"),
                ("requests.storage", "2Ti"),
                ("requests.nvidia.com/gpu", "4"),
                ("requests.nvidia.com/mig-1g.10gb", "4"),
            ],
        );
    }

    #[test]
    fn user_without_limits_has_no_quota() {
        check(&Quota::default(), &["nvidia.com/gpu"], &[]);
        check(&Quota { servers: Some(1), ..Quota::default() }, &["nvidia.com/gpu"], &[]);
        check(&Quota { devices: Some(1), ..Quota::default() }, &[], &[]);
    }

    #[test]
    fn limit_of_zero_is_enforced() {
        let none = Quota { devices: Some(0), ..Quota::default() };
        check(&none, &["nvidia.com/gpu"], &[("requests.nvidia.com/gpu", "0")]);
    }

    #[test]
    fn device_with_too_long_name_is_omitted() {
        let (long, longest) = (format!("{}/gpu", "a".repeat(245)), format!("{}/gpu", "a".repeat(244)));
        let quota = Quota { devices: Some(1), ..Quota::default() };
        check(&quota, &[&long, &longest, "cpu"], &[(&format!("requests.{longest}"), "1")]);
    }
}
