//! Resource requests and limits of a server.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Written;
use odc_api::quantity::Quantity;
use odc_api::v1alpha1::{Home, Per};

use crate::devserver::validate::Valid;
use crate::resources::Resources;

/// Resources of init containers.
const INIT_CPU: Quantity = Quantity::milli(100);
const INIT_MEMORY: Quantity = Quantity::bytes(64 << 20);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuMemory {
    pub cpu: Quantity,
    pub memory: Quantity,
}

/// Returns CPU and memory per node. On overflow the amount saturates and fits on no node.
pub fn cpu_memory(valid: &Valid<'_>) -> CpuMemory {
    let resources = &valid.flavor.resources;
    let times = match resources.per {
        Per::Device => i64::from(valid.count.max(1)),
        Per::Server => 1,
    };
    let scaled = |amount: Quantity| amount.checked_mul(times).unwrap_or(Quantity::whole(i64::MAX));
    CpuMemory { cpu: scaled(resources.cpu), memory: scaled(resources.memory) }
}

/// Returns the resources per node as the kube-scheduler accounts them.
pub fn per_node(valid: &Valid<'_>) -> Resources {
    let size = cpu_memory(valid);
    let mut resources = Resources::default();
    resources.cpu = size.cpu.milli_value();
    resources.memory = size.memory.value();
    resources.storage = ephemeral(valid).map_or(0, Quantity::value);
    resources.pods = 1;
    // The API server adds the overhead to the pod, so the pod is created without it.
    if let Some(runtime_class) = valid.runtime_class {
        resources.saturating_add_assign(&runtime_class.overhead);
    }
    let Some(device) = &valid.flavor.device else { return resources };
    let devices = resources.device(&device.resource).saturating_add(valid.count.into());
    resources.with_device(&device.resource, devices)
}

/// Returns the resources of the main container. Limits equal requests, so that admitted resources are guaranteed and `nproc` is correct. Ephemeral storage has no limit:
/// it would include the writable layer of the container, and the volume has a limit of its own.
pub fn main(valid: &Valid<'_>) -> ResourceRequirements {
    let size = cpu_memory(valid);
    let mut limits = list(size);
    if let Some(device) = &valid.flavor.device {
        limits.insert(device.resource.clone(), Quantity::whole(valid.count.into()).into());
    }
    let mut requests = limits.clone();
    if let Some(size) = ephemeral(valid) {
        requests.insert("ephemeral-storage".into(), size.into());
    }
    ResourceRequirements { limits: Some(limits), requests: Some(requests), ..ResourceRequirements::default() }
}

/// Returns the resources of an init container: at most those of the main container, so that init containers do not increase the request of the pod.
pub fn init(valid: &Valid<'_>) -> ResourceRequirements {
    let size = cpu_memory(valid);
    guaranteed(CpuMemory { cpu: size.cpu.min(INIT_CPU), memory: size.memory.min(INIT_MEMORY) })
}

/// Returns requests with equal limits.
pub(crate) fn guaranteed(size: CpuMemory) -> ResourceRequirements {
    let resources = list(size);
    ResourceRequirements {
        limits: Some(resources.clone()),
        requests: Some(resources),
        ..ResourceRequirements::default()
    }
}

/// Returns the number of threads for programs that start one per core: whole cores, at least one.
pub fn threads(valid: &Valid<'_>) -> i64 {
    (cpu_memory(valid).cpu.milli_value() / 1000).max(1)
}

/// Returns half of the memory, as the Linux default for tmpfs.
pub fn shared_memory(valid: &Valid<'_>) -> Quantity {
    Quantity::bytes(cpu_memory(valid).memory.value() / 2)
}

pub fn ephemeral(valid: &Valid<'_>) -> Option<Quantity> {
    match valid.server.spec.home {
        Home::Ephemeral(size) => Some(size),
        Home::Claim(_) | Home::Disk(_) => None,
    }
}

pub(crate) fn list(size: CpuMemory) -> BTreeMap<String, Written> {
    BTreeMap::from([("cpu".to_owned(), size.cpu.into()), ("memory".to_owned(), size.memory.into())])
}
