//! What became of a server. Times change only when something happened, and durations are derived from them.

mod access;
mod admission;
mod failure;
mod hibernation;
mod lifetime;
mod pod;
mod timeline;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::KubeSchema;
use serde::{Deserialize, Serialize};

pub use access::{Links, ServerAccess};
pub use admission::{Admission, Booking, Eta, Placement, PlannedStart, StartPromise};
pub use failure::Failure;
pub use hibernation::{Hibernation, HibernationCause};
pub use lifetime::GrantedLifetime;
pub use pod::ServerPod;
pub use timeline::{TIMELINE_LENGTH, TimelineEntry};

use crate::name::FlavorName;
use crate::v1alpha1::Phase;
use crate::v1alpha1::condition;

/// What became of the request. Only the operator writes here.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct DevServerStatus {
    /// The generation of the spec this status speaks about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub observed_generation: Option<i64>,

    /// Where the server is in its life: Pending, Building, Queued, Starting, Running, Hibernating, Hibernated,
    /// Stopping, and finally Expired, Cancelled or Failed. It is for printing; programs should use the conditions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,

    /// What is true right now: Accepted, ImageReady, DiskReady, Admitted, PodsReady, Ready, Idle, Expiring.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "condition::schema")]
    pub conditions: Vec<condition::Condition>,

    /// The flavor the server got when it was queued. A later change of defaults does not move it. Only the scheduler
    /// writes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flavor: Option<FlavorName>,

    /// What the queue decided. Only the scheduler writes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admission: Option<Admission>,

    /// Since when the server has been waiting in the queue for its first start; absent while it does not. Whoever waits
    /// for longer than the cluster allows is cancelled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_since: Option<Time>,

    /// When the server was ready for the first time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,

    /// Since when the server has been running without a pause; absent while it does not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running_since: Option<Time>,

    /// How many seconds the server had run before runningSince.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub ran_seconds: Option<i64>,

    /// The lifetime the server got, after the flavor's limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifetime: Option<GrantedLifetime>,

    /// When the lifetime ends if the server keeps running; absent while it does not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Time>,

    /// When the server ended. It stays readable for a day.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Time>,

    /// Why the server sleeps; absent while it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hibernation: Option<Hibernation>,

    /// How to get in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access: Option<ServerAccess>,

    /// The pods of the current run, one for each node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub pods: Vec<ServerPod>,

    /// How often a container of the server died and was started again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub restarts: Option<i64>,

    /// How often a process of the server was killed because memory ran out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub oom_kills: Option<i64>,

    /// The last thing that went wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_failure: Option<Box<Failure>>,

    /// The last 20 changes of phase, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub timeline: Vec<TimelineEntry>,
}
