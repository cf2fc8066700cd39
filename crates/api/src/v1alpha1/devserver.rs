//! `DevServer`: what a person asks for, and what became of it.

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
    Placement, PlannedStart, ServerAccess, ServerPod, StartPromise, TIMELINE_LENGTH, TimelineEntry,
};
pub use volume::Volume;

use crate::duration::Duration;
use crate::name::{FlavorName, TeamName};
use crate::rule;

/// What the owner wants. The operator never writes here.
///
/// Access, lifetime, idleness, priority, preemption and booking can change at any time. Everything that a running
/// server cannot take on (its size, image, home, volumes, environment, setup, team, node labels) is fixed at creation.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[kube(
    group = "odc.dev",
    version = "v1alpha1",
    kind = "DevServer",
    doc = "A DevServer is a machine for one person: the devices and image they asked for, their home, SSH and editor \
           access, for as long as they reserved it. It belongs to the user whose namespace it is in.",
    namespaced,
    status = "DevServerStatus",
    derive = "PartialEq",
    shortname = "dsv",
    category = "odc",
    selectable = ".spec.team",
    selectable = ".spec.flavor",
    printcolumn(
        name = "Phase", type_ = "string", json_path = ".status.phase",
        description = "Where it is in its life."
    ),
    printcolumn(
        name = "Flavor", type_ = "string", json_path = ".status.flavor",
        description = "The flavor it runs on."
    ),
    printcolumn(name = "Count", type_ = "integer", json_path = ".spec.count", description = "Devices on each node."),
    printcolumn(
        name = "Queue", type_ = "integer", json_path = ".status.admission.position",
        description = "Its place in the queue."
    ),
    printcolumn(
        name = "Node", type_ = "string", json_path = ".status.admission.nodes[0]",
        description = "The first of its nodes."
    ),
    // Not of type date: kubectl prints that as an age, and a time to come as <invalid>.
    printcolumn(
        name = "Expires", type_ = "string", json_path = ".status.expiresAt",
        description = "When its time ends."
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
    validation = rule::fixed("team"),
    validation = rule::fixed("flavor"),
    validation = rule::fixed("count"),
    validation = rule::fixed("nodes"),
    validation = rule::fixed("image"),
    validation = home::fixed_rule(),
    validation = rule::fixed_list("volumes"),
    validation = rule::fixed_list("env"),
    validation = rule::fixed("setup"),
    validation = rules::ending(),
    validation = rules::ephemeral_does_not_hibernate_when_idle(),
    validation = rules::ephemeral_does_not_hibernate_when_told(),
    validation = rules::shared_with_a_team(),
)]
pub struct DevServerSpec {
    /// The team whose quota and share of the cluster this server uses. The owner must be a member of it. Leave it out
    /// to use your own quota. It is fixed at creation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub team: Option<TeamName>,

    /// The DevServerFlavor, that is the kind of machine; `kubectl get dsf` lists them. Leave it out to get your default
    /// flavor, or else the cluster's. It is fixed at creation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flavor: Option<FlavorName>,

    /// How many of the flavor's devices (GPUs) to have on each node. Leave it out to get one, or none where the flavor
    /// has no devices. The flavor says which counts it offers. It is fixed at creation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 128))]
    pub count: Option<u32>,

    /// How many nodes to have. More than one is a gang: all nodes are different, and start, sleep and end as one. It is
    /// fixed at creation.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 64))]
    pub nodes: u32,

    /// What the server should be doing. Running is the default. Hibernated puts it to sleep: it gives its devices back,
    /// keeps its home, and its lifetime stands still. Ended stops it for good and cannot be taken back.
    #[serde(default)]
    pub desired: Desired,

    /// Wakes a server that idleness or a drain put to sleep: any value other than the one of that moment will do, such
    /// as a new UUID. The gateway writes it when somebody connects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), regex(pattern = "^[A-Za-z0-9._:-]*$"))]
    pub wake: Option<String>,

    /// The container image the server runs. Leave it out to get your default image, or else the cluster's. It is fixed
    /// at creation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<Box<Image>>,

    /// How long the server may run, such as 8h or 1h30m, counted from the first time it is ready and standing still
    /// while it hibernates. Raise it to extend the server, lower it to end it sooner. The flavor's limits may cut it.
    #[serde(default = "eight_hours")]
    #[x_kube(validation = Rule::new("duration(self) > duration('0s') && duration(self) <= duration('2160h')")
        .message("give a lifetime above zero and up to 2160h (90 days); a server can be extended later"))]
    pub lifetime: Duration,

    /// What happens when nobody uses the server.
    #[serde(default)]
    pub idle: Idle,

    /// Where the home directory lives. Name exactly one of disk, claim and ephemeral. It is fixed at creation.
    pub home: Home,

    /// Claims of your namespace to mount besides the home. At the same path, they win over the flavor's own volumes.
    /// They are fixed at creation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["path".into()]))]
    pub volumes: Vec<Volume>,

    /// Who gets in, and by which doors. Changes reach a running server within seconds.
    #[serde(default)]
    pub access: Access,

    /// Environment variables of every session. They are fixed at creation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub env: Vec<EnvVar>,

    /// What runs when the server starts and stops. It is fixed at creation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub setup: Option<Box<Setup>>,

    /// How the queue treats the server.
    #[serde(default)]
    pub scheduling: Scheduling,
}

/// What a server should be doing.
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
