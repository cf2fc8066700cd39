//! A node with the servers on it, now and in the future as far as their ends are known.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::arena::{EndOfRun, ServerIdx};
use crate::resources::Resources;
use crate::scheduler::event::{Node, NodeState};
use crate::scheduler::timeline::Timeline;

/// A time before all others, for capacity that is available immediately.
pub(crate) const IMMEDIATELY: i64 = i64::MIN;

#[derive(Clone, Debug)]
pub(crate) struct NodeInfo {
    pub node: Node,
    pub name: Arc<str>,
    servers: BTreeMap<ServerIdx, NodeUsage>,
    /// Unused now.
    pub free: Resources,
    /// Unused if all servers left the node.
    pub max_available: Resources,
    /// Ends of servers, sorted by time.
    ends: Vec<EndOfRun>,
}

/// What one server uses on a node.
#[derive(Clone, Debug)]
struct NodeUsage {
    amounts: Resources,
    end: Option<i64>,
}

impl NodeInfo {
    pub fn new(node: Node) -> Self {
        let name = node.name.as_str().into();
        let (free, max_available) = (Resources::default(), Resources::default());
        let mut info = Self { node, name, servers: BTreeMap::new(), free, max_available, ends: Vec::new() };
        info.recompute();
        info
    }

    pub fn set_node(&mut self, node: Node) {
        self.node = node;
        self.recompute();
    }

    /// Adds to what a server uses, and sets its end.
    pub fn add_server(&mut self, server: ServerIdx, amounts: &Resources, end: Option<i64>) {
        let usage = self.servers.entry(server).or_insert_with(|| NodeUsage { amounts: Resources::default(), end });
        usage.amounts = usage.amounts.saturating_add(amounts);
        usage.end = end;
        self.recompute();
    }

    pub fn remove_server(&mut self, server: ServerIdx) {
        if self.servers.remove(&server).is_some() {
            self.recompute();
        }
    }

    pub fn set_end(&mut self, server: ServerIdx, end: Option<i64>) {
        if let Some(usage) = self.servers.get_mut(&server) {
            usage.end = end;
            self.recompute();
        }
    }

    pub fn usage_of(&self, server: ServerIdx) -> Option<&Resources> {
        self.servers.get(&server).map(|usage| &usage.amounts)
    }

    /// Returns an upper bound of the free amount of a device at a time, without the servers that end by then and those for
    /// which `is_removed` is true.
    pub fn free_without(&self, device: &str, time: i64, is_removed: impl Fn(ServerIdx) -> bool) -> i64 {
        let removed = self.servers.iter();
        let removed =
            removed.filter(|(server, usage)| usage.end.is_some_and(|end| end <= time) || is_removed(**server));
        removed.fold(self.free.device(device), |sum, (_, usage)| sum.saturating_add(usage.amounts.device(device)))
    }

    pub fn has_servers(&self) -> bool {
        !self.servers.is_empty()
    }

    fn recompute(&mut self) {
        self.max_available = self.node.capacity.saturating_sub(&self.node.foreign_usage);
        self.free = self.max_available.clone();
        self.ends.clear();
        for (server, usage) in &self.servers {
            self.free.saturating_sub_assign(&usage.amounts);
            self.ends.extend(usage.end.map(|time| EndOfRun { time, server: *server }));
        }
        self.ends.sort_unstable();
    }

    /// Returns the amounts that become free, by time.
    fn releases(&self) -> impl Iterator<Item = (i64, &Resources)> {
        self.ends.iter().filter_map(|end| Some((end.time, &self.servers.get(&end.server)?.amounts)))
    }

    /// Returns the time from which on the request fits: [`IMMEDIATELY`], a later time, or `None` if unknown. Only running
    /// servers are considered, so the request fits at all later times too.
    pub fn available_from(&self, request: &Resources) -> Option<i64> {
        let schedulable_from = match self.node.state {
            NodeState::Schedulable => IMMEDIATELY,
            NodeState::UnavailableUntil(time) => time,
            NodeState::Unschedulable => return None,
        };
        if self.free.fits(request) {
            return Some(schedulable_from);
        }
        let mut free = self.free.clone();
        self.releases().find_map(|(time, amounts)| {
            free.saturating_add_assign(amounts);
            free.fits(request).then_some(time.max(schedulable_from))
        })
    }

    /// Returns the free amounts over time, as far as the ends of servers are known.
    pub fn availability(&self) -> Timeline<Resources> {
        let mut timeline = Timeline::new(self.free.clone());
        for (time, amounts) in self.releases() {
            timeline.append(time, |free| free.saturating_add(amounts));
        }
        if let NodeState::UnavailableUntil(time) = self.node.state {
            timeline.update(i64::MIN, time, Resources::set_unavailable);
        }
        timeline
    }
}
