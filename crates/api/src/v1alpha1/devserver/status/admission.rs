//! The admission of a server.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::open_enum::OpenEnum;
use crate::v1alpha1::condition;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("self.run >= oldSelf.run")
    .message("run must not decrease; the admission is based on a stale version"))]
pub struct Admission {
    /// Number of admissions; 0 before the first. Pods carry the run for which they were created.
    #[schemars(range(min = 0))]
    pub run: i64,

    /// Epoch of the leader that wrote the admission. It never decreases.
    #[schemars(range(min = 0))]
    pub epoch: i64,

    /// Assigned nodes, in the order of the pods. Empty while the server is pending.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 253)))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub nodes: Vec<String>,

    /// Placement strategy that selected the nodes: BestFit, EmptyNode, DeviceNode or SmallestDomain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<Placement>,

    /// Whether the server was backfilled: admitted ahead of its queue position without delaying other servers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backfilled: Option<bool>,

    /// Whether the server borrows quota. It can be preempted to reclaim the quota, even if it is no longer preemptible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub borrowed: Option<bool>,

    /// Time of the admission.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admitted_at: Option<Time>,

    /// Time that determines the queue position. It is kept when the server returns to the queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queued_at: Option<Time>,

    /// Position in the queue of the flavor, starting with 1. Unset while the server is not pending.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub position: Option<i64>,

    /// Estimated start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eta: Option<Eta>,

    /// First start estimate. The accuracy of estimates is measured against it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_estimate: Option<Box<StartEstimate>>,

    /// Reserved nodes and latest start, if planned. A new leader continues from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub planned_start: Option<PlannedStart>,

    /// Confirmed booking, for which nodes are reserved. It ends if notBefore changes or the lifetime is raised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub booking: Option<Booking>,

    /// Time at which the server is preempted; see message. It then returns to its previous queue position.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preempt_at: Option<Time>,

    /// Number of preemptions. It never decreases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub preemptions: Option<u32>,

    /// Reason why the server is pending or preempted. The reasons are those of the condition Admitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub reason: Option<OpenEnum<condition::Reason>>,

    /// Human-readable details of the reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<condition::Message>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Eta {
    /// Estimated start with a probability of 50 %.
    pub p50: Time,

    /// Estimated start with a probability of 90 %.
    pub p90: Time,
}

/// A planned start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlannedStart {
    /// Latest start.
    pub at: Time,

    /// Nodes that are reserved from then on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 253)))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub nodes: Vec<String>,
}

/// A confirmed booking.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Booking {
    /// Start of the booking.
    pub from: Time,

    /// End of the booking, including the time to start and stop the server.
    pub until: Time,
}

/// The placement strategy that selected the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Placement {
    /// The nodes with the least free capacity that fit.
    BestFit,
    /// An empty node, because no used node fits.
    EmptyNode,
    /// A node with devices for a server without devices, because no other node fits.
    DeviceNode,
    /// The nodes of the smallest topology domain that fits.
    SmallestDomain,
}

/// A start estimate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct StartEstimate {
    /// Time of the estimate.
    pub at: Time,

    /// Expected start, before calibration.
    pub expected: Time,

    /// Estimated start with a probability of 50 %.
    pub p50: Time,

    /// Estimated start with a probability of 90 %.
    pub p90: Time,
}
