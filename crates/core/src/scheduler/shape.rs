//! Requests that see the same nodes. There are few kinds of request and many servers and nodes, so the nodes are sorted
//! once for each kind, and only those that changed are sorted anew: what a plan costs does not grow with the cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::event::{Ask, Service};
use super::fit::{alike, is_open};
use super::node::{NOW, Place};
use crate::amounts::Amounts;

/// How many kinds are kept up to date though nobody waits for them now.
const KEPT: usize = 32;

#[derive(Clone, Debug, Default)]
pub(super) struct Shapes {
    kinds: Vec<Option<Shape>>,
    /// What tells requests apart most often, to compare few of them in full.
    known: BTreeMap<Key, Vec<u32>>,
    /// Kinds nobody waits for, the longest forgotten first.
    idle: Vec<u32>,
}

type Key = (u32, Option<String>, i64, i64, BTreeMap<String, String>);

#[derive(Clone, Debug)]
pub(super) struct Shape {
    pub ask: Arc<Ask>,
    /// How many servers of it wait.
    waiting: usize,
    /// Nodes whose time is known, by the value of the topology label; all in one where there is none to agree on.
    pub groups: BTreeMap<Arc<str>, Group>,
    spots: Vec<Option<Spot>>,
    /// How many of it there could be at once on the nodes it is worth waiting for, each on one node.
    fits: i64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Group {
    /// Those with room now first, and of these the best first; then by the time from when on they have room.
    pub nodes: BTreeSet<Turn>,
    /// How many have room now.
    pub now: usize,
    /// How many it is worth waiting for.
    pub hope: usize,
    /// How many could hold the request if they were empty and well.
    pub could: usize,
}

/// A node's place among those of a kind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Turn {
    pub from: i64,
    rank: Rank,
    pub name: Arc<str>,
    pub node: u32,
}

/// How good a node is for a request; the smallest is the best.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    /// It has devices that the request does not ask for. They would lie idle for want of the CPU.
    pub wasteful: bool,
    /// Nothing of it is used. Whole nodes are kept for those who need whole ones.
    pub whole: bool,
    /// Fuller nodes first, by the device and then by CPU.
    device: i64,
    cpu: i64,
}

/// What a node is to a kind. Only nodes that are alike have one.
#[derive(Clone, Debug)]
pub(super) struct Spot {
    /// It could hold the request if it were empty and well.
    pub could: bool,
    /// It could hold the request if only servers left. Waiting for it makes sense. A node out of service has no known
    /// end of that, and other people's pods are not the queue's to end: keeping the rest empty for them would only
    /// waste it.
    pub hope: bool,
    /// It takes pods now, though perhaps not so large ones.
    pub open: bool,
    /// Nothing where the gang must agree on a label that the node does not have.
    pub group: Option<Arc<str>>,
    /// How many of the request it could hold at once.
    fits: i64,
    turn: Option<Turn>,
}

impl Shapes {
    /// The number of a request's kind, which one more server waits for.
    pub fn join(&mut self, ask: &Ask, places: &[Option<Place>]) -> u32 {
        let Ask { nodes, each, device, selector, .. } = ask;
        let alike = self.known.entry((*nodes, device.clone(), each.cpu, each.memory, selector.clone())).or_default();
        let known = alike.iter().copied().find(|at| {
            let shape = usize::try_from(*at).ok().and_then(|at| self.kinds.get(at)).and_then(Option::as_ref);
            shape.is_some_and(|shape| *shape.ask == *ask)
        });
        if let Some(at) = known {
            self.idle.retain(|idle| *idle != at);
            if let Some(shape) = self.get_mut(at) {
                shape.waiting += 1;
            }
            return at;
        }
        let (groups, spots) = (BTreeMap::new(), Vec::new());
        let mut shape = Shape { ask: Arc::new(ask.clone()), waiting: 1, groups, spots, fits: 0 };
        for (at, place) in (0_u32..).zip(places) {
            shape.refresh(at, place.as_ref());
        }
        let free = self.kinds.iter().position(Option::is_none).unwrap_or(self.kinds.len());
        let at = u32::try_from(free).unwrap_or(u32::MAX);
        alike.push(at);
        if free == self.kinds.len() {
            self.kinds.push(Some(shape));
        } else {
            self.kinds[free] = Some(shape);
        }
        at
    }

    /// One server fewer waits for it.
    pub fn leave(&mut self, at: u32) {
        let Some(shape) = self.get_mut(at) else { return };
        shape.waiting = shape.waiting.saturating_sub(1);
        if shape.waiting > 0 {
            return;
        }
        self.idle.push(at);
        if self.idle.len() > KEPT {
            let forgotten = self.idle.remove(0);
            let slot = usize::try_from(forgotten).ok().and_then(|at| self.kinds.get_mut(at));
            if let Some(shape) = slot.and_then(Option::take) {
                let Ask { nodes, each, device, selector, .. } = &*shape.ask;
                let key = (*nodes, device.clone(), each.cpu, each.memory, selector.clone());
                if let Some(alike) = self.known.get_mut(&key) {
                    alike.retain(|known| *known != forgotten);
                    if alike.is_empty() {
                        self.known.remove(&key);
                    }
                }
            }
        }
    }

    pub fn get(&self, at: u32) -> Option<&Shape> {
        self.kinds.get(usize::try_from(at).ok()?)?.as_ref()
    }

    fn get_mut(&mut self, at: u32) -> Option<&mut Shape> {
        self.kinds.get_mut(usize::try_from(at).ok()?)?.as_mut()
    }

    pub fn len(&self) -> usize {
        self.kinds.len()
    }

    /// A node is another one than before: in itself.
    pub fn refresh(&mut self, node: u32, place: Option<&Place>) {
        self.kinds.iter_mut().flatten().for_each(|shape| shape.refresh(node, place));
    }

    /// Something else is free on a node.
    pub fn recount(&mut self, node: u32, place: &Place) {
        self.kinds.iter_mut().flatten().for_each(|shape| shape.recount(node, place));
    }
}

impl Shape {
    pub fn spot(&self, node: u32) -> Option<&Spot> {
        self.spots.get(usize::try_from(node).ok()?)?.as_ref()
    }

    /// All nodes that are alike.
    pub fn spots(&self) -> impl Iterator<Item = (u32, &Spot)> {
        (0_u32..).zip(&self.spots).filter_map(|(at, spot)| Some((at, spot.as_ref()?)))
    }

    /// How much servers like this could hold at once, in thousandths of a device as shares count them.
    pub fn capacity(&self) -> i128 {
        let nodes = i128::try_from(self.ask.nodes()).unwrap_or(i128::MAX);
        i128::from(self.ask.cost()) * i128::from(self.fits) / nodes
    }

    fn refresh(&mut self, node: u32, place: Option<&Place>) {
        let Ok(at) = usize::try_from(node) else { return };
        if at >= self.spots.len() {
            self.spots.resize(at + 1, None);
        }
        let old = self.spots[at].take();
        self.fits = self.fits.saturating_sub(old.as_ref().map_or(0, |old| old.fits));
        if let Some(old) = old
            && let Some(group) = old.group.as_ref()
            && let Some(known) = self.groups.get_mut(group)
        {
            known.hope -= usize::from(old.hope);
            known.could -= usize::from(old.could);
            if let Some(turn) = &old.turn {
                known.remove(turn);
            }
            if known.could == 0 {
                self.groups.remove(group);
            }
        }
        let Some(place) = place.filter(|place| alike(&self.ask, &place.node)) else { return };
        let could = place.node.capacity.holds(&self.ask.each);
        let hope = could && place.node.service != Service::Closed && place.ceiling.holds(&self.ask.each);
        let open = is_open(&place.node, &self.ask.tolerations);
        let group = match self.ask.shared_label() {
            None => Some("".into()),
            Some(label) => place.node.labels.get(label).map(|value| value.as_str().into()),
        };
        if let Some(group) = group.clone().filter(|_| could) {
            let group = self.groups.entry(group).or_default();
            group.could += 1;
            group.hope += usize::from(hope);
        }
        let fits = if hope { times(&place.ceiling, &self.ask.each) } else { 0 };
        self.fits = self.fits.saturating_add(fits);
        self.spots[at] = Some(Spot { could, hope, open, group, fits, turn: None });
        self.recount(node, place);
    }

    fn recount(&mut self, node: u32, place: &Place) {
        let spot = usize::try_from(node).ok().and_then(|at| self.spots.get_mut(at)).and_then(Option::as_mut);
        let Some(spot) = spot.filter(|spot| spot.hope) else { return };
        let Some(group) = spot.group.as_ref().and_then(|group| self.groups.get_mut(group)) else { return };
        let expected = spot.open || matches!(place.node.service, Service::Back(_));
        let from = place.room_from(&self.ask.each).filter(|_| expected);
        let rank = if from == Some(NOW) { Rank::of(&self.ask, place) } else { Rank::default() };
        if spot.turn.as_ref().map(|turn| (turn.from, turn.rank)) == from.map(|from| (from, rank)) {
            return;
        }
        if let Some(turn) = spot.turn.take() {
            group.remove(&turn);
        }
        spot.turn = from.map(|from| Turn { from, rank, name: place.name.clone(), node });
        if let Some(turn) = &spot.turn {
            group.now += usize::from(turn.from == NOW);
            group.nodes.insert(turn.clone());
        }
    }
}

impl Spot {
    /// From when on it has room, if that is known.
    pub fn from(&self) -> Option<i64> {
        self.turn.as_ref().map(|turn| turn.from)
    }
}

impl Group {
    fn remove(&mut self, turn: &Turn) {
        if self.nodes.remove(turn) {
            self.now -= usize::from(turn.from == NOW);
        }
    }
}

impl Rank {
    pub fn of(ask: &Ask, place: &Place) -> Self {
        let device = ask.device.as_deref().filter(|device| ask.each.device(device) > 0);
        let free = device.map_or(0, |device| place.free.device(device));
        Self {
            wasteful: device.is_none() && place.node.capacity.devices().next().is_some(),
            whole: match device {
                Some(device) => free >= place.node.capacity.device(device),
                None => !place.has_servers(),
            },
            device: free,
            cpu: place.free.cpu,
        }
    }
}

/// How often something is there. What asks for nothing is there as often as one likes, which is of no use.
fn times(have: &Amounts, each: &Amounts) -> i64 {
    let plain =
        [(have.cpu, each.cpu), (have.memory, each.memory), (have.storage, each.storage), (have.pods, each.pods)];
    let devices = each.devices().chain(each.volumes()).map(|(name, amount)| (have.device(name), amount));
    let all = plain.into_iter().chain(devices).filter(|(_, need)| *need > 0);
    all.map(|(have, need)| have.max(0) / need).min().unwrap_or_default()
}
