//! The facts the scheduler decides from.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use odc_api::name::{FlavorName, TeamName, UserName};
use odc_api::v1alpha1::{Admission, Priority, Quota};

use super::{Refusals, Request};
use crate::seen::{Node, Pod};

/// Everything that counts, in any order. Nothing else is asked while deciding.
#[derive(Clone, Debug, Default)]
pub struct Facts<'a> {
    pub nodes: Vec<&'a Node>,
    /// Of everybody: whoever they belong to, bound pods use their node.
    pub pods: Vec<&'a Pod>,
    pub servers: Vec<Server>,
    pub quotas: Quotas,
    pub unfit: Refusals,
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
    /// At most the ceiling of its team.
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

/// Limits by who holds them. Whoever is not here has none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Quotas {
    pub users: BTreeMap<UserName, Quota>,
    pub teams: BTreeMap<TeamName, Quota>,
}

impl Facts<'_> {
    /// How many servers wait for a flavor.
    pub fn queue_length(&self, flavor: &FlavorName) -> usize {
        self.servers.iter().filter(|server| server.waits() && server.flavor == *flavor).count()
    }

    /// All servers, first come first.
    pub(super) fn in_order(&self) -> Vec<&Server> {
        let mut all: Vec<_> = self.servers.iter().collect();
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

    pub(super) fn turn(&self) -> Turn<'_> {
        Turn { since: self.since.as_second(), namespace: &self.namespace, name: &self.name, uid: &self.uid }
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
