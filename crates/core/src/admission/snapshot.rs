//! The input of one scheduling cycle.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use odc_api::name::{FlavorName, TeamName, UserName};
use odc_api::v1alpha1::{Admission, Booking, DevServerFlavor, Priority, Quota, Usage};

use super::volume_limits::AttachedVolumes;
use super::{NodeRejections, Request};
use crate::cluster::{Node, Pod, RuntimeClass};
use crate::devserver::QueueIntent;
use crate::time;

/// Everything that decisions depend on, in any order.
#[derive(Clone, Debug, Default)]
pub struct Snapshot<'a> {
    pub nodes: Vec<&'a Node>,
    /// All pods of the cluster: all bound pods use their node.
    pub pods: Vec<&'a Pod>,
    /// Volumes of these pods, and how many each node can attach.
    pub attached_volumes: Arc<AttachedVolumes>,
    pub runtimes: Vec<&'a RuntimeClass>,
    pub servers: Vec<&'a Server>,
    pub accounts: Accounts,
    pub node_rejections: NodeRejections,
    /// Uids of servers whose admission cannot be written at the moment: they are excluded from planning.
    pub inadmissible: BTreeSet<String>,
    /// For their histories.
    pub flavors: Vec<&'a DevServerFlavor>,
}

/// A server as the queue sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub owner: UserName,
    pub team: Option<TeamName>,
    pub flavor: FlavorName,
    pub request: Request,
    pub intent: QueueIntent,
    /// The stored admission.
    pub admission: Option<Admission>,
    /// Determines its position in the queue.
    pub queued_at: Timestamp,
    /// At most the ceiling of its user and team.
    pub priority: Priority,
    pub preemptible: bool,
    /// The start time of a booking.
    pub not_before: Option<Timestamp>,
    /// Maximum time for which it holds its nodes if it starts now; `None` if unknown.
    pub max_hold_time: Option<Duration>,
    /// When the nodes it holds are free at the latest, if known.
    pub release_time: Option<Timestamp>,
    pub ended: bool,
}

/// Users and teams. Accounts that are missing have no limits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Accounts {
    pub users: BTreeMap<UserName, Account>,
    pub teams: BTreeMap<TeamName, Account>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    pub quota: Quota,
    /// Fair-share weight.
    pub weight: u32,
    /// Number of devices above its quota that it may borrow; `None` for all that are idle.
    pub borrowing_limit: Option<u32>,
    /// Past usage as it was stored.
    pub usage: Option<Usage>,
}

impl Account {
    /// Returns an account with weight 1 that does not borrow.
    pub fn new(quota: Quota, usage: Option<Usage>) -> Self {
        Self { quota, weight: 1, borrowing_limit: Some(0), usage }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AccountRef {
    User(UserName),
    Team(TeamName),
}

impl Snapshot<'_> {
    /// Returns the number of pending servers of a flavor.
    pub fn queue_length(&self, flavor: &FlavorName) -> usize {
        self.servers.iter().filter(|server| server.is_pending() && server.flavor == *flavor).count()
    }

    pub(super) fn in_arrival_order(&self) -> Vec<&Server> {
        let mut servers = self.servers.clone();
        servers.sort_by_key(|server| server.arrival_key());
        servers
    }
}

impl Server {
    /// Reports whether nodes are assigned to it.
    pub fn is_admitted(&self) -> bool {
        self.admission.as_ref().is_some_and(|admission| !admission.nodes.is_empty())
    }

    pub fn is_pending(&self) -> bool {
        self.intent == QueueIntent::Run && !self.ended && !self.is_admitted()
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.intent == QueueIntent::Stopped || self.ended
    }

    /// Returns its confirmed booking, if it still has the same start time and is not longer.
    pub(super) fn confirmed_booking(&self) -> Option<&Booking> {
        let booking = self.admission.as_ref()?.booking.as_ref()?;
        let from = self.not_before.filter(|from| from.as_second() == booking.from.0.as_second())?;
        let until = |hold_time| time::add(from, hold_time).as_second();
        self.max_hold_time.is_none_or(|hold_time| until(hold_time) <= booking.until.0.as_second()).then_some(booking)
    }

    /// Returns when it has to stop because it is preempted.
    pub(super) fn preempt_at(&self) -> Option<Timestamp> {
        Some(self.admission.as_ref().filter(|_| self.is_admitted())?.preempt_at.as_ref()?.0)
    }

    pub(super) fn is_preemption_due(&self, now: Timestamp) -> bool {
        self.preempt_at().is_some_and(|time| time <= now)
    }

    pub(super) fn accounts(&self) -> impl Iterator<Item = AccountRef> {
        let team = self.team.clone().map(AccountRef::Team);
        [AccountRef::User(self.owner.clone())].into_iter().chain(team)
    }

    pub(super) fn arrival_key(&self) -> ArrivalKey<'_> {
        ArrivalKey {
            queued_at: self.queued_at.as_second(),
            namespace: &self.namespace,
            name: &self.name,
            uid: &self.uid,
        }
    }
}

impl Request {
    /// Returns the request of a server of which only a pod is known.
    pub fn from_pod(nodes: u32, pod: &Pod) -> Self {
        let device = pod.requests.devices().next().map(|(name, _)| name.to_owned());
        Self { nodes, per_node: pod.requests.clone(), device, ..Self::default() }
    }
}

/// Sorts servers by arrival, like the scheduler. The order is total, so that results are reproducible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ArrivalKey<'a> {
    /// In whole seconds, as it is stored: the order must not change by storing it.
    queued_at: i64,
    namespace: &'a str,
    name: &'a str,
    uid: &'a str,
}
