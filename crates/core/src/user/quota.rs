//! The user's quota as a second wall behind the queue, which decides.
//!
//! `servers` is not among it: the API server would count servers that have ended, too. What has no limit has none here
//! either, and a user without limits has no `ResourceQuota`.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{ResourceQuota, ResourceQuotaSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Written;
use odc_api::name::UserName;
use odc_api::quantity::Quantity;
use odc_api::v1alpha1::Quota;

use super::WALL;
use crate::object::{Kind, Object};

const REQUESTS: &str = "requests.";
/// The longest domain a qualified name may have.
const LONGEST_DOMAIN: usize = 253;

pub(super) fn object(user: &UserName, quota: &Quota, devices: &BTreeSet<String>) -> Option<Object> {
    let hard = hard(quota, devices);
    let spec = ResourceQuotaSpec { hard: Some(hard), ..ResourceQuotaSpec::default() };
    let is_limited = spec.hard.as_ref().is_some_and(|hard| !hard.is_empty());
    let object = || {
        let quota =
            ResourceQuota { metadata: super::metadata(user, WALL), spec: Some(spec), ..ResourceQuota::default() };
        Object::new(Kind::ResourceQuota, &quota)
    };
    is_limited.then(object)
}

fn hard(quota: &Quota, devices: &BTreeSet<String>) -> BTreeMap<String, Written> {
    // Each device by itself may be as many as all together: kinds cannot be added up here, nor do pods have flavors.
    let Quota { servers: _, flavors: _, devices: most, cpu, memory, storage } = quota;
    let plain = [("cpu", cpu), ("memory", memory), ("storage", storage)];
    let plain = plain.into_iter().filter_map(|(name, amount)| Some((format!("{REQUESTS}{name}"), (*amount)?)));
    let device = |most: &u32| {
        let amount = Quantity::whole((*most).into());
        devices.iter().filter_map(move |device| Some((of_device(device)?, amount)))
    };
    plain.chain(most.iter().flat_map(device)).map(|(name, amount)| (name, amount.into())).collect()
}

/// How a quota calls a device. One whose name is too long for that cannot be advertised by a node, and would make the
/// API server refuse the whole quota.
fn of_device(device: &str) -> Option<String> {
    let (domain, _) = device.split_once('/')?;
    (REQUESTS.len() + domain.len() <= LONGEST_DOMAIN).then(|| format!("{REQUESTS}{device}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(quota: &Quota, devices: &[&str], expect: &[(&str, &str)]) {
        let devices = devices.iter().map(|device| (*device).to_owned()).collect();
        let expect: BTreeMap<_, _> =
            expect.iter().map(|(name, amount)| ((*name).to_owned(), Written((*amount).into()))).collect();
        assert_eq!(hard(quota, &devices), expect);
        assert_eq!(object(&"ada".parse().unwrap(), quota, &devices).is_some(), !expect.is_empty());
    }

    #[test]
    fn every_limit_counts_requests() {
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
                // As the API server writes amounts, or they would be written again and again.
                ("requests.cpu", "500m"),
                ("requests.memory", "1Gi"),
                ("requests.storage", "2Ti"),
                ("requests.nvidia.com/gpu", "4"),
                ("requests.nvidia.com/mig-1g.10gb", "4"),
            ],
        );
    }

    #[test]
    fn no_limit_is_no_quota() {
        check(&Quota::default(), &["nvidia.com/gpu"], &[]);
        check(&Quota { servers: Some(1), ..Quota::default() }, &["nvidia.com/gpu"], &[]);
        check(&Quota { devices: Some(1), ..Quota::default() }, &[], &[]);
    }

    #[test]
    fn none_is_a_limit() {
        let none = Quota { devices: Some(0), ..Quota::default() };
        check(&none, &["nvidia.com/gpu"], &[("requests.nvidia.com/gpu", "0")]);
    }

    #[test]
    fn a_device_no_node_can_have_does_not_spoil_the_quota() {
        let (long, longest) = (format!("{}/gpu", "a".repeat(245)), format!("{}/gpu", "a".repeat(244)));
        let quota = Quota { devices: Some(1), ..Quota::default() };
        check(&quota, &[&long, &longest, "cpu"], &[(&format!("requests.{longest}"), "1")]);
    }
}
