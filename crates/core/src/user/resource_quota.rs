//! The user's quota as a `ResourceQuota`, in addition to the quota that the scheduler enforces.
//!
//! `servers` is not included, because the API server would also count ended servers. The number of disks, their operations
//! and their restore points is always limited.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::api::core::v1::{ResourceQuota, ResourceQuotaSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use k8s_openapi::jiff::Timestamp;
use odc_api::name::UserName;
use odc_api::quantity::Quantity;
use odc_api::v1alpha1::Quota;
use serde_json::Value;

use super::OBJECT_NAME;
use crate::cluster::ManagedObject;
use crate::manifest::{Kind, Object};
use crate::time::remaining;

const REQUESTS: &str = "requests.";
/// The maximum length of the domain of a qualified name.
const MAX_DOMAIN_LENGTH: usize = 253;
const MAX_DISKS: i64 = 50;
const MAX_DISK_OPERATIONS: i64 = 200;
const MAX_SNAPSHOTS: i64 = 500;
/// Claims for rollbacks and for reading restore points exist besides those of disks. The disk controller enforces the
/// exact limit.
const STORAGE_FACTOR: i64 = 3;
/// How long to wait until all resources are counted. The controller manager counts a kind after it has discovered it, at
/// most 30 seconds after its definition, but a quota that was written earlier only at its next resync.
const COUNT_TIMEOUT: Duration = Duration::from_secs(40);

/// What the quota depends on besides the user's limits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Resources<'a> {
    /// The device resources of all flavors.
    pub devices: &'a BTreeSet<String>,
    /// Whether the API server has the kind `VolumeSnapshot`. A quota for an unknown kind would reject every request.
    pub snapshots: bool,
}

pub(super) fn object(user: &UserName, quota: &Quota, resources: Resources<'_>) -> Object {
    let spec = ResourceQuotaSpec { hard: Some(hard(quota, resources)), ..ResourceQuotaSpec::default() };
    let quota =
        ResourceQuota { metadata: super::metadata(user, OBJECT_NAME), spec: Some(spec), ..ResourceQuota::default() };
    Object::new(Kind::ResourceQuota, &quota)
}

/// Whether the API server counts all resources of a quota.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Counting {
    Complete,
    /// Not yet; for how long to wait.
    Waiting(Duration),
    /// Not in time. A new quota is counted at once.
    Overdue,
}

/// Compares what a stored quota counts with its limits. `since` is when the user became unready.
pub(super) fn counting(stored: Option<&ManagedObject>, since: Option<Timestamp>, now: Timestamp) -> Counting {
    let Some((stored, usage)) = stored.and_then(|stored| Some((stored, stored.quota.as_deref()?))) else {
        return Counting::Waiting(COUNT_TIMEOUT);
    };
    let hard = stored.body.pointer("/spec/hard").and_then(Value::as_object);
    if hard.into_iter().flat_map(|hard| hard.keys()).all(|resource| usage.counted.contains(resource)) {
        return Counting::Complete;
    }
    let since = usage.created_at.into_iter().chain(since).max().unwrap_or(now);
    remaining(COUNT_TIMEOUT, since, now).map_or(Counting::Overdue, Counting::Waiting)
}

fn hard(quota: &Quota, resources: Resources<'_>) -> BTreeMap<String, ApiQuantity> {
    // The limit applies to each device resource separately: a ResourceQuota cannot limit their sum, nor flavors.
    let Quota { servers: _, flavors: _, devices: device_limit, cpu, memory, storage } = quota;
    let storage = storage.map(|limit| limit.checked_mul(STORAGE_FACTOR).unwrap_or(limit));
    let plain = [("cpu", *cpu), ("memory", *memory), ("storage", storage)];
    let plain = plain.into_iter().filter_map(|(name, amount)| Some((format!("{REQUESTS}{name}"), amount?)));
    let counts = [
        ("disks.odc.dev", Some(MAX_DISKS)),
        ("diskoperations.odc.dev", Some(MAX_DISK_OPERATIONS)),
        ("volumesnapshots.snapshot.storage.k8s.io", resources.snapshots.then_some(MAX_SNAPSHOTS)),
    ];
    let counts =
        counts.into_iter().filter_map(|(name, limit)| Some((format!("count/{name}"), Quantity::whole(limit?))));
    let device = |limit: &u32| {
        let amount = Quantity::whole((*limit).into());
        resources.devices.iter().filter_map(move |device| Some((quota_name(device)?, amount)))
    };
    plain
        .chain(counts)
        .chain(device_limit.iter().flat_map(device))
        .map(|(name, amount)| (name, amount.into()))
        .collect()
}

/// Returns the name of a device resource in a quota, or `None` if it would be too long and the API server would reject the
/// quota.
fn quota_name(device: &str) -> Option<String> {
    let (domain, _) = device.split_once('/')?;
    (REQUESTS.len() + domain.len() <= MAX_DOMAIN_LENGTH).then(|| format!("{REQUESTS}{device}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const COUNTS: [(&str, &str); 3] = [
        ("count/diskoperations.odc.dev", "200"),
        ("count/disks.odc.dev", "50"),
        ("count/volumesnapshots.snapshot.storage.k8s.io", "500"),
    ];

    /// Checks the limits besides [`COUNTS`].
    fn check(quota: &Quota, devices: &[&str], expect: &[(&str, &str)]) {
        let devices = devices.iter().map(|device| (*device).to_owned()).collect();
        let expect: BTreeMap<_, _> = expect
            .iter()
            .chain(&COUNTS)
            .map(|(name, amount)| ((*name).to_owned(), ApiQuantity((*amount).into())))
            .collect();
        assert_eq!(hard(quota, Resources { devices: &devices, snapshots: true }), expect);
    }

    #[test]
    fn unknown_kind_is_not_counted() {
        let hard = hard(&Quota::default(), Resources { devices: &BTreeSet::new(), snapshots: false });
        assert_eq!(hard.keys().collect::<Vec<_>>(), ["count/diskoperations.odc.dev", "count/disks.odc.dev"]);
    }

    #[test]
    fn quota_is_overdue_if_a_resource_is_not_counted_in_time() {
        let at = |seconds| Timestamp::from_second(seconds).unwrap();
        let stored = |used: Value| {
            let body = json!({"metadata": {"name": "odc", "creationTimestamp": "1970-01-01T00:01:40Z"},
                "spec": {"hard": {"a": "1", "b": "1"}}, "status": {"used": used}});
            ManagedObject::from_api(Kind::ResourceQuota, body)
        };
        let check = |used: Value, since: Option<i64>, now: i64, expect: Counting| {
            assert_eq!(counting(Some(&stored(used)), since.map(at), at(now)), expect);
        };
        let seconds = Duration::from_secs;
        check(json!({"a": "0", "b": "0"}), Some(0), 1000, Counting::Complete);
        check(json!({"a": "0"}), Some(0), 110, Counting::Waiting(seconds(30)));
        check(json!({}), None, 140, Counting::Overdue);
        // A resource was added to an old quota.
        check(json!({"a": "0"}), Some(1000), 1001, Counting::Waiting(seconds(39)));
        assert_eq!(counting(None, None, at(0)), Counting::Waiting(seconds(40)));
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
                ("requests.storage", "6Ti"),
                ("requests.nvidia.com/gpu", "4"),
                ("requests.nvidia.com/mig-1g.10gb", "4"),
            ],
        );
    }

    #[test]
    fn user_without_limits_has_only_counts() {
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
