//! `queue.odc.dev`: the current queue. The leader serves it from memory; nothing is stored.
//!
//! [`Queue`] is anonymous and readable by all users. Users who can read the servers of a namespace can read their
//! [`QueueEntry`] and the [`Availability`] of each size; users who can create servers can create a [`DryRun`];
//! administrators can create a [`WhatIf`], and the service of ODC a [`Heartbeat`]. The API server authorizes requests by RBAC
//! before it forwards them.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::duration::Duration;
use crate::name::{FlavorName, ObjectName, TeamName, UserName};
use crate::v1alpha1::{Priority, Quota};

pub const GROUP: &str = "queue.odc.dev";
pub const VERSION: &str = "v1alpha1";
pub const API_VERSION: &str = "queue.odc.dev/v1alpha1";

/// An estimated start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StartEstimate {
    /// Whether the server would start now.
    #[serde(default)]
    pub now: bool,
    /// Estimated start with a probability of 50 %.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p50: Option<Time>,
    /// Estimated start with a probability of 90 %.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p90: Option<Time>,
    /// Latest start if all servers ahead use their full lifetime without extension. Unset if an end is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latest: Option<Time>,
}

/// The queue of one flavor, without the names of servers and users.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Queue {
    /// The name is that of the flavor.
    #[schemars(with = "Map<String, Value>")]
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub pending: Vec<PendingServer>,
    /// Accuracy of earlier estimates.
    #[serde(default)]
    pub calibration: EtaCalibration,
}

/// A pending server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PendingServer {
    /// Position in the queue of the flavor.
    pub position: i64,
    pub count: u32,
    pub nodes: u32,
    pub priority: Priority,
    pub queued_at: Time,
    #[serde(default)]
    pub start: StartEstimate,
}

/// Estimated starts of new servers of one flavor for the user of the namespace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Availability {
    /// The name is that of the flavor.
    #[schemars(with = "Map<String, Value>")]
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub sizes: Vec<AvailableSize>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AvailableSize {
    pub count: u32,
    pub nodes: u32,
    #[serde(default)]
    pub start: StartEstimate,
    /// Why the server would not start now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// Accuracy of start estimates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EtaCalibration {
    pub estimates: u64,
    /// Starts before the `p50` estimate; the target is 50 %.
    pub within_p50: u64,
    /// Starts before the `p90` estimate; the target is 90 %.
    pub within_p90: u64,
}

/// A planned start that was delayed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DelayedStart {
    pub from: Time,
    /// Unset if there is no planned start any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<Time>,
    /// `RunExtended`, `CapacityReduced`, `QuotaChanged`, `Overtaken`, `Replanned`, `SchedulerLate`, `LeaderChanged` or
    /// `Unknown`.
    pub reason: String,
    pub message: String,
}

/// A pending server, with the name of the server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueueEntry {
    #[schemars(with = "Map<String, Value>")]
    pub metadata: ObjectMeta,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flavor: Option<FlavorName>,
    #[serde(default)]
    pub count: u32,
    #[serde(default)]
    pub nodes: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<Priority>,
    /// Position in the queue of the flavor. Unset for a booking whose start time is in the future.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queued_at: Option<Time>,
    /// Start time of the booking.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Time>,
    #[serde(default)]
    pub start: StartEstimate,
    /// Set if the planned start was delayed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delayed: Option<DelayedStart>,
    /// The reasons are those of the condition Admitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// Estimates the start of a server. It is computed on creation and not stored.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DryRun {
    #[serde(default)]
    pub metadata: ObjectMeta,
    pub spec: DryRunSpec,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<DryRunStatus>,
}

/// The fields and defaults are those of a server's spec.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DryRunSpec {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flavor: Option<FlavorName>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifetime: Option<Duration>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub team: Option<TeamName>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<Priority>,
    #[serde(default)]
    pub preemptible: bool,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_labels: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Time>,
    /// An existing claim for the home; its node affinity restricts the nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub home_claim: Option<ObjectName>,
    /// Other claims to mount.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub claims: Vec<ObjectName>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DryRunStatus {
    pub start: StartEstimate,
    /// Position in the queue of the flavor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Why the server would not start now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// Estimates the effect of other quotas on pending servers. It is computed on creation and not stored. It covers the
/// whole cluster, so it requires permission to change quotas.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WhatIf {
    #[serde(default)]
    pub metadata: ObjectMeta,
    pub spec: WhatIfSpec,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<WhatIfStatus>,
}

/// Complete quotas of teams and users. Others keep their quota.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WhatIfSpec {
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub teams: BTreeMap<TeamName, Quota>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub users: BTreeMap<UserName, Quota>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WhatIfStatus {
    /// Number of pending servers.
    pub pending: u64,
    /// Servers whose planned start would change, in queue order.
    #[serde(default)]
    pub changes: Vec<StartChange>,
}

/// A server whose planned start would change. A planned start is the latest start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StartChange {
    pub namespace: String,
    pub name: String,
    #[serde(default)]
    pub before: PlannedStart,
    #[serde(default)]
    pub after: PlannedStart,
}

/// A planned start: now, at a time, or neither if it is unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlannedStart {
    #[serde(default)]
    pub now: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Time>,
}

/// Passes heartbeats to the agents of servers, so that they count as active. It is executed on creation and not stored.
/// The service of ODC creates it on behalf of users.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Heartbeat {
    #[serde(default)]
    pub metadata: ObjectMeta,
    pub spec: HeartbeatSpec,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<HeartbeatStatus>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HeartbeatSpec {
    /// At most [`MAX_HEARTBEATS`].
    pub servers: Vec<HeartbeatServer>,
}

/// The maximum number of servers in one [`Heartbeat`].
pub const MAX_HEARTBEATS: usize = 250;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HeartbeatServer {
    pub namespace: String,
    pub name: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HeartbeatStatus {
    /// Number of servers with an agent to which the heartbeat is being passed.
    pub servers: u64,
}
