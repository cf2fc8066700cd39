//! The cluster of the simulation, independent of the scheduler: capacity and usage of each node, over time.

use std::collections::BTreeMap;

use crate::resources::Resources;

#[derive(Clone, Debug, Default)]
pub(super) struct Cluster {
    nodes: BTreeMap<String, SimNode>,
    /// Number of starts that exceeded the capacity of a node.
    pub overcommits: u64,
    /// Device seconds.
    capacity: i128,
    used: i128,
    free: i128,
    /// The part of `free` on partly used nodes.
    fragmented: i128,
}

#[derive(Clone, Debug)]
struct SimNode {
    capacity: Resources,
    used: Resources,
    down: bool,
    cordoned: bool,
}

impl Cluster {
    pub fn set_node(&mut self, name: &str, capacity: Resources) {
        let node = SimNode { capacity: capacity.clone(), used: Resources::default(), down: false, cordoned: false };
        self.nodes.entry(name.to_owned()).or_insert(node).capacity = capacity;
    }

    pub fn has_node(&self, name: &str) -> bool {
        self.nodes.contains_key(name)
    }

    pub fn set_down(&mut self, name: &str, down: bool) {
        if let Some(node) = self.nodes.get_mut(name) {
            node.down = down;
        }
    }

    pub fn set_cordoned(&mut self, name: &str, cordoned: bool) {
        if let Some(node) = self.nodes.get_mut(name) {
            node.cordoned = cordoned;
        }
    }

    pub fn is_schedulable(&self, name: &str) -> bool {
        self.nodes.get(name).is_some_and(|node| !node.down && !node.cordoned)
    }

    /// Starts a server. Two pods on one node, an unschedulable node, or too little capacity are overcommits.
    pub fn start(&mut self, nodes: &[String], per_node: &Resources) {
        for (position, name) in nodes.iter().enumerate() {
            let is_duplicate = nodes.iter().skip(position + 1).any(|other| other == name);
            let is_schedulable = self.is_schedulable(name);
            let Some(node) = self.nodes.get_mut(name) else {
                self.overcommits += 1;
                continue;
            };
            node.used = node.used.saturating_add(per_node);
            let fits = node.capacity.fits(&node.used);
            self.overcommits += u64::from(!fits || is_duplicate || !is_schedulable);
        }
    }

    pub fn stop(&mut self, nodes: &[String], per_node: &Resources) {
        for name in nodes {
            if let Some(node) = self.nodes.get_mut(name) {
                node.used = node.used.saturating_sub(per_node);
            }
        }
    }

    /// Adds the current usage for some seconds.
    pub fn advance(&mut self, seconds: i64) {
        let (mut capacity, mut used, mut free, mut fragmented) = (0_i64, 0_i64, 0_i64, 0_i64);
        for node in self.nodes.values().filter(|node| !node.down) {
            let (node_capacity, node_used) = (devices(&node.capacity), devices(&node.used));
            let node_free = node_capacity - node_used;
            capacity = capacity.saturating_add(node_capacity);
            used = used.saturating_add(node_used);
            free = free.saturating_add(node_free);
            fragmented = fragmented.saturating_add(if node_used > 0 { node_free } else { 0 });
        }
        let seconds = i128::from(seconds);
        self.capacity += i128::from(capacity) * seconds;
        self.used += i128::from(used) * seconds;
        self.free += i128::from(free) * seconds;
        self.fragmented += i128::from(fragmented) * seconds;
    }

    /// Returns the number of devices of one kind.
    pub fn device_count(&self, device: &str) -> i64 {
        self.nodes.values().map(|node| node.capacity.device(device)).fold(0, i64::saturating_add)
    }

    /// Returns the used part of all device seconds, in ten-thousandths.
    pub fn utilization(&self) -> i64 {
        ten_thousandths(self.used, self.capacity)
    }

    /// Returns the part of free device seconds on partly used nodes, in ten-thousandths.
    pub fn fragmentation(&self) -> i64 {
        ten_thousandths(self.fragmented, self.free)
    }
}

/// Returns the number of devices of all kinds.
fn devices(amounts: &Resources) -> i64 {
    amounts.devices().map(|(_, amount)| amount).fold(0, i64::saturating_add)
}

pub(super) fn ten_thousandths(part: i128, total: i128) -> i64 {
    if total == 0 { 0 } else { i64::try_from(part * 10_000 / total).unwrap_or(i64::MAX) }
}
