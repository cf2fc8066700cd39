//! `DevServer`: a development server of one user.

mod access;
mod env;
mod home;
mod idle;
mod image;
mod rules;
mod scheduling;
mod setup;
mod status;
mod volume;

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use access::{Access, Port, Share};
pub use env::{EnvVar, SecretKey};
pub use home::Home;
pub use idle::{Idle, IdleAction};
pub use image::Image;
pub use scheduling::{Priority, Scheduling};
pub use setup::{Repository, Setup};
pub use status::{
    Admission, Booking, DevServerStatus, Eta, Failure, GrantedLifetime, Hibernation, HibernationCause, Links,
    Placement, PlannedStart, ServerAccess, ServerPod, StartEstimate, StopCause, Stopping, TIMELINE_LENGTH,
    TimelineEntry,
};
pub use volume::Volume;

use crate::duration::Duration;
use crate::name::{FlavorName, TeamName};
use crate::rule;

/// The maximum of `spec.count`.
pub const MAX_COUNT: u32 = 128;
/// The maximum of `spec.nodes`.
pub const MAX_NODES: u32 = 64;

/// DevServerSpec is the desired state of a DevServer. The operator does not write it.
///
/// Access, lifetime, idle policy, priority, preemptibility and booking can be changed at any time. All other fields are
/// immutable.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[kube(
    group = "odc.dev",
    version = "v1alpha1",
    kind = "DevServer",
    doc = "DevServer is a development server of one user, with devices, an image, a home directory and SSH access, for a \
           limited lifetime. It belongs to the user whose namespace it is in.",
    namespaced,
    status = "DevServerStatus",
    derive = "PartialEq",
    shortname = "dsv",
    category = "odc",
    selectable = ".spec.team",
    selectable = ".spec.flavor",
    printcolumn(
        name = "Phase", type_ = "string", json_path = ".status.phase",
        description = "Phase of the server."
    ),
    printcolumn(
        name = "Flavor", type_ = "string", json_path = ".status.flavor",
        description = "Flavor of the server."
    ),
    printcolumn(name = "Count", type_ = "integer", json_path = ".spec.count", description = "Devices per node."),
    printcolumn(
        name = "Queue", type_ = "integer", json_path = ".status.admission.position",
        description = "Position in the queue."
    ),
    printcolumn(
        name = "Node", type_ = "string", json_path = ".status.admission.nodes[0]",
        description = "First assigned node."
    ),
    // Not of type date, which kubectl prints as an age and for future times as <invalid>.
    printcolumn(
        name = "Expires", type_ = "string", json_path = ".status.expiresAt",
        description = "Time at which the lifetime ends."
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Team", type_ = "string", json_path = ".spec.team", priority = 1),
    printcolumn(name = "Nodes", type_ = "integer", json_path = ".spec.nodes", priority = 1),
    printcolumn(
        name = "Message", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].message", priority = 1
    ),
    validation = rules::name(),
    validation = rules::ended_spec(),
    validation = rules::ended_phase(),
    validation = rules::stopping_lifetime(),
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = rule::immutable("team"),
    validation = rule::immutable("flavor"),
    validation = rule::immutable("count"),
    validation = rule::immutable("nodes"),
    validation = rule::immutable("image"),
    validation = home::immutable_rule(),
    validation = rule::immutable_list("volumes"),
    validation = rule::immutable_list("env"),
    validation = rule::immutable("setup"),
    validation = rules::ending(),
    validation = rules::ephemeral_is_not_hibernated_when_idle(),
    validation = rules::ephemeral_is_not_hibernated(),
    validation = rules::team_port_requires_team(),
)]
pub struct DevServerSpec {
    /// Team whose quota and fair share the server uses. The owner must be a member. If unset, the server uses the quota
    /// of the user. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub team: Option<TeamName>,

    /// Name of the DevServerFlavor. Defaults to the default flavor of the user, then of the cluster. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flavor: Option<FlavorName>,

    /// Number of devices (GPUs) per node. Defaults to 1, or 0 if the flavor has no device. The flavor can restrict the
    /// counts. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = MAX_COUNT))]
    pub count: Option<u32>,

    /// Number of nodes. A server with more than one node is a gang: its pods run on different nodes and are started,
    /// hibernated and stopped together. Immutable.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = MAX_NODES))]
    pub nodes: u32,

    /// Desired state: Running, Hibernated or Ended. A hibernated server releases its devices and keeps its home; its
    /// lifetime is paused. Ended is final.
    #[serde(default)]
    pub desired: Desired,

    /// Wakes a server that was hibernated after its idle timeout. Any value that differs from
    /// status.hibernation.observedWake wakes it, such as a new UUID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), regex(pattern = "^[A-Za-z0-9._:-]*$"))]
    pub wake: Option<String>,

    /// Container image. Defaults to the default image of the user, then of the cluster. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<Box<Image>>,

    /// Lifetime, such as 8h or 1h30m. It starts when the server is ready for the first time and is paused during
    /// hibernation. Raise it to extend the server. The flavor can limit it.
    #[serde(default = "eight_hours")]
    #[x_kube(validation = Rule::new("duration(self) > duration('0s') && duration(self) <= duration('2160h')")
        .message("lifetime must be above 0s and at most 2160h (90 days); a server can be extended later"))]
    pub lifetime: Duration,

    /// Idle policy.
    #[serde(default)]
    pub idle: Idle,

    /// Storage of the home directory. Exactly one of disk, claim and ephemeral must be set. Immutable.
    pub home: Home,

    /// Claims in the namespace of the server to mount in addition to the home. They override volumes of the flavor at
    /// the same path. Immutable.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["path".into()]))]
    pub volumes: Vec<Volume>,

    /// Access to the server. Changes are applied to a running server within seconds.
    #[serde(default)]
    pub access: Access,

    /// Environment variables of all sessions. Immutable.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub env: Vec<EnvVar>,

    /// Scripts that run at start and stop, and startup files of the home. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub setup: Option<Box<Setup>>,

    /// Scheduling options.
    #[serde(default)]
    pub scheduling: Scheduling,
}

impl DevServerSpec {
    /// Returns a spec with the defaults of the API.
    pub fn new(home: Home) -> Self {
        Self {
            team: None,
            flavor: None,
            count: None,
            nodes: one(),
            desired: Desired::default(),
            wake: None,
            image: None,
            lifetime: eight_hours(),
            idle: Idle::default(),
            home,
            volumes: vec![],
            access: Access::default(),
            env: vec![],
            setup: None,
            scheduling: Scheduling::default(),
        }
    }
}

/// Desired state of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Desired {
    #[default]
    Running,
    Hibernated,
    Ended,
}

fn one() -> u32 {
    1
}

fn eight_hours() -> Duration {
    Duration::hours(8)
}
