//! Everything the scheduler knows, kept ready for the next plan. What an event changes is counted anew, and nothing else.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::event::{Account, Event, Node, Promise, Server, Service, Used};
use super::node::Place;
use super::pass::Slot;
use super::promise::Promised;
use super::purse::{Held, Purse, Purses};
use super::shape::{Shape, Shapes};
use super::stays::Record;

#[derive(Clone, Debug, Default)]
pub struct World {
    pub(super) places: Vec<Option<Place>>,
    names: BTreeMap<String, u32>,
    pub(super) entries: Vec<Option<Entry>>,
    /// Numbers of entries that are gone.
    pub(super) free: Vec<u32>,
    pub(super) ids: HashMap<String, u32>,
    pub(super) users: Purses,
    pub(super) teams: Purses,
    pub(super) shapes: Shapes,
    /// Whoever waits, roughly in the order of the last plan, which makes the next one cheap to sort. Some may be gone.
    pub(super) waiting: Vec<u32>,
    /// When servers are to be gone, to notice those that are not.
    pub(super) ends: BTreeSet<(i64, u32)>,
    /// Servers that may be asked to give way, and the same by node.
    pub(super) preemptible: BTreeSet<u32>,
    pub(super) preemptible_on: BTreeMap<u32, BTreeSet<u32>>,
    pub(super) records: BTreeMap<String, Record>,
    pub(super) promised: Promised,
}

/// A server with what is looked up often.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub server: Server,
    pub user: u32,
    pub team: Option<u32>,
    pub need: Held,
    /// Of those that wait.
    pub shape: u32,
    /// When it is expected to be gone; later than promised for one that overstays.
    pub end: Option<i64>,
}

impl World {
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes note of a change at a time. Half-lives are of the policy the world is planned with.
    pub fn apply(&mut self, event: Event, half_life: i64, now: i64) {
        match event {
            Event::Node(node) => self.set_node(node),
            Event::NodeGone(name) => self.remove_node(&name),
            Event::Server(server) => self.set_server(*server, half_life, now),
            Event::ServerGone(id) => self.remove_server(&id, half_life, now),
            Event::User(account) => self.set_user(account),
            Event::UserGone(name) => self.set_user(Account { name, ..Account::default() }),
            Event::Team(account) => self.set_team(account),
            Event::TeamGone(name) => self.set_team(Account { name, ..Account::default() }),
            Event::Promise(promise) => self.restore(&promise),
            Event::Record { flavor, record } => drop(self.records.insert(flavor, *record)),
            Event::Stay { flavor, lifetime, stayed } => {
                self.records.entry(flavor).or_default().left(lifetime, stayed);
            }
            Event::Waited { flavor, given, waited } => {
                self.records.entry(flavor).or_default().promises.learn(given, waited);
            }
        }
    }

    fn restore(&mut self, promise: &Promise) {
        let nodes: Option<Vec<u32>> = promise.nodes.iter().map(|node| self.node_named(node)).collect();
        if let (Some(server), Some(nodes)) = (self.find(&promise.id), nodes) {
            self.promised.restore(server, promise.place, Slot { start: promise.start, until: promise.until, nodes });
        }
    }

    /// All planned starts of the last plan.
    pub fn promises(&self) -> impl Iterator<Item = Promise> {
        self.promised.places().filter_map(|(server, place, slot)| {
            let nodes = slot.nodes.iter().map(|node| Some(self.place(*node)?.node.name.clone()));
            let (id, nodes) = (self.entry(server)?.server.id.clone(), nodes.collect::<Option<_>>()?);
            Some(Promise { id, place, start: slot.start, until: slot.until, nodes })
        })
    }

    fn set_user(&mut self, account: Account) {
        let at = self.users.find(&account.name);
        if let Some(purse) = self.users.get_mut(at) {
            purse.set(account);
        }
        self.promised.rules_changed();
    }

    fn set_team(&mut self, account: Account) {
        let at = self.teams.find(&account.name);
        if let Some(purse) = self.teams.get_mut(at) {
            purse.set(account);
        }
        self.promised.rules_changed();
    }

    fn set_node(&mut self, node: Node) {
        let known = self.names.get(&node.name).copied();
        let at = known.unwrap_or_else(|| {
            let free = self.places.iter().position(Option::is_none).unwrap_or(self.places.len());
            let at = u32::try_from(free).unwrap_or(u32::MAX);
            self.names.insert(node.name.clone(), at);
            if free == self.places.len() {
                self.places.push(None);
            }
            at
        });
        let Some(slot) = usize::try_from(at).ok().and_then(|at| self.places.get_mut(at)) else { return };
        if let Some(place) = slot {
            if place.node == node {
                return;
            }
            if is_less(&place.node, &node) {
                self.promised.capacity_shrank();
            }
            place.set(node);
        } else {
            let mut place = Place::new(node);
            let name = place.name.clone();
            // Servers may have been told of before their node.
            for (server, entry) in (0_u32..).zip(&self.entries) {
                let Some(entry) = entry else { continue };
                let on = entry.server.running().into_iter().flat_map(|running| &running.on);
                for (_, what) in on.filter(|(node, _)| **node == *name) {
                    place.put(server, what, entry.end);
                    if self.preemptible.contains(&server) {
                        self.preemptible_on.entry(at).or_default().insert(server);
                    }
                }
            }
            *slot = Some(place);
        }
        self.shapes.refresh(at, slot.as_ref());
    }

    fn remove_node(&mut self, name: &str) {
        let Some(at) = self.names.remove(name) else { return };
        if let Some(slot) = usize::try_from(at).ok().and_then(|at| self.places.get_mut(at)) {
            *slot = None;
        }
        self.preemptible_on.remove(&at);
        self.promised.capacity_shrank();
        self.shapes.refresh(at, None);
    }

    pub(super) fn change(&mut self, node: &str, how: impl FnOnce(&mut Place)) {
        if let Some(at) = self.names.get(node).copied() {
            self.change_at(at, how);
        }
    }

    pub(super) fn change_at(&mut self, at: u32, how: impl FnOnce(&mut Place)) {
        let slot = usize::try_from(at).ok().and_then(|at| self.places.get_mut(at));
        if let Some(place) = slot.and_then(Option::as_mut) {
            how(place);
            self.shapes.recount(at, place);
        }
    }

    pub fn get(&self, id: &str) -> Option<&Server> {
        Some(&self.entry(*self.ids.get(id)?)?.server)
    }

    pub fn servers(&self) -> impl Iterator<Item = &Server> {
        self.entries.iter().flatten().map(|entry| &entry.server)
    }

    pub fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.names.values().filter_map(|at| Some(&self.place(*at)?.node))
    }

    /// As they were told, and those whose servers were.
    pub fn users(&self) -> impl Iterator<Item = &Account> {
        self.users.all().map(|(_, purse)| &purse.account)
    }

    pub fn teams(&self) -> impl Iterator<Item = &Account> {
        self.teams.all().map(|(_, purse)| &purse.account)
    }

    /// What was last told of a user, and of a team.
    pub fn user(&self, name: &str) -> Option<&Account> {
        self.users.named(name).map(|purse| &purse.account)
    }

    pub fn team(&self, name: &str) -> Option<&Account> {
        self.teams.named(name).map(|purse| &purse.account)
    }

    pub fn record(&self, flavor: &str) -> Option<&Record> {
        self.records.get(flavor)
    }

    /// What somebody used lately, as of now.
    pub fn used_by_user(&self, name: &str, half_life: i64, now: i64) -> Option<Used> {
        self.users.named(name).map(|purse: &Purse| purse.used_at(now, half_life))
    }

    pub fn used_by_team(&self, name: &str, half_life: i64, now: i64) -> Option<Used> {
        self.teams.named(name).map(|purse| purse.used_at(now, half_life))
    }

    pub(super) fn entry(&self, at: u32) -> Option<&Entry> {
        self.entries.get(usize::try_from(at).ok()?)?.as_ref()
    }

    pub(super) fn find(&self, id: &str) -> Option<u32> {
        self.ids.get(id).copied()
    }

    pub(super) fn place(&self, at: u32) -> Option<&Place> {
        self.places.get(usize::try_from(at).ok()?)?.as_ref()
    }

    pub(super) fn node_named(&self, name: &str) -> Option<u32> {
        self.names.get(name).copied()
    }

    /// All nodes by name.
    pub(super) fn places(&self) -> impl Iterator<Item = (u32, &Place)> {
        self.names.values().filter_map(|at| Some((*at, self.place(*at)?)))
    }

    pub(super) fn shape_of(&self, entry: &Entry) -> Option<&Shape> {
        self.shapes.get(entry.shape)
    }
}

/// Whether somebody may find less on a node than before.
fn is_less(old: &Node, new: &Node) -> bool {
    let back = |node: &Node| match node.service {
        Service::Open => i64::MIN,
        Service::Back(at) => at,
        Service::Closed => i64::MAX,
    };
    !old.others.holds(&new.others)
        || !new.capacity.holds(&old.capacity)
        || back(new) > back(old)
        || (&old.labels, &old.taints) != (&new.labels, &new.taints)
}
