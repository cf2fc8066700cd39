//! Projections of watched objects: only the fields that decisions need, to keep the caches small.

mod claim;
mod managed_object;
mod node;
mod pod;
mod runtime_class;
mod snapshot;
mod volume_limits;

pub use claim::{Claim, ClaimPhase, StorageClass, Volume, VolumeAffinity};
pub use managed_object::ManagedObject;
pub(crate) use managed_object::is_empty;
pub use node::{Effect, Node, Readiness, Taint, UNREACHABLE_NODE_TAINTS};
pub use pod::{Container, ContainerState, Exit, OperationPod, Pod, PodPhase, ServerPod};
pub use runtime_class::RuntimeClass;
pub use snapshot::{Snapshot, SnapshotContent, StoredListing};
pub use volume_limits::{CsiVolume, NodeVolumeLimits};

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::jiff::Timestamp;
use odc_api::{annotation, label};

/// The termination grace period of server pods, for preStop and for syncing data to disk.
pub const TERMINATION_GRACE_PERIOD: Duration = Duration::from_secs(60);

/// Returns the uid of the server that an object belongs to: its controller, or the server it was created for if the owner
/// reference was removed.
pub fn server_uid(metadata: &ObjectMeta) -> Option<&str> {
    controlling_server(metadata).or_else(|| created_for(metadata))
}

/// Returns the uid of the object that an object was created for: a server, a disk, or an operation on a disk.
pub fn creator_uid(metadata: &ObjectMeta) -> Option<&str> {
    let disk = || metadata.labels.as_ref()?.get(label::DISK_UID).map(String::as_str);
    let operation = || metadata.annotations.as_ref()?.get(annotation::OPERATION_UID).map(String::as_str);
    server_uid(metadata).or_else(disk).or_else(operation)
}

fn controlling_server(metadata: &ObjectMeta) -> Option<&str> {
    let mut controllers = metadata.owner_references.iter().flatten().filter(|owner| owner.controller == Some(true));
    let server = controllers.find(|owner| owner.kind == "DevServer" && owner.api_version.starts_with("odc.dev/"));
    server.map(|owner| owner.uid.as_str())
}

fn created_for(metadata: &ObjectMeta) -> Option<&str> {
    metadata.annotations.as_ref()?.get(annotation::SERVER_UID).map(String::as_str)
}

fn timestamp(time: Option<&Time>) -> Option<Timestamp> {
    time.map(|time| time.0)
}

/// Returns the finalizers that Kubernetes does not remove itself.
pub(crate) fn blocking_finalizers(finalizers: Option<&[String]>) -> Vec<String> {
    let own = ["foregroundDeletion", "orphan"];
    finalizers.into_iter().flatten().filter(|name| !own.contains(&name.as_str())).cloned().collect()
}
