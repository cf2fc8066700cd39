//! The facts the scheduler decides from.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use odc_api::name::{FlavorName, TeamName, UserName};
use odc_api::v1alpha1::{Admission, Booking, DevServerFlavor, Priority, Quota, Usage};

use super::attach::Attached;
use super::{Refusals, Request};
use crate::seen::{Node, Pod, Runtime};

/// Everything that counts, in any order. Nothing else is asked while deciding.
#[derive(Clone, Debug, Default)]
pub struct Facts<'a> {
    pub nodes: Vec<&'a Node>,
    /// Of everybody: whoever they belong to, bound pods use their node.
    pub pods: Vec<&'a Pod>,
    /// Volumes of these pods, and how many nodes can attach.
    pub attached: Arc<Attached>,
    /// The runtime classes there are.
    pub runtimes: Vec<&'a Runtime>,
    pub servers: Vec<&'a Server>,
    pub accounts: Accounts,
    pub unfit: Refusals,
    /// Servers by their uid about which nothing can be stored at the moment: nothing is planned for them.
    pub aside: BTreeSet<String>,
    /// For what is recorded of them.
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
    pub want: Want,
    /// What is stored of the last decision.
    pub admission: Option<Admission>,
    /// Its place in the queue counts from here.
    pub since: Timestamp,
    /// At most the ceiling of its user and team.
    pub priority: Priority,
    pub preemptible: bool,
    /// The time it is booked for.
    pub not_before: Option<Timestamp>,
    /// How long it will hold its nodes from now on, at most, if it starts now; nothing if nobody knows.
    pub lifetime: Option<Duration>,
    /// When the nodes it holds are free at the latest, if that is known.
    pub ends: Option<Timestamp>,
    pub ended: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    Run,
    /// To run, but not now: it is booked, or something it needs is not ready. It does not compete.
    Later,
    /// Not to run. What it was granted is given back when its last pod is gone.
    Rest,
}

/// Those who hold servers. Whoever is not here has no limits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Accounts {
    pub users: BTreeMap<UserName, Account>,
    pub teams: BTreeMap<TeamName, Account>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    pub quota: Quota,
    /// Its part of the cluster relative to the others.
    pub weight: u32,
    /// How many devices above its quota it may borrow; nothing for as many as are idle.
    pub borrow: Option<u32>,
    /// What it used lately, as it was stored.
    pub usage: Option<Usage>,
}

impl Account {
    /// One like any other, that never borrows.
    pub fn of(quota: Quota, usage: Option<Usage>) -> Self {
        Self { quota, weight: 1, borrow: Some(0), usage }
    }
}

/// A user or a team.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Holder {
    User(UserName),
    Team(TeamName),
}

impl Facts<'_> {
    /// How many servers wait for a flavor.
    pub fn queue_length(&self, flavor: &FlavorName) -> usize {
        self.servers.iter().filter(|server| server.waits() && server.flavor == *flavor).count()
    }

    /// All servers, first come first.
    pub(super) fn in_order(&self) -> Vec<&Server> {
        let mut all = self.servers.clone();
        all.sort_by_key(|server| server.turn());
        all
    }
}

impl Server {
    pub fn is_granted(&self) -> bool {
        self.admission.as_ref().is_some_and(|admission| !admission.nodes.is_empty())
    }

    /// Whether it competes for a grant.
    pub fn waits(&self) -> bool {
        self.want == Want::Run && !self.ended && !self.is_granted()
    }

    pub(super) fn rests(&self) -> bool {
        self.want == Want::Rest || self.ended
    }

    /// The time it was promised, as long as it asks for that time and for no longer.
    pub(super) fn booking(&self) -> Option<&Booking> {
        let booking = self.admission.as_ref()?.booking.as_ref()?;
        let from = self.not_before.filter(|from| from.as_second() == booking.from.0.as_second())?;
        let until = |lifetime| from.saturating_add(lifetime).unwrap_or(Timestamp::MAX).as_second();
        self.lifetime.is_none_or(|lifetime| until(lifetime) <= booking.until.0.as_second()).then_some(booking)
    }

    /// When it has to begin to stop for somebody with a better right.
    pub(super) fn gives_way_at(&self) -> Option<Timestamp> {
        Some(self.admission.as_ref().filter(|_| self.is_granted())?.gives_way_at.as_ref()?.0)
    }

    /// Whether that time has come.
    pub(super) fn gives_way(&self, now: Timestamp) -> bool {
        self.gives_way_at().is_some_and(|at| at <= now)
    }

    pub(super) fn holders(&self) -> impl Iterator<Item = Holder> {
        let team = self.team.clone().map(Holder::Team);
        [Holder::User(self.owner.clone())].into_iter().chain(team)
    }

    pub(super) fn turn(&self) -> Turn<'_> {
        Turn { since: self.since.as_second(), namespace: &self.namespace, name: &self.name, uid: &self.uid }
    }
}

impl Request {
    /// What a server holds of which nothing is known but a pod.
    pub fn held(nodes: u32, pod: &Pod) -> Self {
        let device = pod.requests.devices().next().map(|(name, _)| name.to_owned());
        Self { nodes, each: pod.requests.clone(), device, ..Self::default() }
    }
}

/// A place in the order of arrival. Total, so that results repeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Turn<'a> {
    /// In whole seconds: times are stored like that, and the order must not change by being stored.
    since: i64,
    namespace: &'a str,
    name: &'a str,
    uid: &'a str,
}
