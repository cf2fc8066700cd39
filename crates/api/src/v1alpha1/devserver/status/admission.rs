//! What the queue decided about a server.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::v1alpha1::condition::{self, Sentence};
use crate::word::Word;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("self.run >= oldSelf.run")
    .message("a later run was already granted; decide again from the stored state"))]
pub struct Admission {
    /// Counts the grants; 0 before the first. A pod belongs to the server only if it carries this number.
    #[schemars(range(min = 0))]
    pub run: i64,

    /// The number of the leader that decided last. It never goes down.
    #[schemars(range(min = 0))]
    pub epoch: i64,

    /// The nodes granted, in the order of the pods; empty while the server waits.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 253)))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub nodes: Vec<String>,

    /// Why these nodes and no others: Fullest, WholeNode, DeviceNode or TightestGroup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<Placement>,

    /// It started before others that come before it in the queue, and delays none of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backfilled: Option<bool>,

    /// Part of what it has is lent by other teams: it can be asked back for that, also if it is no longer preemptible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub borrowed: Option<bool>,

    /// When the devices were granted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub granted_at: Option<Time>,

    /// Since when the place in the queue counts. It is kept when the server goes back to the queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queued_at: Option<Time>,

    /// The place in the queue of its flavor, 1 for the first; absent when the server does not wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub position: Option<i64>,

    /// When the server is expected to start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eta: Option<Eta>,

    /// What was said first about the start. How well such promises are kept is counted from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub promise: Option<Box<StartPromise>>,

    /// Where and when the server is to start at the latest, as far as the queue has planned. A new leader goes on from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub planned: Option<PlannedStart>,

    /// The booked time that is promised: nodes are kept free for it. Asking for another time or for longer ends it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub booking: Option<Booking>,

    /// When the server begins to stop because somebody with a better right needs its place; the message says by which
    /// right. It goes back to the queue then, in its old place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gives_way_at: Option<Time>,

    /// How often it had to give way. It never goes down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub preemptions: Option<u32>,

    /// Why the server waits or has to give way, in one word; the reasons are those of the condition Admitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub reason: Option<Word<condition::Reason>>,

    /// What exactly is missing, in one sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<Sentence>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Eta {
    /// Half of such waits end before this time.
    pub p50: Time,

    /// Nine of ten such waits end before this time.
    pub p90: Time,
}

/// Where and when a server is to start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlannedStart {
    /// When at the latest.
    pub at: Time,

    /// The nodes kept for it from then on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 253)))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub nodes: Vec<String>,
}

/// A time that is promised.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Booking {
    /// When the server may start.
    pub from: Time,

    /// When its nodes are free again, its start and its stop included.
    pub until: Time,
}

/// Why a server was put where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Placement {
    /// Of the nodes with room, those with the least of it left.
    Fullest,
    /// Nothing smaller had room, so a node that was empty is used.
    WholeNode,
    /// Only nodes with devices had room, for a server that needs none.
    DeviceNode,
    /// The nodes are all of the smallest group that has enough of them.
    TightestGroup,
}

/// A promise as it was given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct StartPromise {
    /// When it was given.
    pub at: Time,

    /// The start that was expected, before experience was asked.
    pub expected: Time,

    /// Half of such promises are kept.
    pub p50: Time,

    /// Nine of ten are.
    pub p90: Time,
}
