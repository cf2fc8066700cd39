//! Inputs of the scheduler. All of its state comes from these events, so a recorded list of them is a complete replay.

use std::collections::BTreeMap;

use odc_api::v1alpha1::{Priority, Toleration};
use serde::{Deserialize, Serialize};

use super::Plan;
use super::eta::history::{EtaEstimate, FlavorHistory};
use crate::cluster::{Taint, VolumeAffinity};
use crate::resources::Resources;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Event {
    /// A node was added or changed.
    Node(Node),
    NodeDeleted(String),
    /// A server was added or changed.
    Server(Box<Server>),
    ServerDeleted(String),
    User(AccountSpec),
    UserDeleted(String),
    Team(AccountSpec),
    TeamDeleted(String),
    /// A reservation made by an earlier leader.
    Reservation(ReservationSpec),
    /// The stored history of a flavor.
    History {
        flavor: String,
        history: Box<FlavorHistory>,
    },
    /// A server released its nodes.
    RunCompleted {
        flavor: String,
        lifetime: i64,
        runtime: i64,
    },
    /// A server that was given an estimate has started.
    WaitCompleted {
        flavor: String,
        estimate: EtaEstimate,
        wait: i64,
    },
}

/// One step of the scheduler, for recorded traces.
#[derive(Clone, Copy, Debug)]
pub enum TraceRecord<'a> {
    Event { now: i64, event: &'a Event },
    Plan { now: i64, plan: &'a Plan },
}

/// The planned start of a pending server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReservationSpec {
    pub server: String,
    /// Number of servers with reservations ahead of it in the queue.
    pub queue_index: usize,
    pub start: i64,
    pub end: i64,
    pub nodes: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Node {
    pub name: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<Taint>,
    pub capacity: Resources,
    /// Used by pods that belong to no server. The scheduler does not wait for these pods.
    #[serde(default)]
    pub foreign_usage: Resources,
    #[serde(default)]
    pub state: NodeState,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum NodeState {
    #[default]
    Schedulable,
    /// Restarting, and expected back by this time.
    UnavailableUntil(i64),
    /// Cordoned or lost, for an unknown time.
    Unschedulable,
}

/// A server as the scheduler sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Server {
    pub id: String,
    /// Breaks ties between servers that are equal in everything else.
    pub name: String,
    pub owner: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub team: Option<String>,
    pub flavor: String,
    pub request: Request,
    /// At most the ceiling of its user and team.
    #[serde(default)]
    pub priority: Priority,
    #[serde(default)]
    pub preemptible: bool,
    /// Determines its position in the queue.
    pub queued_at: i64,
    /// The start time of a booking.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<i64>,
    /// The booking is confirmed, so the server goes before all servers without a confirmed booking.
    #[serde(default)]
    pub booking_confirmed: bool,
    /// Maximum time for which it holds its nodes; `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_hold_time: Option<i64>,
    /// Number of times it was preempted.
    #[serde(default)]
    pub preemptions: u32,
    /// Nodes that rejected it, with the message of Kubernetes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub rejected_by: BTreeMap<String, String>,
    /// Its admission was just revoked, so it must not start in this cycle. It keeps its position in the queue.
    #[serde(default)]
    pub excluded_this_cycle: bool,
    pub state: ServerState,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ServerState {
    Pending,
    Running(RunInfo),
    /// Hibernated, or not ready to be queued. It counts towards the server quota.
    Inactive,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunInfo {
    /// The resources it uses on each node.
    pub nodes: Vec<(String, Resources)>,
    pub started_at: i64,
    /// When its nodes are free at the latest, including its graceful stop; `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<i64>,
    #[serde(default)]
    pub terminating: bool,
}

/// The resources and constraints of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Request {
    /// More than one is a gang.
    pub nodes: u32,
    /// Resources on each node, including the pod itself.
    pub per_node: Resources,
    /// The device of its flavor; `per_node` has the amount.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub selector: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tolerations: Vec<Toleration>,
    /// The label whose value all nodes of a gang must share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology: Option<String>,
    /// The node affinity of the home.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub home_affinity: Option<VolumeAffinity>,
    /// The node affinity of the other volumes; a node must match all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volume_affinity: Vec<VolumeAffinity>,
}

/// The quota and fair share of a user or a team.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AccountSpec {
    pub name: String,
    /// Fair-share weight; 0 counts as 1.
    #[serde(default)]
    pub weight: u32,
    #[serde(default)]
    pub limits: Limits,
    /// Number of devices above its limit that a team may borrow; `None` for all that are idle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub borrowing_limit: Option<i64>,
    /// Stored usage; replaces what was computed from its servers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<DecayedUsage>,
}

/// Usage in millidevice-seconds, decayed exponentially. A millidevice is a thousandth of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DecayedUsage {
    pub amount: i64,
    pub as_of: i64,
}

/// Quota of an account. A missing entry means no limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Limits {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub servers: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub devices: Option<i64>,
    /// Devices by flavor.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub flavors: BTreeMap<String, i64>,
    /// In nanocores, the precision of a Kubernetes quantity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<i128>,
    /// In nanobytes, likewise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<i128>,
}

impl Request {
    /// Returns the number of nodes, at least one.
    pub fn nodes(&self) -> usize {
        usize::try_from(self.nodes).unwrap_or(usize::MAX).max(1)
    }

    /// Returns the topology label of a gang; `None` for a single node.
    pub(super) fn topology_label(&self) -> Option<&str> {
        self.topology.as_deref().filter(|_| self.nodes() > 1)
    }

    /// Returns the number of the flavor's devices on all nodes together.
    pub fn devices(&self) -> i64 {
        self.total(self.device.as_deref().map_or(0, |device| self.per_node.device(device)))
    }

    /// Multiplies an amount per node by the number of nodes.
    pub(super) fn total(&self, per_node: i64) -> i64 {
        per_node.saturating_mul(i64::try_from(self.nodes()).unwrap_or(i64::MAX))
    }

    /// Returns the fair-share usage per second in millidevices. Without devices, sixteen cores count as one, so
    /// that CPU servers have shares too.
    pub(crate) fn usage_rate(&self) -> i64 {
        match self.devices() {
            0 => self.total(self.per_node.cpu.max(0) / 16),
            devices => devices.saturating_mul(1_000),
        }
    }
}

impl Server {
    pub(super) fn is_pending(&self) -> bool {
        self.state == ServerState::Pending
    }

    pub(super) fn running(&self) -> Option<&RunInfo> {
        match &self.state {
            ServerState::Running(running) => Some(running),
            ServerState::Pending | ServerState::Inactive => None,
        }
    }

    /// Reports whether its start time was in the future when it was queued. A start time in the past means "now" and has
    /// no precedence. A start time that is set while the server is pending counts as set from the beginning.
    pub(super) fn is_booking(&self) -> bool {
        self.not_before.is_some_and(|start| start > self.queued_at)
    }

    /// Reports whether its start time, if any, has been reached.
    pub(super) fn is_due(&self, now: i64) -> bool {
        self.not_before.is_none_or(|start| start <= now)
    }

    /// Returns for how long it would hold its nodes; `i64::MAX` if unknown.
    pub(super) fn hold_time(&self) -> i64 {
        self.max_hold_time.map_or(i64::MAX, |hold_time| hold_time.max(1))
    }
}
