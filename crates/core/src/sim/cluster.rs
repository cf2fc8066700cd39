//! The cluster as the simulation counts it, with no code of the scheduler: what each node has and gives, and for how long.

use std::collections::BTreeMap;

use crate::amounts::Amounts;

#[derive(Clone, Debug, Default)]
pub(super) struct Cluster {
    nodes: BTreeMap<String, Counted>,
    /// How often more was given than there was.
    pub overcommits: u64,
    /// Sums over time, of devices and seconds.
    pub had: i128,
    pub gave: i128,
    /// Free devices, and those of them on nodes that are partly used.
    free: i128,
    scattered: i128,
}

#[derive(Clone, Debug)]
struct Counted {
    capacity: Amounts,
    used: Amounts,
    down: bool,
    cordoned: bool,
}

impl Cluster {
    pub fn set(&mut self, name: &str, capacity: Amounts) {
        let node = Counted { capacity: capacity.clone(), used: Amounts::default(), down: false, cordoned: false };
        self.nodes.entry(name.to_owned()).or_insert(node).capacity = capacity;
    }

    pub fn has(&self, name: &str) -> bool {
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

    pub fn is_open(&self, name: &str) -> bool {
        self.nodes.get(name).is_some_and(|node| !node.down && !node.cordoned)
    }

    /// A server starts. Twice on one node, on a node that takes nobody, or more than there is, is one too many.
    pub fn start(&mut self, nodes: &[String], each: &Amounts) {
        for (at, name) in nodes.iter().enumerate() {
            let twice = nodes.iter().skip(at + 1).any(|other| other == name);
            let open = self.is_open(name);
            let Some(node) = self.nodes.get_mut(name) else {
                self.overcommits += 1;
                continue;
            };
            node.used = node.used.plus(each);
            let fits = node.capacity.holds(&node.used);
            self.overcommits += u64::from(!fits || twice || !open);
        }
    }

    pub fn end(&mut self, nodes: &[String], each: &Amounts) {
        for name in nodes {
            if let Some(node) = self.nodes.get_mut(name) {
                node.used = node.used.minus(each);
            }
        }
    }

    /// Nothing changes for so long.
    pub fn pass(&mut self, seconds: i64) {
        let (mut had, mut gave, mut free, mut scattered) = (0_i64, 0_i64, 0_i64, 0_i64);
        for node in self.nodes.values().filter(|node| !node.down) {
            let (all, used) = (devices(&node.capacity), devices(&node.used));
            had = had.saturating_add(all);
            gave = gave.saturating_add(used);
            free = free.saturating_add(all - used);
            scattered = scattered.saturating_add(if used > 0 { all - used } else { 0 });
        }
        let seconds = i128::from(seconds);
        self.had += i128::from(had) * seconds;
        self.gave += i128::from(gave) * seconds;
        self.free += i128::from(free) * seconds;
        self.scattered += i128::from(scattered) * seconds;
    }

    /// All devices of a kind.
    pub fn devices_of(&self, device: &str) -> i64 {
        self.nodes.values().map(|node| node.capacity.device(device)).fold(0, i64::saturating_add)
    }

    /// The part of the devices that was used, and the part of the free ones that lay on partly used nodes, in ten
    /// thousandths.
    pub fn shares(&self) -> (i64, i64) {
        (part(self.gave, self.had), part(self.scattered, self.free))
    }
}

/// All of them, of whatever kind.
fn devices(amounts: &Amounts) -> i64 {
    amounts.devices().map(|(_, amount)| amount).fold(0, i64::saturating_add)
}

pub(super) fn part(of: i128, all: i128) -> i64 {
    if all == 0 { 0 } else { i64::try_from(of * 10_000 / all).unwrap_or(i64::MAX) }
}
