//! Nodes and what is free on them.

use super::Facts;
use super::grant::{Grant, Pods};
use crate::amounts::Amounts;
use crate::seen::{Node, Pod};

/// All nodes by name, to be addressed by their number here.
#[derive(Clone, Debug)]
pub(crate) struct Room<'a> {
    places: Vec<Place<'a>>,
}

#[derive(Clone, Debug)]
pub(crate) struct Place<'a> {
    pub node: &'a Node,
    /// What it has in all.
    pub capacity: Amounts,
    /// What pods that are bound and grants leave.
    pub free: Amounts,
    /// What would be free if all servers left. What others use is not the queue's to wait for.
    pub ceiling: Amounts,
    /// How many pods and grants of servers there are.
    pub servers: usize,
}

impl<'a> Room<'a> {
    /// What bound pods leave.
    pub fn of(world: &Facts<'a>) -> Self {
        let mut nodes = world.nodes.clone();
        nodes.sort_by(|one, two| (&one.name, &one.uid).cmp(&(&two.name, &two.uid)));
        nodes.dedup_by(|one, two| one.name == two.name);
        let place = |node: &'a Node| {
            let capacity = world.attached.capacity(node);
            Place { node, free: capacity.clone(), ceiling: capacity.clone(), capacity, servers: 0 }
        };
        let mut room = Self { places: nodes.into_iter().map(place).collect() };
        for pod in world.pods.iter().filter(|pod| !pod.is_over()) {
            room.count(pod, &world.attached.used(pod));
        }
        room
    }

    /// What bound pods and all present grants leave.
    pub fn left(world: &Facts<'a>) -> Self {
        let (mut room, pods) = (Self::of(world), Pods::of(world));
        for grant in world.servers.iter().filter_map(|server| Grant::of(server, &pods)) {
            room.reserve(&grant);
        }
        room
    }

    pub fn find(&self, node: &str) -> Option<usize> {
        self.places.binary_search_by(|place| place.node.name.as_str().cmp(node)).ok()
    }

    pub fn get(&self, at: usize) -> Option<&Place<'a>> {
        self.places.get(at)
    }

    pub fn on(&self, node: &str) -> Option<&Place<'a>> {
        self.get(self.find(node)?)
    }

    pub fn all(&self) -> impl Iterator<Item = (usize, &Place<'a>)> {
        self.places.iter().enumerate()
    }

    /// Takes from what is free, for a server.
    pub fn take(&mut self, at: usize, amounts: &Amounts) {
        if let Some(place) = self.places.get_mut(at) {
            place.free = place.free.minus(amounts);
            place.servers = place.servers.saturating_add(1);
        }
    }

    /// Takes what a grant's pods do not use yet.
    pub fn reserve(&mut self, grant: &Grant<'_>) {
        for (node, missing) in grant.missing() {
            if let Some(at) = self.find(node) {
                self.take(at, missing);
            }
        }
    }

    fn count(&mut self, pod: &Pod, used: &Amounts) {
        let at = pod.node.as_deref().and_then(|node| self.find(node));
        let Some(place) = at.and_then(|at| self.places.get_mut(at)) else { return };
        place.free = place.free.minus(used);
        if pod.server.is_some() {
            place.servers = place.servers.saturating_add(1);
        } else if pod.deleting.is_none() {
            place.ceiling = place.ceiling.minus(used);
        }
    }
}
