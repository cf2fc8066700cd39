//! How much of a node a server gets: the flavor's share.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Written;
use odc_api::quantity::Quantity;
use odc_api::v1alpha1::{Home, Per};

use crate::amounts::Amounts;
use crate::devserver::validate::Valid;

/// More than this an init container does not need.
const SMALL_CPU: Quantity = Quantity::milli(100);
const SMALL_MEMORY: Quantity = Quantity::bytes(64 << 20);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    pub cpu: Quantity,
    pub memory: Quantity,
}

/// CPU and memory on each node. An amount too large to count is the largest there is, which fits nowhere.
pub fn share(valid: &Valid<'_>) -> Share {
    let resources = &valid.flavor.resources;
    let times = match resources.per {
        Per::Device => i64::from(valid.count.max(1)),
        Per::Server => 1,
    };
    let scaled = |amount: Quantity| amount.checked_mul(times).unwrap_or(Quantity::whole(i64::MAX));
    Share { cpu: scaled(resources.cpu), memory: scaled(resources.memory) }
}

/// What the kube-scheduler will count on each node, so that the queue counts the same.
pub fn each(valid: &Valid<'_>) -> Amounts {
    let share = share(valid);
    let mut amounts = Amounts::default();
    amounts.cpu = share.cpu.milli_value();
    amounts.memory = share.memory.value();
    amounts.storage = ephemeral(valid).map_or(0, Quantity::value);
    amounts.pods = 1;
    // The API server adds it to the pod, so the pod is made without it.
    if let Some(runtime) = valid.runtime {
        amounts.add(&runtime.overhead);
    }
    let Some(device) = &valid.flavor.device else { return amounts };
    let devices = amounts.device(&device.resource).saturating_add(valid.count.into());
    amounts.with_device(&device.resource, devices)
}

/// Requests are limits, so that what was granted is there and `nproc` tells the truth. The space on the node is only
/// requested: its limit would also count what the image writes, and the volume has one of its own.
pub fn main(valid: &Valid<'_>) -> ResourceRequirements {
    let share = share(valid);
    let mut limits = list(share);
    if let Some(device) = &valid.flavor.device {
        limits.insert(device.resource.clone(), Quantity::whole(valid.count.into()).into());
    }
    let mut requests = limits.clone();
    if let Some(size) = ephemeral(valid) {
        requests.insert("ephemeral-storage".into(), size.into());
    }
    ResourceRequirements { limits: Some(limits), requests: Some(requests), ..ResourceRequirements::default() }
}

/// Never more than the server itself, or the init containers would decide where it fits.
pub fn init(valid: &Valid<'_>) -> ResourceRequirements {
    let share = share(valid);
    let small = list(Share { cpu: share.cpu.min(SMALL_CPU), memory: share.memory.min(SMALL_MEMORY) });
    ResourceRequirements { limits: Some(small.clone()), requests: Some(small), ..ResourceRequirements::default() }
}

/// Whole cores, at least one: what programs that count cores should start.
pub fn threads(valid: &Valid<'_>) -> i64 {
    (share(valid).cpu.milli_value() / 1000).max(1)
}

/// Half of the memory, as Linux gives a machine's shared memory.
pub fn shared_memory(valid: &Valid<'_>) -> Quantity {
    Quantity::bytes(share(valid).memory.value() / 2)
}

pub fn ephemeral(valid: &Valid<'_>) -> Option<Quantity> {
    match valid.server.spec.home {
        Home::Ephemeral(size) => Some(size),
        Home::Claim(_) | Home::Disk(_) => None,
    }
}

fn list(share: Share) -> BTreeMap<String, Written> {
    BTreeMap::from([("cpu".to_owned(), share.cpu.into()), ("memory".to_owned(), share.memory.into())])
}
