//! What can happen to a cluster, as values: random ones for long walks, and ones that proptest makes smaller.

use odc_api::v1alpha1::Priority;
use odc_core::amounts::Amounts;
use odc_core::scheduler::{Account, Limits, Node, Policy, Server, Service, State};
use odc_core::sim::Dice;
use proptest::prelude::*;

use super::harness::{GPU, Harness, ZONE, node, server};

#[derive(Clone, Debug)]
pub enum Change {
    Come(Come),
    Leave(usize),
    Extend(usize),
    /// It counts as more urgent from now on.
    Hurry(usize),
    /// A node refused it.
    Refuse(usize, usize),
    Close(usize),
    Open(usize),
    /// A node restarts and is expected back after some time.
    Restart(usize, i64),
    /// Pods that are not servers use so many devices and cores of a node.
    Others(usize, i64, i64),
    /// Another quota of somebody.
    Quota(usize, i64),
    Pass(i64),
}

#[derive(Clone, Debug)]
pub struct Come {
    pub gpus: i64,
    /// For each device, or in all where there are none.
    pub cores: i64,
    pub memory: i64,
    /// Nothing for one that stays until it leaves.
    pub life: Option<i64>,
    pub nodes: u32,
    pub zone: bool,
    pub owner: usize,
    pub team: usize,
    pub flavor: usize,
    pub priority: usize,
    pub preemptible: bool,
    pub booked: Option<i64>,
}

pub const NODES: usize = 4;

/// Four nodes, of which one is soon out of cores, one of memory and one of pods.
pub fn start(policy: Policy) -> Harness {
    let mut harness = Harness::new(policy);
    let nodes = [("a", 64, 256, 100), ("a", 64, 160, 100), ("b", 32, 512, 100), ("b", 48, 256, 3)];
    for (number, (zone, cores, memory, pods)) in nodes.into_iter().enumerate() {
        let mut node = node(&format!("n{number}"), 8, zone);
        (node.capacity.cpu, node.capacity.memory, node.capacity.pods) = (cores * CORE, memory * GIB, pods);
        harness.node(node);
    }
    harness.accounts();
    harness
}

const CORE: i64 = 1_000;
const GIB: i64 = 1 << 30;

pub fn any_change() -> impl Strategy<Value = Change> {
    let size = (0..=8_i64, 1..=6_i64, 8..=48_i64);
    let what = (
        size,
        prop::option::weighted(0.95, 10..4_000_i64),
        prop_oneof![5 => Just(1_u32), 1 => 2..=3_u32],
        any::<bool>(),
        prop::option::weighted(0.1, 1..2_000_i64),
    );
    let whose = (0..3_usize, 0..5_usize, 0..2_usize, 0..3_usize, prop::bool::weighted(0.4));
    let come = (what, whose).prop_map(|((size, life, nodes, zone, booked), whose)| {
        let ((gpus, cores, memory), (owner, team, flavor, priority, preemptible)) = (size, whose);
        Change::Come(Come {
            gpus,
            cores,
            memory,
            life,
            nodes,
            zone,
            owner,
            team,
            flavor,
            priority,
            preemptible,
            booked,
        })
    });
    prop_oneof![
        12 => come,
        4 => (0..20_usize).prop_map(Change::Leave),
        2 => (0..20_usize).prop_map(Change::Extend),
        1 => (0..20_usize).prop_map(Change::Hurry),
        1 => (0..20_usize, 0..NODES).prop_map(|(server, node)| Change::Refuse(server, node)),
        2 => (0..NODES).prop_map(Change::Close),
        2 => (0..NODES).prop_map(Change::Open),
        1 => (0..NODES, 1..600_i64).prop_map(|(node, after)| Change::Restart(node, after)),
        1 => (0..NODES, 0..4_i64, 0..24_i64).prop_map(|(node, gpus, cores)| Change::Others(node, gpus, cores)),
        1 => (0..4_usize, 4..16_i64).prop_map(|(whose, most)| Change::Quota(whose, most)),
        8 => (1..1_000_i64).prop_map(Change::Pass),
    ]
}

/// Something that happens to a cluster that is rather full.
pub fn random_change(dice: &mut Dice, harness: &Harness) -> Change {
    let waiting = harness.servers.values().filter(|server| server.state == State::Waiting).count();
    let all = harness.servers.len().max(1);
    match dice.roll(40) {
        0..=19 if waiting < 12 => Change::Come(Come::random(dice)),
        20..=27 => Change::Leave(below(dice, all)),
        28..=29 => Change::Extend(below(dice, all)),
        30 => Change::Hurry(below(dice, all)),
        31 if dice.roll(4) == 0 => Change::Refuse(below(dice, all), below(dice, NODES)),
        32 if dice.roll(4) == 0 => Change::Close(below(dice, NODES)),
        33 if dice.roll(4) == 0 => Change::Restart(below(dice, NODES), dice.number(600)),
        34 => Change::Others(below(dice, NODES), dice.number(4), dice.number(24)),
        35 => Change::Others(below(dice, NODES), 0, 0),
        36 if dice.roll(4) == 0 => Change::Quota(below(dice, 4), 4 + dice.number(12)),
        _ => Change::Open(below(dice, NODES)),
    }
}

fn below(dice: &mut Dice, most: usize) -> usize {
    usize::try_from(dice.roll(u64::try_from(most).unwrap())).unwrap()
}

/// A user with many cores and little memory, or the other way round.
fn bob(most: i64) -> Limits {
    let cpu = Some(i128::from(most * 8) * 1_000_000_000);
    let memory = Some(i128::from((40 - most) * 16 * GIB) * 1_000_000_000);
    Limits { cpu, memory, ..Limits::default() }
}

impl Harness {
    /// Two teams that lend and borrow devices, the second as many as it likes; two that are limited in everything else and
    /// lend and borrow that; and users with quotas of their own.
    pub fn accounts(&mut self) {
        self.team("one", Some(12), Some(8));
        self.team("two", Some(10), None);
        self.third_team(12);
        let flavors = [("h100".to_owned(), 8), ("a100".to_owned(), 6)].into();
        let limits = Limits { flavors, ..bob(12) };
        self.set_team(Account { name: "four".into(), weight: 1, limits, borrow: Some(5), used: None });
        self.user("bob", bob(10));
        let flavors = [("a100".to_owned(), 6)].into();
        self.user("eve", Limits { devices: Some(14), servers: Some(5), flavors, ..Limits::default() });
    }

    fn third_team(&mut self, most: i64) {
        let flavors = [("h100".to_owned(), most)].into();
        let limits = Limits { servers: Some(6), flavors, ..bob(most + 4) };
        self.set_team(Account { name: "three".into(), weight: 2, limits, borrow: None, used: None });
    }

    /// Lets something happen. Servers get their names from the number.
    pub fn happen(&mut self, number: usize, change: &Change) {
        let server_at = |at: usize| self.servers.values().nth(at).cloned();
        let node_at = |at: usize| self.nodes[&format!("n{at}")].clone();
        match change {
            Change::Come(come) => self.put(come.server(number, self.now)),
            Change::Leave(at) => {
                if let Some(server) = server_at(*at) {
                    self.remove(&server.id);
                }
            }
            Change::Extend(at) => {
                if let Some(mut server) = server_at(*at)
                    && let State::Running(running) = &mut server.state
                    && !running.leaving
                {
                    running.end = running.end.map(|end| end + 500);
                    self.put(Server { lifetime: server.lifetime.map(|lifetime| lifetime + 500), ..server });
                }
            }
            Change::Hurry(at) => {
                if let Some(server) = server_at(*at) {
                    self.put(Server { priority: Priority::High, ..server });
                }
            }
            Change::Refuse(at, node) => {
                if let Some(mut server) = server_at(*at).filter(|server| server.state == State::Waiting) {
                    server.unfit.insert(format!("n{node}"), "no".into());
                    self.put(server);
                }
            }
            Change::Close(at) => self.close(&format!("n{at}")),
            Change::Open(at) => self.open(&format!("n{at}")),
            Change::Restart(at, after) => {
                self.node(Node { service: Service::Back(self.now + after), ..node_at(*at) });
            }
            Change::Others(at, gpus, cores) => {
                let mut others = Amounts::default().with_device(GPU, *gpus);
                (others.cpu, others.memory) = (*cores * CORE, *cores * 4 * GIB);
                others.pods = i64::from(*gpus + *cores > 0);
                self.node(Node { others, ..node_at(*at) });
            }
            Change::Quota(0, most) => self.team("one", Some(*most), Some(8)),
            Change::Quota(1, most) => self.team("two", Some(*most), None),
            Change::Quota(2, most) => self.third_team(*most),
            Change::Quota(_, most) => self.user("bob", bob(*most)),
            Change::Pass(time) => {
                self.now += time;
                self.expire();
            }
        }
    }
}

impl Come {
    fn random(dice: &mut Dice) -> Self {
        let gang = dice.roll(8) == 0;
        Self {
            gpus: dice.number(9),
            cores: 1 + dice.number(6),
            memory: 8 + dice.number(41),
            life: (dice.roll(20) > 0).then(|| 60 + dice.number(4_000)),
            nodes: if gang { 2 + u32::try_from(dice.roll(2)).unwrap() } else { 1 },
            zone: dice.roll(2) == 0,
            owner: below(dice, 3),
            team: below(dice, 5),
            flavor: below(dice, 2),
            priority: below(dice, 3),
            preemptible: dice.roll(3) == 0,
            // Some name a time that is over.
            booked: (dice.roll(12) == 0).then(|| dice.number(2_400) - 400),
        }
    }

    fn server(&self, number: usize, now: i64) -> Server {
        let mut new = server(&format!("s{number:03}"), self.gpus, self.life.unwrap_or(0), now);
        new.lifetime = self.life;
        let each = &mut new.ask.each;
        (each.cpu, each.memory) = (self.cores * self.gpus.max(1) * CORE, self.memory * self.gpus.max(1) * GIB / 2);
        new.ask.nodes = self.nodes;
        new.ask.topology = self.zone.then(|| ZONE.to_owned());
        new.owner = ["ada", "bob", "eve"][self.owner].into();
        new.team = [None, Some("one"), Some("two"), Some("three"), Some("four")][self.team].map(str::to_owned);
        new.flavor = ["h100", "a100"][self.flavor].into();
        new.priority = [Priority::Low, Priority::Normal, Priority::High][self.priority];
        new.preemptible = self.preemptible;
        new.not_before = self.booked.map(|later| now + later);
        new
    }
}
