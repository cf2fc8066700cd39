//! A node with what is on it, now and as far as the ends of servers are known.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::event::{Node, Service};
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
    /// When more is free, in order.
    releases: Vec<(i64, Amounts)>,
}

/// Room that is kept from one time to another.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    pub from: i64,
    pub until: i64,
    pub what: Amounts,
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

    pub fn servers(&self) -> impl Iterator<Item = (u32, &Amounts)> {
        self.runs.iter().map(|(server, (what, _))| (*server, what))
    }

    pub fn has_servers(&self) -> bool {
        !self.runs.is_empty()
    }

    fn recount(&mut self) {
        self.ceiling = self.node.capacity.minus(&self.node.others);
        self.free = self.runs.values().fold(self.ceiling.clone(), |free, (what, _)| free.minus(what));
        let known = self.runs.values().filter_map(|(what, end)| Some((end.as_ref().copied()?, what.clone())));
        self.releases = known.collect();
        self.releases.sort_by_key(|(end, _)| *end);
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
        self.releases.iter().find_map(|(at, what)| {
            free = free.plus(what);
            free.holds(each).then_some((*at).max(back))
        })
    }

    /// The first time from `from` on at which it has room for so long, beside what is kept.
    pub fn gap(&self, each: &Amounts, from: i64, span: i64, kept: &[Kept]) -> Option<i64> {
        let first = self.room_from(each)?.max(from);
        let ends = kept.iter().map(|kept| kept.until).filter(|at| *at > first && *at < i64::MAX);
        let mut times: Vec<i64> = ends.chain([first]).collect();
        let more = self.releases.iter().map(|(at, _)| *at).filter(|at| *at > first);
        times.extend(more);
        times.sort_unstable();
        times.dedup();
        times.into_iter().find(|at| self.is_free(each, *at, span, kept))
    }

    /// Whether there is room from a time on for so long.
    pub fn is_free(&self, each: &Amounts, from: i64, span: i64, kept: &[Kept]) -> bool {
        let until = from.saturating_add(span);
        let begin = kept.iter().map(|kept| kept.from).filter(|at| *at > from && *at < until);
        begin.chain([from]).all(|at| self.free_at(at, kept).holds(each))
    }

    /// What is free at a time beside all that is kept from then on.
    pub fn free_by(&self, at: i64, kept: &[Kept]) -> Amounts {
        let later = kept.iter().filter(|kept| kept.until > at);
        later.fold(self.free_at(at, &[]), |free, kept| free.minus(&kept.what))
    }

    fn free_at(&self, at: i64, kept: &[Kept]) -> Amounts {
        let back = self.releases.iter().take_while(|(end, _)| *end <= at);
        let free = back.fold(self.free.clone(), |free, (_, what)| free.plus(what));
        let taken = kept.iter().filter(|kept| kept.from <= at && at < kept.until);
        taken.fold(free, |free, kept| free.minus(&kept.what))
    }
}
