//! A node with what is on it, now and as far as the ends of servers are known.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::event::{Node, Service};
use super::steps::Steps;
use crate::amounts::Amounts;

/// A time before all others: now.
pub(super) const NOW: i64 = i64::MIN;

#[derive(Clone, Debug)]
pub(super) struct Place {
    pub node: Node,
    pub name: Arc<str>,
    /// What is taken, by server.
    runs: BTreeMap<u32, (Amounts, Option<i64>)>,
    /// What nobody takes now.
    pub free: Amounts,
    /// What would be free if all servers left.
    pub ceiling: Amounts,
    /// When servers leave, in order.
    releases: Vec<(i64, u32)>,
}

impl Place {
    pub fn new(node: Node) -> Self {
        let name = node.name.as_str().into();
        let (free, ceiling) = (Amounts::default(), Amounts::default());
        let mut place = Self { node, name, runs: BTreeMap::new(), free, ceiling, releases: Vec::new() };
        place.recount();
        place
    }

    pub fn set(&mut self, node: Node) {
        self.node = node;
        self.recount();
    }

    pub fn put(&mut self, server: u32, what: &Amounts, end: Option<i64>) {
        let (sum, until) = self.runs.entry(server).or_insert_with(|| (Amounts::default(), end));
        *sum = sum.plus(what);
        *until = end;
        self.recount();
    }

    pub fn remove(&mut self, server: u32) {
        if self.runs.remove(&server).is_some() {
            self.recount();
        }
    }

    /// The same server, until another time.
    pub fn end(&mut self, server: u32, end: Option<i64>) {
        if let Some((_, until)) = self.runs.get_mut(&server) {
            *until = end;
            self.recount();
        }
    }

    /// What a server takes.
    pub fn taken_by(&self, server: u32) -> Option<&Amounts> {
        self.runs.get(&server).map(|(what, _)| what)
    }

    /// How much of a device would be free at a time at most, if some left: those and all who end by then.
    pub fn free_without(&self, device: &str, at: i64, leaves: impl Fn(u32) -> bool) -> i64 {
        let left = self.runs.iter().filter(|(server, (_, end))| end.is_some_and(|end| end <= at) || leaves(**server));
        left.fold(self.free.device(device), |sum, (_, (what, _))| sum.saturating_add(what.device(device)))
    }

    pub fn has_servers(&self) -> bool {
        !self.runs.is_empty()
    }

    fn recount(&mut self) {
        self.ceiling = self.node.capacity.minus(&self.node.others);
        self.free = self.ceiling.clone();
        self.releases.clear();
        for (server, (what, end)) in &self.runs {
            self.free.take(what);
            self.releases.extend(end.map(|end| (end, *server)));
        }
        self.releases.sort_unstable();
    }

    /// What is given back when.
    fn released(&self) -> impl Iterator<Item = (i64, &Amounts)> {
        self.releases.iter().filter_map(|(at, server)| Some((*at, &self.runs.get(server)?.0)))
    }

    /// From when on it has room: `NOW`, a time, or nothing if that is not known. Nothing but servers that are there is
    /// counted, so once there is room it stays.
    pub fn room_from(&self, each: &Amounts) -> Option<i64> {
        let back = match self.node.service {
            Service::Open => NOW,
            Service::Back(at) => at,
            Service::Closed => return None,
        };
        if self.free.holds(each) {
            return Some(back);
        }
        let mut free = self.free.clone();
        self.released().find_map(|(at, what)| {
            free.add(what);
            free.holds(each).then_some(at.max(back))
        })
    }

    /// What is free from now on, as far as the ends of servers are known.
    pub fn outlook(&self) -> Steps<Amounts> {
        let mut steps = Steps::new(self.free.clone());
        for (at, what) in self.released() {
            steps.then(at, |free| free.plus(what));
        }
        if let Service::Back(at) = self.node.service {
            // Until then nothing of it can be used.
            steps.change(i64::MIN, at, |free| {
                free.take(&self.node.capacity);
                free.take(&self.node.capacity);
            });
        }
        steps
    }
}
