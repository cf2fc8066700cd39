//! What the operator keeps of other people's objects: only what decisions need, so that ten thousand of them fit into
//! memory.

mod attach;
mod child;
mod claim;
mod node;
mod pod;
mod runtime;

pub use attach::{AttachLimits, Attachment};
pub use child::Child;
pub use claim::{Claim, ClaimPhase, Class, Reach, VolumeSeen};
pub use node::{Effect, Node, Readiness, Taint};
pub use pod::{Container, ContainerState, Exit, Pod, PodPhase, ServerPod};
pub use runtime::Runtime;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

fn at(time: Option<&Time>) -> Option<Timestamp> {
    time.map(|time| time.0)
}

/// The finalizers that somebody must take away. Kubernetes' own do their work by themselves.
pub(crate) fn holders(finalizers: Option<&[String]>) -> Vec<String> {
    let own = ["foregroundDeletion", "orphan"];
    finalizers.into_iter().flatten().filter(|name| !own.contains(&name.as_str())).cloned().collect()
}
