//! The observed state of a server. It contains times instead of durations, so that it changes only with an event.

mod access;
mod admission;
mod failure;
mod hibernation;
mod lifetime;
mod pod;
mod stopping;
mod timeline;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::KubeSchema;
use serde::{Deserialize, Serialize};

pub use access::{Links, ServerAccess};
pub use admission::{Admission, Booking, Eta, Placement, PlannedStart, StartEstimate};
pub use failure::Failure;
pub use hibernation::{Hibernation, HibernationCause};
pub use lifetime::GrantedLifetime;
pub use pod::ServerPod;
pub use stopping::{StopCause, Stopping};
pub use timeline::{TIMELINE_LENGTH, TimelineEntry};

use crate::name::FlavorName;
use crate::v1alpha1::Phase;
use crate::v1alpha1::condition;

/// DevServerStatus is the observed state of a DevServer. It is written by the operator.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct DevServerStatus {
    /// Generation of the spec that this status was computed from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub observed_generation: Option<i64>,

    /// Phase: Pending, Queued, Starting, Running, Hibernating, Hibernated, Stopping, or one of the final phases
    /// Expired, Cancelled and Failed. Building is reserved; not implemented yet. Programs should use the conditions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,

    /// Conditions: Accepted, ImageReady, DiskReady, Admitted, PodsReady, Ready, Idle, Expiring.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "condition::schema")]
    pub conditions: Vec<condition::Condition>,

    /// Flavor of the server, resolved when it was queued. Later changes of defaults do not affect it. Written by the
    /// scheduler.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flavor: Option<FlavorName>,

    /// Admission state. Written by the scheduler.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admission: Option<Admission>,

    /// Time since which the server is queued for its first start. It is cancelled after the queue timeout of the
    /// cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_since: Option<Time>,

    /// Time at which the server was ready for the first time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,

    /// Time since which the server is running without interruption. Unset while it is not running.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running_since: Option<Time>,

    /// Seconds that the server was running before runningSince.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub accumulated_run_seconds: Option<i64>,

    /// Granted lifetime, after the limits of the flavor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifetime: Option<GrantedLifetime>,

    /// Time at which the lifetime ends. Unset while the server is not running.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Time>,

    /// Time at which the server ended. It is deleted after the TTL of the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Time>,

    /// Hibernation state. Unset while the server is not hibernated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hibernation: Option<Hibernation>,

    /// Why and since when the server is being stopped for good; present while the phase is Stopping.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopping: Option<Box<Stopping>>,

    /// Access information.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access: Option<ServerAccess>,

    /// Pods of the current run, one per node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub pods: Vec<ServerPod>,

    /// Number of container restarts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub restarts: Option<i64>,

    /// Number of processes killed because of an out-of-memory condition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub oom_kills: Option<i64>,

    /// Last failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_failure: Option<Box<Failure>>,

    /// Last 20 phase transitions, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub timeline: Vec<TimelineEntry>,
}
