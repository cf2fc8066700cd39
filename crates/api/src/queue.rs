//! `queue.odc.dev`: the queue as it is this moment. The leading operator answers from memory; nothing of it is stored.
//!
//! What everybody may know of a flavor's queue names nobody ([`Queue`]). Who may read servers of a namespace may read
//! their places there ([`QueueEntry`]), and when servers of each size would start ([`Availability`]); who may create
//! servers there may ask the same about a particular one ([`DryRun`]), and administrators what other quotas would change
//! ([`WhatIf`]). The API server decides that by its own roles before it passes a question on.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde::{Deserialize, Serialize};

use crate::duration::Duration;
use crate::name::{FlavorName, ObjectName, TeamName, UserName};
use crate::v1alpha1::{Priority, Quota};

pub const GROUP: &str = "queue.odc.dev";
pub const VERSION: &str = "v1alpha1";
pub const API_VERSION: &str = "queue.odc.dev/v1alpha1";

/// When something is expected to start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Start {
    /// There is room this moment.
    #[serde(default)]
    pub now: bool,
    /// Half of such waits end before this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p50: Option<Time>,
    /// Nine of ten such waits end before this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p90: Option<Time>,
    /// If everybody ahead stays as long as they may and nobody extends; absent if the end of somebody is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latest: Option<Time>,
}

/// The queue of one flavor, without names.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Queue {
    /// Named like the flavor.
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub waiting: Vec<Waiting>,
    /// How well earlier promises were kept.
    #[serde(default)]
    pub calibration: Calibration,
}

/// Somebody who waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Waiting {
    /// Among those who wait for the same flavor.
    pub position: i64,
    pub count: u32,
    pub nodes: u32,
    pub priority: Priority,
    pub queued_at: Time,
    #[serde(default)]
    pub start: Start,
}

/// When servers of one flavor would start, if the user of the namespace asked now.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Availability {
    /// Named like the flavor.
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub sizes: Vec<Size>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Size {
    pub count: u32,
    pub nodes: u32,
    #[serde(default)]
    pub start: Start,
    /// Why not now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// Of all waits that ended: how many ended by the time that was promised first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Calibration {
    pub promises: u64,
    /// By `p50`; half of them is right.
    pub kept_p50: u64,
    /// By `p90`; nine of ten is right.
    pub kept_p90: u64,
}

/// A planned start that is later than it was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Moved {
    pub from: Time,
    /// Absent if nobody knows any more when it starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<Time>,
    /// `Extended`, `LessCapacity`, `Rules`, `Overtaken`, `Rearranged`, `Late` or `Inherited`.
    pub reason: String,
    pub message: String,
}

/// A server that waits, named as it is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QueueEntry {
    pub metadata: ObjectMeta,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flavor: Option<FlavorName>,
    #[serde(default)]
    pub count: u32,
    #[serde(default)]
    pub nodes: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<Priority>,
    /// Its place among those who wait for the same flavor; nothing for a booking whose time has not come.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queued_at: Option<Time>,
    /// The time it is booked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Time>,
    #[serde(default)]
    pub start: Start,
    /// Why its planned start, the latest one, is later than it was, if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moved: Option<Moved>,
    /// The reasons are those of the condition Admitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// When would this start, and what is in its way? Created to be answered, and never kept.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DryRun {
    #[serde(default)]
    pub metadata: ObjectMeta,
    pub spec: DryRunSpec,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<DryRunStatus>,
}

/// As in the spec of a server; what is left out is as for a server that leaves it out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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
    /// Its home, where it is a claim that exists: nodes that cannot reach it will not do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub home_claim: Option<ObjectName>,
    /// Further claims it mounts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub claims: Vec<ObjectName>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DryRunStatus {
    pub start: Start,
    /// Its place among those who wait for the same flavor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What is in its way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// What would change for those who wait, if quotas were other ones? Created to be answered, and never kept. Of the whole
/// cluster, and so for whoever may change quotas.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WhatIf {
    #[serde(default)]
    pub metadata: ObjectMeta,
    pub spec: WhatIfSpec,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<WhatIfStatus>,
}

/// Whole quotas, as in the spec of a team or a user; whoever is not named keeps their own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WhatIfSpec {
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub teams: BTreeMap<TeamName, Quota>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub users: BTreeMap<UserName, Quota>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WhatIfStatus {
    /// How many wait, this way or the other.
    pub waiting: u64,
    /// Those who would start at another time, in the order of the queue.
    #[serde(default)]
    pub changes: Vec<Difference>,
}

/// A server that would start at another time. These are the planned starts, at which it starts at the latest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Difference {
    pub namespace: String,
    pub name: String,
    #[serde(default)]
    pub before: Planned,
    #[serde(default)]
    pub after: Planned,
}

/// A planned start: now, a time, or neither if nobody can say.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Planned {
    #[serde(default)]
    pub now: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Time>,
}
