//! Changes of a cluster as values: random ones for long walks, and ones that proptest can shrink.

use odc_api::v1alpha1::Priority;
use odc_core::resources::Resources;
use odc_core::scheduler::{AccountSpec, Limits, Node, NodeState, Policy, Server, ServerState};
use odc_core::sim::Rng;
use proptest::prelude::*;

use super::harness::{GPU, Harness, ZONE, node, server};

#[derive(Clone, Debug)]
pub enum Change {
    Create(NewServer),
    Delete(usize),
    Extend(usize),
    /// Sets the priority to high.
    RaisePriority(usize),
    /// A node rejects the server.
    Reject(usize, usize),
    MakeUnschedulable(usize),
    MakeSchedulable(usize),
    /// A node restarts and is expected back after some seconds.
    Restart(usize, i64),
    /// Foreign pods use this many devices and cores of a node.
    ForeignUsage(usize, i64, i64),
    /// Sets a quota.
    Quota(usize, i64),
    Advance(i64),
}

#[derive(Clone, Debug)]
pub struct NewServer {
    pub gpus: i64,
    /// For each device, or in total without devices.
    pub cores: i64,
    pub memory: i64,
    /// `None` for one that runs until it is deleted.
    pub lifetime: Option<i64>,
    pub nodes: u32,
    pub zone: bool,
    pub owner: usize,
    pub team: usize,
    pub flavor: usize,
    pub priority: usize,
    pub preemptible: bool,
    /// Seconds until its start time.
    pub booked_in: Option<i64>,
}

pub const NODES: usize = 4;

/// Returns a cluster of four nodes, of which one is short of cores, one of memory and one of pods.
pub fn start(policy: Policy) -> Harness {
    let mut harness = Harness::new(policy);
    let nodes = [("a", 64, 256, 100), ("a", 64, 160, 100), ("b", 32, 512, 100), ("b", 48, 256, 3)];
    for (number, (zone, cores, memory, pods)) in nodes.into_iter().enumerate() {
        let mut node = node(&format!("n{number}"), 8, zone);
        (node.capacity.cpu, node.capacity.memory, node.capacity.pods) = (cores * CORE, memory * GIB, pods);
        harness.node(node);
    }
    harness.set_accounts();
    harness
}

const CORE: i64 = 1_000;
const GIB: i64 = 1 << 30;

pub fn any_change() -> impl Strategy<Value = Change> {
    let size = (0..=8_i64, 1..=6_i64, 8..=48_i64);
    let request = (
        size,
        prop::option::weighted(0.95, 10..4_000_i64),
        prop_oneof![5 => Just(1_u32), 1 => 2..=3_u32],
        any::<bool>(),
        prop::option::weighted(0.1, 1..2_000_i64),
    );
    let owner = (0..3_usize, 0..5_usize, 0..2_usize, 0..3_usize, prop::bool::weighted(0.4));
    let create = (request, owner).prop_map(|((size, lifetime, nodes, zone, booked_in), owner)| {
        let ((gpus, cores, memory), (owner, team, flavor, priority, preemptible)) = (size, owner);
        Change::Create(NewServer {
            gpus,
            cores,
            memory,
            lifetime,
            nodes,
            zone,
            owner,
            team,
            flavor,
            priority,
            preemptible,
            booked_in,
        })
    });
    prop_oneof![
        12 => create,
        4 => (0..20_usize).prop_map(Change::Delete),
        2 => (0..20_usize).prop_map(Change::Extend),
        1 => (0..20_usize).prop_map(Change::RaisePriority),
        1 => (0..20_usize, 0..NODES).prop_map(|(server, node)| Change::Reject(server, node)),
        2 => (0..NODES).prop_map(Change::MakeUnschedulable),
        2 => (0..NODES).prop_map(Change::MakeSchedulable),
        1 => (0..NODES, 1..600_i64).prop_map(|(node, after)| Change::Restart(node, after)),
        1 => (0..NODES, 0..4_i64, 0..24_i64).prop_map(|(node, gpus, cores)| Change::ForeignUsage(node, gpus, cores)),
        1 => (0..4_usize, 4..16_i64).prop_map(|(account, limit)| Change::Quota(account, limit)),
        8 => (1..1_000_i64).prop_map(Change::Advance),
    ]
}

/// Returns a random change that keeps the cluster rather full.
pub fn random_change(rng: &mut Rng, harness: &Harness) -> Change {
    let pending = harness.servers.values().filter(|server| server.state == ServerState::Pending).count();
    let all = harness.servers.len().max(1);
    match rng.below(40) {
        0..=19 if pending < 12 => Change::Create(NewServer::random(rng)),
        20..=27 => Change::Delete(index(rng, all)),
        28..=29 => Change::Extend(index(rng, all)),
        30 => Change::RaisePriority(index(rng, all)),
        31 if rng.below(4) == 0 => Change::Reject(index(rng, all), index(rng, NODES)),
        32 if rng.below(4) == 0 => Change::MakeUnschedulable(index(rng, NODES)),
        33 if rng.below(4) == 0 => Change::Restart(index(rng, NODES), rng.number(600)),
        34 => Change::ForeignUsage(index(rng, NODES), rng.number(4), rng.number(24)),
        35 => Change::ForeignUsage(index(rng, NODES), 0, 0),
        36 if rng.below(4) == 0 => Change::Quota(index(rng, 4), 4 + rng.number(12)),
        _ => Change::MakeSchedulable(index(rng, NODES)),
    }
}

fn index(rng: &mut Rng, len: usize) -> usize {
    usize::try_from(rng.below(u64::try_from(len).unwrap())).unwrap()
}

/// Returns limits with more cores and less memory for a higher number.
fn cpu_and_memory(number: i64) -> Limits {
    let cpu = Some(i128::from(number * 8) * 1_000_000_000);
    let memory = Some(i128::from((40 - number) * 16 * GIB) * 1_000_000_000);
    Limits { cpu, memory, ..Limits::default() }
}

impl Harness {
    /// Sets two teams with device quota, the second without borrowing limit, two teams with quota of all other resources,
    /// and users with quota.
    pub fn set_accounts(&mut self) {
        self.team("one", Some(12), Some(8));
        self.team("two", Some(10), None);
        self.third_team(12);
        let flavors = [("h100".to_owned(), 8), ("a100".to_owned(), 6)].into();
        let limits = Limits { flavors, ..cpu_and_memory(12) };
        self.set_team(AccountSpec { name: "four".into(), weight: 1, limits, borrowing_limit: Some(5), usage: None });
        self.user("bob", cpu_and_memory(10));
        let flavors = [("a100".to_owned(), 6)].into();
        self.user("eve", Limits { devices: Some(14), servers: Some(5), flavors, ..Limits::default() });
    }

    fn third_team(&mut self, limit: i64) {
        let flavors = [("h100".to_owned(), limit)].into();
        let limits = Limits { servers: Some(6), flavors, ..cpu_and_memory(limit + 4) };
        self.set_team(AccountSpec { name: "three".into(), weight: 2, limits, borrowing_limit: None, usage: None });
    }

    /// Applies a change. New servers are named by the number.
    pub fn apply_change(&mut self, number: usize, change: &Change) {
        let server = |index: usize| self.servers.values().nth(index).cloned();
        let node = |index: usize| self.nodes[&format!("n{index}")].clone();
        match change {
            Change::Create(new) => self.put(new.server(number, self.now)),
            Change::Delete(index) => {
                if let Some(server) = server(*index) {
                    self.remove(&server.id);
                }
            }
            Change::Extend(index) => {
                if let Some(mut server) = server(*index)
                    && let ServerState::Running(running) = &mut server.state
                    && !running.terminating
                {
                    running.end = running.end.map(|end| end + 500);
                    self.put(Server { max_hold_time: server.max_hold_time.map(|hold_time| hold_time + 500), ..server });
                }
            }
            Change::RaisePriority(index) => {
                if let Some(server) = server(*index) {
                    self.put(Server { priority: Priority::High, ..server });
                }
            }
            Change::Reject(index, node) => {
                if let Some(mut server) = server(*index).filter(|server| server.state == ServerState::Pending) {
                    server.rejected_by.insert(format!("n{node}"), "no".into());
                    self.put(server);
                }
            }
            Change::MakeUnschedulable(index) => self.make_unschedulable(&format!("n{index}")),
            Change::MakeSchedulable(index) => self.make_schedulable(&format!("n{index}")),
            Change::Restart(index, after) => {
                self.node(Node { state: NodeState::UnavailableUntil(self.now + after), ..node(*index) });
            }
            Change::ForeignUsage(index, gpus, cores) => {
                let mut foreign_usage = Resources::default().with_device(GPU, *gpus);
                (foreign_usage.cpu, foreign_usage.memory) = (*cores * CORE, *cores * 4 * GIB);
                foreign_usage.pods = i64::from(*gpus + *cores > 0);
                self.node(Node { foreign_usage, ..node(*index) });
            }
            Change::Quota(0, limit) => self.team("one", Some(*limit), Some(8)),
            Change::Quota(1, limit) => self.team("two", Some(*limit), None),
            Change::Quota(2, limit) => self.third_team(*limit),
            Change::Quota(_, limit) => self.user("bob", cpu_and_memory(*limit)),
            Change::Advance(seconds) => {
                self.now += seconds;
                self.expire();
            }
        }
    }
}

impl NewServer {
    fn random(rng: &mut Rng) -> Self {
        let gang = rng.below(8) == 0;
        Self {
            gpus: rng.number(9),
            cores: 1 + rng.number(6),
            memory: 8 + rng.number(41),
            lifetime: (rng.below(20) > 0).then(|| 60 + rng.number(4_000)),
            nodes: if gang { 2 + u32::try_from(rng.below(2)).unwrap() } else { 1 },
            zone: rng.below(2) == 0,
            owner: index(rng, 3),
            team: index(rng, 5),
            flavor: index(rng, 2),
            priority: index(rng, 3),
            preemptible: rng.below(3) == 0,
            // Some start times are in the past.
            booked_in: (rng.below(12) == 0).then(|| rng.number(2_400) - 400),
        }
    }

    fn server(&self, number: usize, now: i64) -> Server {
        let mut new = server(&format!("s{number:03}"), self.gpus, self.lifetime.unwrap_or(0), now);
        new.max_hold_time = self.lifetime;
        let per_node = &mut new.request.per_node;
        (per_node.cpu, per_node.memory) =
            (self.cores * self.gpus.max(1) * CORE, self.memory * self.gpus.max(1) * GIB / 2);
        new.request.nodes = self.nodes;
        new.request.topology = self.zone.then(|| ZONE.to_owned());
        new.owner = ["ada", "bob", "eve"][self.owner].into();
        new.team = [None, Some("one"), Some("two"), Some("three"), Some("four")][self.team].map(str::to_owned);
        new.flavor = ["h100", "a100"][self.flavor].into();
        new.priority = [Priority::Low, Priority::Normal, Priority::High][self.priority];
        new.preemptible = self.preemptible;
        new.not_before = self.booked_in.map(|seconds| now + seconds);
        new
    }
}
