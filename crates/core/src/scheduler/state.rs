//! The cluster state: everything the scheduler knows, indexed for the next cycle and updated incrementally by events.

pub(crate) mod accounts;
pub(crate) mod arena;
pub(crate) mod node;
pub(crate) mod request_class;
mod servers;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::cycle::quota::AccountId;
use super::cycle::reservation::Reservation;
use super::eta::history::FlavorHistory;
use super::event::{AccountSpec, DecayedUsage, Event, Node, NodeState, ReservationSpec, Server};
use super::reservation_history::ReservationHistory;
use accounts::{Account, AccountKind, Accounts, ResourceUsage};
use arena::{AccountIdx, Arena, ClassIdx, EndOfRun, NodeIdx, ServerIdx};
use node::NodeInfo;
use request_class::{RequestClass, RequestClasses};

#[derive(Clone, Debug, Default)]
pub struct ClusterState {
    nodes: Arena<NodeIdx, NodeInfo>,
    nodes_by_name: BTreeMap<String, NodeIdx>,
    entries: Arena<ServerIdx, Entry>,
    entries_by_id: HashMap<String, ServerIdx>,
    pub(super) users: Accounts,
    pub(super) teams: Accounts,
    classes: RequestClasses,
    /// Pending servers, roughly in the order of the last cycle, which makes the next one cheap to sort. May contain deleted
    /// and duplicate entries.
    pub(super) pending: Vec<ServerIdx>,
    /// Expected ends of running servers, to find those that are overdue.
    expected_ends: BTreeSet<EndOfRun>,
    /// Running servers that can be preempted.
    pub(super) preemptible: BTreeSet<ServerIdx>,
    pub(super) preemptible_by_node: BTreeMap<NodeIdx, BTreeSet<ServerIdx>>,
    histories: BTreeMap<String, FlavorHistory>,
    pub(super) reservations: ReservationHistory,
}

/// A server with derived values.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub server: Server,
    pub user: AccountIdx,
    pub team: Option<AccountIdx>,
    /// What it uses of quotas while it runs.
    pub usage: ResourceUsage,
    /// Set for pending servers.
    pub class: Option<ClassIdx>,
    /// The expected end of a running server; later than `server.running().end` if it is overdue.
    pub expected_end: Option<i64>,
}

impl ClusterState {
    pub fn new() -> Self {
        Self::default()
    }

    /// Applies a change that happened at `now`. `usage_half_life` must be that of the policy used for planning.
    pub fn apply(&mut self, event: Event, usage_half_life: i64, now: i64) {
        let unlimited = |name| AccountSpec { name, ..AccountSpec::default() };
        match event {
            Event::Node(node) => self.set_node(node),
            Event::NodeDeleted(name) => self.remove_node(&name),
            Event::Server(server) => self.set_server(*server, usage_half_life, now),
            Event::ServerDeleted(id) => self.remove_server(&id, usage_half_life, now),
            Event::User(spec) => self.set_account(AccountKind::User, spec),
            Event::UserDeleted(name) => self.set_account(AccountKind::User, unlimited(name)),
            Event::Team(spec) => self.set_account(AccountKind::Team, spec),
            Event::TeamDeleted(name) => self.set_account(AccountKind::Team, unlimited(name)),
            Event::Reservation(reservation) => self.restore_reservation(&reservation),
            Event::History { flavor, history } => drop(self.histories.insert(flavor, *history)),
            Event::RunCompleted { flavor, lifetime, runtime } => {
                self.histories.entry(flavor).or_default().observe_run(lifetime, runtime);
            }
            Event::WaitCompleted { flavor, estimate, wait } => {
                self.histories.entry(flavor).or_default().eta_calibration.observe_wait(estimate, wait);
            }
        }
    }

    fn restore_reservation(&mut self, spec: &ReservationSpec) {
        let nodes: Option<Vec<NodeIdx>> = spec.nodes.iter().map(|node| self.find_node(node)).collect();
        if let (Some(server), Some(nodes)) = (self.find_server(&spec.server), nodes) {
            let reservation = Reservation { start: spec.start, end: spec.end, nodes };
            self.reservations.restore(server, spec.queue_index, reservation);
        }
    }

    /// Returns the reservations of the last plan.
    pub fn reservations(&self) -> impl Iterator<Item = ReservationSpec> {
        self.reservations.iter().filter_map(|(server, queue_index, reservation)| {
            let nodes = reservation.nodes.iter().map(|node| Some(self.node(*node)?.node.name.clone()));
            let (server, nodes) = (self.entry(server)?.server.id.clone(), nodes.collect::<Option<_>>()?);
            Some(ReservationSpec { server, queue_index, start: reservation.start, end: reservation.end, nodes })
        })
    }

    fn set_account(&mut self, kind: AccountKind, spec: AccountSpec) {
        let accounts = match kind {
            AccountKind::User => &mut self.users,
            AccountKind::Team => &mut self.teams,
        };
        accounts.set_spec(spec);
        self.reservations.mark_quota_changed();
    }

    fn set_node(&mut self, node: Node) {
        let index = self.find_node(&node.name).unwrap_or_else(|| {
            let index = self.nodes.allocate();
            self.nodes_by_name.insert(node.name.clone(), index);
            index
        });
        if let Some(info) = self.nodes.get_mut(index) {
            if info.node == node {
                return;
            }
            if is_reduced(&info.node, &node) {
                self.reservations.mark_capacity_reduced();
            }
            info.set_node(node);
        } else {
            let mut info = NodeInfo::new(node);
            let name = info.name.clone();
            // Servers can be added before their node.
            for (server, entry) in self.entries.iter() {
                let nodes = entry.server.running().into_iter().flat_map(|running| &running.nodes);
                for (_, amounts) in nodes.filter(|(node, _)| **node == *name) {
                    info.add_server(server, amounts, entry.expected_end);
                    if self.preemptible.contains(&server) {
                        self.preemptible_by_node.entry(index).or_default().insert(server);
                    }
                }
            }
            self.nodes.insert(index, info);
        }
        self.classes.refresh_node(index, self.nodes.get(index));
    }

    fn remove_node(&mut self, name: &str) {
        let Some(index) = self.nodes_by_name.remove(name) else { return };
        self.nodes.release(index);
        self.preemptible_by_node.remove(&index);
        self.reservations.mark_capacity_reduced();
        self.classes.refresh_node(index, None);
    }

    fn update_node_by_name(&mut self, name: &str, update: impl FnOnce(&mut NodeInfo)) {
        if let Some(node) = self.find_node(name) {
            self.update_node(node, update);
        }
    }

    /// Changes the usage of a node and updates the request classes.
    pub(super) fn update_node(&mut self, node: NodeIdx, update: impl FnOnce(&mut NodeInfo)) {
        if let Some(info) = self.nodes.get_mut(node) {
            update(info);
            self.classes.update_availability(node, info);
        }
    }

    pub fn server(&self, id: &str) -> Option<&Server> {
        Some(&self.entry(self.find_server(id)?)?.server)
    }

    pub fn servers(&self) -> impl Iterator<Item = &Server> {
        self.entries.iter().map(|(_, entry)| &entry.server)
    }

    /// Returns all nodes by name.
    pub fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.node_infos().map(|(_, info)| &info.node)
    }

    /// Returns all users that were set or own a server.
    pub fn users(&self) -> impl Iterator<Item = &AccountSpec> {
        self.users.iter().map(|(_, account)| &account.spec)
    }

    /// Returns all teams that were set or own a server.
    pub fn teams(&self) -> impl Iterator<Item = &AccountSpec> {
        self.teams.iter().map(|(_, account)| &account.spec)
    }

    pub fn user(&self, name: &str) -> Option<&AccountSpec> {
        self.users.by_name(name).map(|account| &account.spec)
    }

    pub fn team(&self, name: &str) -> Option<&AccountSpec> {
        self.teams.by_name(name).map(|account| &account.spec)
    }

    pub fn history(&self, flavor: &str) -> Option<&FlavorHistory> {
        self.histories.get(flavor)
    }

    pub fn user_usage(&self, name: &str, usage_half_life: i64, now: i64) -> Option<DecayedUsage> {
        self.users.by_name(name).map(|account| account.usage_at(now, usage_half_life))
    }

    pub fn team_usage(&self, name: &str, usage_half_life: i64, now: i64) -> Option<DecayedUsage> {
        self.teams.by_name(name).map(|account| account.usage_at(now, usage_half_life))
    }

    /// Returns all users, then all teams.
    pub(super) fn accounts(&self) -> impl Iterator<Item = (AccountId, &Account)> {
        let users = self.users.iter().map(|(user, account)| (AccountId::User(user), account));
        users.chain(self.teams.iter().map(|(team, account)| (AccountId::Team(team), account)))
    }

    pub(super) fn account(&self, id: AccountId) -> Option<&Account> {
        match id {
            AccountId::User(user) => self.users.get(user),
            AccountId::Team(team) => self.teams.get(team),
        }
    }

    pub(super) fn entry(&self, server: ServerIdx) -> Option<&Entry> {
        self.entries.get(server)
    }

    pub(super) fn find_server(&self, id: &str) -> Option<ServerIdx> {
        self.entries_by_id.get(id).copied()
    }

    pub(super) fn find_entry(&self, id: &str) -> Option<&Entry> {
        self.entry(self.find_server(id)?)
    }

    pub(super) fn node(&self, node: NodeIdx) -> Option<&NodeInfo> {
        self.nodes.get(node)
    }

    pub(super) fn find_node(&self, name: &str) -> Option<NodeIdx> {
        self.nodes_by_name.get(name).copied()
    }

    /// Returns all nodes by name.
    pub(super) fn node_infos(&self) -> impl Iterator<Item = (NodeIdx, &NodeInfo)> {
        self.nodes_by_name.values().filter_map(|node| Some((*node, self.node(*node)?)))
    }

    /// Reports whether a node rejected the pods of a server.
    pub(super) fn is_rejected_by(&self, entry: &Entry, node: NodeIdx) -> bool {
        !entry.server.rejected_by.is_empty()
            && self.node(node).is_some_and(|info| entry.server.rejected_by.contains_key(&*info.name))
    }

    pub(super) fn request_class(&self, entry: &Entry) -> Option<&RequestClass> {
        self.classes.get(entry.class?)
    }
}

/// Reports whether a server may find less capacity on a node than before.
fn is_reduced(old: &Node, new: &Node) -> bool {
    let available_from = |node: &Node| match node.state {
        NodeState::Schedulable => i64::MIN,
        NodeState::UnavailableUntil(time) => time,
        NodeState::Unschedulable => i64::MAX,
    };
    !old.foreign_usage.fits(&new.foreign_usage)
        || !new.capacity.fits(&old.capacity)
        || available_from(new) > available_from(old)
        || (&old.labels, &old.taints) != (&new.labels, &new.taints)
}
