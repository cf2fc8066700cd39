//! What the world is told. Everything it knows came in as one of these, so a recorded list of them is a complete replay.

use std::collections::BTreeMap;

use odc_api::v1alpha1::{Priority, Toleration};
use serde::{Deserialize, Serialize};

use super::stays::{Given, Record};
use crate::amounts::Amounts;
use crate::seen::{Reach, Taint};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Event {
    /// A node as it is now.
    Node(Node),
    NodeGone(String),
    /// A server as it is now.
    Server(Box<Server>),
    ServerGone(String),
    User(Account),
    UserGone(String),
    Team(Account),
    TeamGone(String),
    /// Somebody who waits was promised a start, by a world that is gone.
    Promise(Promise),
    /// What is known about the stays in a flavor, as it was stored.
    Record {
        flavor: String,
        record: Box<Record>,
    },
    /// Somebody left, after so long of a lifetime.
    Stay {
        flavor: String,
        lifetime: i64,
        stayed: i64,
    },
    /// Somebody who was promised a start has started, after so long.
    Waited {
        flavor: String,
        given: Given,
        waited: i64,
    },
}

/// A planned start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Promise {
    /// Of the server.
    pub id: String,
    /// How many with planned starts were ahead of it.
    pub place: usize,
    pub start: i64,
    pub until: i64,
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
    pub capacity: Amounts,
    /// What pods use that are no server's. It is not the queue's to wait for.
    #[serde(default)]
    pub others: Amounts,
    #[serde(default)]
    pub service: Service,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Service {
    #[default]
    Open,
    /// It takes nobody now and is expected back by then, because it restarts.
    Back(i64),
    /// It takes nobody, and nobody knows until when.
    Closed,
}

/// A server as the queue sees it. Times are seconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Server {
    pub id: String,
    /// Decides between two that are equal in everything else.
    pub name: String,
    pub owner: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub team: Option<String>,
    pub flavor: String,
    pub ask: Ask,
    /// At most the ceiling of its user and team.
    #[serde(default)]
    pub priority: Priority,
    #[serde(default)]
    pub preemptible: bool,
    /// Its place in the queue counts from here.
    pub queued: i64,
    /// A booking: not before this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<i64>,
    /// The queue has promised the booked time, so it comes before everybody who has no such promise.
    #[serde(default)]
    pub booked: bool,
    /// How long it holds its nodes once it starts, at most; nothing if nobody knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifetime: Option<i64>,
    /// How often it was preempted.
    #[serde(default)]
    pub preemptions: u32,
    /// Nodes that refused it, each with what was said.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub unfit: BTreeMap<String, String>,
    /// It is not to start in this plan: its grant was just taken back, and others were promised something from the same
    /// facts. It has its place.
    #[serde(default)]
    pub barred: bool,
    pub state: State,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum State {
    Waiting,
    Running(Running),
    /// It sleeps, or is not ready to compete. It counts as a server.
    Resting,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Running {
    /// What it takes, node by node.
    pub on: Vec<(String, Amounts)>,
    pub since: i64,
    /// When its nodes are free at the latest, its orderly stop included; nothing if nobody knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<i64>,
    /// It is on its way out already.
    #[serde(default)]
    pub leaving: bool,
}

/// What a server asks of its nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ask {
    /// More than one is a gang.
    pub nodes: u32,
    /// What it takes on each node, the pod itself included.
    pub each: Amounts,
    /// The device of its flavor, which `each` has an amount of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub selector: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tolerations: Vec<Toleration>,
    /// The label whose value all nodes of a gang must share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology: Option<String>,
    /// From where its volumes can be reached; a node must be in all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reach: Vec<Reach>,
}

/// A user or a team.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Account {
    pub name: String,
    /// Its part of the cluster relative to the others; 0 counts as 1.
    #[serde(default)]
    pub weight: u32,
    #[serde(default)]
    pub limits: Limits,
    /// How many devices above its limit a team may borrow; nothing for as many as are idle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub borrow: Option<i64>,
    /// What it used until some time, if that is known better than from the servers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<Used>,
}

/// Thousandths of device seconds, older ones counted for less, as of a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Used {
    pub amount: i64,
    pub at: i64,
}

/// The most somebody may hold. What is not there is not limited.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Limits {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub servers: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub devices: Option<i64>,
    /// Devices of one flavor.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub flavors: BTreeMap<String, i64>,
    /// Billionths of a core: as exact as it was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<i128>,
    /// Billionths of a byte.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<i128>,
}

impl Ask {
    /// At least one: a grant of nothing would be no grant.
    pub fn nodes(&self) -> usize {
        usize::try_from(self.nodes).unwrap_or(usize::MAX).max(1)
    }

    /// The label that the nodes must agree on. One node agrees with itself.
    pub(super) fn shared_label(&self) -> Option<&str> {
        self.topology.as_deref().filter(|_| self.nodes() > 1)
    }

    /// How much of the flavor's device it takes on all nodes together.
    pub fn devices(&self) -> i64 {
        self.in_all(self.device.as_deref().map_or(0, |device| self.each.device(device)))
    }

    pub(super) fn in_all(&self, each: i64) -> i64 {
        each.saturating_mul(i64::try_from(self.nodes()).unwrap_or(i64::MAX))
    }

    /// What a second of it costs in fair shares, in thousandths of a device. Where there are no devices, sixteen cores
    /// count as one, so that CPU servers have shares too.
    pub(crate) fn cost(&self) -> i64 {
        match self.devices() {
            0 => self.in_all(self.each.cpu.max(0) / 16),
            devices => devices.saturating_mul(1_000),
        }
    }
}

impl Server {
    pub(super) fn waits(&self) -> bool {
        self.state == State::Waiting
    }

    pub(super) fn running(&self) -> Option<&Running> {
        match &self.state {
            State::Running(running) => Some(running),
            State::Waiting | State::Resting => None,
        }
    }

    /// Whether it asked for a time that was still to come. Whoever names one that is over wants to start now like everybody
    /// else, and gets nothing ahead of them for it. When the time was named is not known: one that is set while the server
    /// waits counts like one that was there from the start.
    pub(super) fn is_booking(&self) -> bool {
        self.not_before.is_some_and(|at| at > self.queued)
    }

    /// Whether it may start, if it is a booking.
    pub(super) fn is_due(&self, now: i64) -> bool {
        self.not_before.is_none_or(|at| at <= now)
    }

    /// How long it would hold its nodes.
    pub(super) fn span(&self) -> i64 {
        self.lifetime.map_or(i64::MAX, |lifetime| lifetime.max(1))
    }
}
