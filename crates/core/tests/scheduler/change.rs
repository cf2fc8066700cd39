//! What can happen to a cluster, as values: random ones for long walks, and ones that proptest makes smaller.

use odc_api::v1alpha1::Priority;
use odc_core::amounts::Amounts;
use odc_core::scheduler::{Cause, Limits, Node, Plan, Policy, Server, Service, State};
use odc_core::sim::Dice;
use proptest::prelude::*;

use super::harness::{GPU, Harness, ZONE, amounts, node, server};

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
    /// Pods that are not servers use so much of a node.
    Others(usize, i64),
    /// Another quota of a team.
    Quota(usize, i64),
    Pass(i64),
}

#[derive(Clone, Debug)]
pub struct Come {
    pub gpus: i64,
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

/// Four nodes, teams with and without limits, one that may borrow what it likes, and a user with a quota of her own.
pub fn start(policy: Policy) -> Harness {
    let mut harness = Harness::new(policy);
    for (number, zone) in ["a", "a", "b", "b"].into_iter().enumerate() {
        harness.node(node(&format!("n{number}"), 8, zone));
    }
    harness.team("one", Some(12), Some(8));
    harness.team("two", Some(10), None);
    let flavors = [("a100".to_owned(), 6)].into();
    harness.user("eve", Limits { devices: Some(14), servers: Some(5), flavors, ..Limits::default() });
    harness
}

pub fn any_change() -> impl Strategy<Value = Change> {
    let what = (
        1..=8_i64,
        prop::option::weighted(0.95, 10..4_000_i64),
        prop_oneof![5 => Just(1_u32), 1 => 2..=3_u32],
        any::<bool>(),
        prop::option::weighted(0.1, 1..2_000_i64),
    );
    let whose = (0..3_usize, 0..4_usize, 0..2_usize, 0..3_usize, prop::bool::weighted(0.4));
    let come = (what, whose).prop_map(|((gpus, life, nodes, zone, booked), whose)| {
        let (owner, team, flavor, priority, preemptible) = whose;
        Change::Come(Come { gpus, life, nodes, zone, owner, team, flavor, priority, preemptible, booked })
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
        1 => (0..NODES, 0..4_i64).prop_map(|(node, gpus)| Change::Others(node, gpus)),
        1 => (0..2_usize, 4..16_i64).prop_map(|(team, devices)| Change::Quota(team, devices)),
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
        34 if dice.roll(4) == 0 => Change::Others(below(dice, NODES), dice.number(4)),
        35 if dice.roll(4) == 0 => Change::Quota(below(dice, 2), 4 + dice.number(12)),
        _ => Change::Open(below(dice, NODES)),
    }
}

fn below(dice: &mut Dice, most: usize) -> usize {
    usize::try_from(dice.roll(u64::try_from(most).unwrap())).unwrap()
}

impl Harness {
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
            Change::Others(at, gpus) => {
                let others = if *gpus == 0 { Amounts::default() } else { amounts(*gpus) };
                self.node(Node { others, ..node_at(*at) });
            }
            Change::Quota(at, devices) => {
                let borrow = [Some(8), None][*at];
                self.team(["one", "two"][*at], Some(*devices), borrow);
            }
            Change::Pass(time) => {
                self.now += time;
                self.expire();
            }
        }
    }

    /// Plans, carries it out, and says what is wrong with it: a planned start that moved for no reason, or something
    /// that a second look would change.
    pub fn live(&mut self, look_twice: bool) -> Result<Plan, String> {
        let plan = self.plan();
        if let Some(moved) = plan.moved.iter().find(|moved| moved.why == Cause::Unexplained) {
            return Err(format!("{moved:?} in {plan:#?}"));
        }
        self.carry_out(&plan);
        if look_twice {
            let second = self.plan();
            let expect = Plan { waits: plan.waits.clone(), again: second.again, ..Plan::default() };
            if second != expect {
                return Err(format!("after {plan:#?} comes {second:#?}"));
            }
        }
        Ok(plan)
    }
}

/// For what goes wrong after a long time.
impl Harness {
    /// The same cluster with as few servers as still go wrong. Nothing if it does not go wrong from its facts alone.
    pub fn fewest(&self) -> Option<Self> {
        let goes_wrong = |harness: &Self| {
            let anew = Self { world: harness.told_anew(), ..harness.clone() };
            anew.clone().live(true).is_err().then_some(anew)
        };
        let mut few = goes_wrong(self)?;
        for id in self.servers.keys() {
            let mut fewer = few.clone();
            fewer.remove(id);
            few = goes_wrong(&fewer).unwrap_or(few);
        }
        Some(few)
    }

    /// What there is and what was promised, a line each.
    pub fn facts(&self) -> String {
        let nodes = self.nodes.values().map(|node| {
            let (gpus, others) = (node.capacity.device(GPU), node.others.device(GPU));
            format!("{} has {gpus}, others use {others}, {:?}", node.name, node.service)
        });
        let teams =
            self.teams.values().map(|team| format!("{} {:?} {:?}", team.name, team.limits.devices, team.borrow));
        let servers = self.servers.values().map(|server| {
            let Server { id, owner, team, flavor, ask, priority, lifetime, queued, not_before, state, .. } = server;
            let asks = format!("{}x{} {:?}", ask.each.device(GPU), ask.nodes, ask.topology);
            let whose = format!("{owner} of {team:?} {flavor} {priority:?} preemptible {}", server.preemptible);
            let state = match state {
                State::Running(run) => {
                    let nodes: Vec<&String> = run.on.iter().map(|(node, _)| node).collect();
                    format!("on {nodes:?} {}..{:?} leaving {}", run.since, run.end, run.leaving)
                }
                other => format!("{other:?} since {queued} not before {not_before:?} booked {}", server.booked),
            };
            format!("{id}: {asks} for {lifetime:?}, {whose}, {state} unfit {:?}", server.unfit.keys())
        });
        let promises = self.world.promises().map(|promise| format!("{promise:?}"));
        let lines = nodes.chain(teams).chain(servers).chain(promises);
        format!("now {}\n{}", self.now, lines.collect::<Vec<_>>().join("\n"))
    }
}

impl Come {
    fn random(dice: &mut Dice) -> Self {
        let gang = dice.roll(8) == 0;
        Self {
            gpus: 1 + dice.number(8),
            life: (dice.roll(20) > 0).then(|| 60 + dice.number(4_000)),
            nodes: if gang { 2 + u32::try_from(dice.roll(2)).unwrap() } else { 1 },
            zone: dice.roll(2) == 0,
            owner: below(dice, 3),
            team: below(dice, 4),
            flavor: below(dice, 2),
            priority: below(dice, 3),
            preemptible: dice.roll(3) == 0,
            booked: (dice.roll(12) == 0).then(|| dice.number(2_000)),
        }
    }

    fn server(&self, number: usize, now: i64) -> Server {
        let mut new = server(&format!("s{number:03}"), self.gpus, self.life.unwrap_or(0), now);
        new.lifetime = self.life;
        new.ask.nodes = self.nodes;
        new.ask.topology = self.zone.then(|| ZONE.to_owned());
        new.owner = ["ada", "bob", "eve"][self.owner].into();
        new.team = [None, Some("one"), Some("two"), Some("three")][self.team].map(str::to_owned);
        new.flavor = ["h100", "a100"][self.flavor].into();
        new.priority = [Priority::Low, Priority::Normal, Priority::High][self.priority];
        new.preemptible = self.preemptible;
        new.not_before = self.booked.map(|later| now + later);
        new
    }
}
