//! All that can happen in small worlds: three nodes of four devices, up to five requests, up to eight events. Further worlds
//! have events of their own and fewer of them, so that every kind meets those it has to do with. States that differ only in names and in how
//! long ago they were are one.

use std::collections::BTreeSet;

use odc_api::v1alpha1::Priority;
use odc_core::amounts::Amounts;
use odc_core::scheduler::{Plan, Policy, Server, Service, State, Stop, World};

use super::harness::{Effort, GPU, Harness, node, running, server, without_shares};
use super::live::Also;
use super::properties::{promises, told};

/// How many requests there are at most.
const REQUESTS: usize = 5;

/// How many events there are in the plain world, and in those where more kinds of them meet.
fn events() -> (usize, usize) {
    match Effort::asked() {
        Effort::Quick => (5, 4),
        Effort::Whole => (8, 6),
        Effort::Full => (9, 7),
    }
}

#[derive(Clone, Copy, Debug)]
enum Happens {
    /// Devices, seconds, nodes.
    Come(i64, i64, u32, Sort),
    /// The first or last that runs leaves early.
    Leave(Which),
    /// The first or last that waits gives up.
    Cancel(Which),
    /// The first that runs stays longer.
    Extend,
    /// The first or last that waits counts as more urgent.
    Hurry(Which),
    /// The next end or booked time comes.
    Next,
    /// A node goes, or comes back.
    Toggle(&'static str),
    /// Other people's pods take half of a node, or leave it.
    Others(&'static str),
    /// A team's quota is halved, or restored.
    Quota,
}

#[derive(Clone, Copy, Debug)]
enum Which {
    First,
    Last,
}

#[derive(Clone, Copy, Debug)]
enum Sort {
    Plain,
    High,
    /// It may be asked to leave.
    Low,
    /// It begins so many seconds later.
    Booked(i64),
    /// Of this team, and it may be asked to leave or not.
    Of(&'static str, bool),
}

use Happens::{Cancel, Come, Extend, Hurry, Leave, Next, Others, Quota, Toggle};
use Sort::{Booked, High, Low, Of, Plain};
use Which::{First, Last};

const PLAIN: &[Happens] = &[
    Come(1, 100, 1, Plain),
    Come(2, 30, 1, Plain),
    Come(4, 60, 1, Plain),
    Come(4, 50, 2, Plain),
    Leave(First),
    Next,
    Toggle("n0"),
];

const NODES: &[Happens] = &[
    Come(1, 100, 1, Plain),
    Come(4, 60, 1, Plain),
    Come(4, 50, 2, Plain),
    Leave(First),
    Leave(Last),
    Next,
    Toggle("n0"),
    Toggle("n2"),
    Others("n1"),
];

const URGENCY: &[Happens] = &[
    Come(4, 60, 2, Plain),
    Come(4, 50, 1, High),
    Come(2, 90, 1, Low),
    Come(4, 80, 1, Low),
    Cancel(First),
    Hurry(Last),
    Extend,
    Next,
];

const BOOKINGS: &[Happens] = &[
    Come(4, 40, 1, Plain),
    Come(3, 70, 2, Plain),
    Come(4, 30, 2, Booked(35)),
    Come(4, 50, 1, Booked(10)),
    Cancel(First),
    Cancel(Last),
    Extend,
    Toggle("n1"),
    Next,
];

const QUOTAS: &[Happens] = &[
    Come(4, 60, 1, Of("one", true)),
    Come(2, 40, 1, Of("one", false)),
    Come(4, 50, 1, Of("two", false)),
    Come(2, 90, 2, Of("two", true)),
    Leave(First),
    Cancel(First),
    Quota,
    Next,
];

#[derive(Clone)]
struct Case {
    harness: Harness,
    came: usize,
}

fn pick(servers: impl DoubleEndedIterator<Item = Server>, which: Which) -> Option<Server> {
    let mut servers = servers;
    match which {
        First => servers.next(),
        Last => servers.next_back(),
    }
}

impl Case {
    fn begin() -> Self {
        // People who were asked to leave go soon, and are asked once.
        let policy = Policy { notice: 5, grace: 5, least_run: 0, most_preemptions: 1, ..without_shares() };
        let mut harness = Harness::new(policy);
        for name in ["n0", "n1", "n2"] {
            harness.node(node(name, 4, "a"));
        }
        harness.team("one", Some(4), Some(4));
        harness.team("two", Some(8), None);
        Self { harness, came: 0 }
    }

    /// Nothing if it cannot happen now, or there would be too many requests.
    fn after(&self, happens: Happens) -> Option<Self> {
        let mut next = self.clone();
        let harness = &mut next.harness;
        let runs = || self.harness.servers.values().filter(|server| running(server).is_some()).cloned();
        let waits = || self.harness.servers.values().filter(|server| server.state == State::Waiting).cloned();
        harness.now += 1;
        match happens {
            Come(..) if self.came >= REQUESTS => return None,
            Come(gpus, life, nodes, sort) => {
                let mut new = server(&format!("s{}", self.came), gpus, life, harness.now);
                new.ask.nodes = nodes;
                harness.put(sort.of(new));
                next.came += 1;
            }
            Leave(which) => harness.remove(&pick(runs(), which)?.id),
            Cancel(which) => harness.remove(&pick(waits(), which)?.id),
            Hurry(which) => {
                let server = pick(waits(), which).filter(|server| server.priority != Priority::High)?;
                harness.put(Server { priority: Priority::High, ..server });
            }
            Extend => {
                let mut server = pick(runs(), First)?;
                let State::Running(run) = &mut server.state else { return None };
                if run.leaving {
                    return None;
                }
                (run.end, server.lifetime) = (run.end.map(|end| end + 40), server.lifetime.map(|life| life + 40));
                harness.put(server);
            }
            Next => {
                let ends = runs().filter_map(|server| running(&server)?.end);
                let booked = waits().filter_map(|server| server.not_before);
                harness.now = ends.chain(booked).filter(|at| *at > self.harness.now).min()?;
            }
            Toggle(name) if harness.nodes[name].service == Service::Open => harness.close(name),
            Toggle(name) => harness.open(name),
            Others(name) => {
                let mut node = harness.nodes[name].clone();
                let half = Amounts::default().with_device(GPU, 2);
                node.others = if node.others == half { Amounts::default() } else { half };
                harness.node(node);
            }
            Quota => {
                let most = if harness.teams["two"].limits.devices == Some(8) { 4 } else { 8 };
                harness.team("two", Some(most), None);
            }
        }
        harness.expire();
        Some(next)
    }

    /// What must hold in every state, once it was planned.
    fn check(&mut self, plan: &Plan) -> Result<(), String> {
        let harness = &mut self.harness;
        let mut anew = harness.told_anew();
        let (second, other) = (harness.plan(), anew.plan(&harness.policy, harness.now));
        if second != (Plan { waits: plan.waits.clone(), again: second.again, ..Plan::default() }) {
            return Err(format!("after {plan:?} comes {second:?}"));
        }
        let said = |world: &World, plan: &Plan| (told(world, plan), promises(world), plan.grants.clone());
        if said(&anew, &other) != said(&harness.world, &second) {
            return Err(format!("told anew it is {other:?}, not {second:?}"));
        }
        // Nobody waits without need: who has nobody ahead starts if there is room.
        let behind = plan.waits.first().filter(|first| first.stop == Stop::Behind);
        behind.map_or(Ok(()), |first| Err(format!("{first:?} is behind nobody")))
    }

    /// The state without names and absolute times. Servers are in the order they came in.
    fn key(&self) -> String {
        let Harness { now, nodes, teams, servers, world, .. } = &self.harness;
        let came: Vec<&String> = servers.keys().collect();
        let number = |id: &String| came.binary_search(&id).unwrap();
        // Of those who run, who came last to run is asked first to leave.
        let since: BTreeSet<i64> = servers.values().filter_map(|server| Some(running(server)?.since)).collect();
        let servers = servers.values().map(|server| {
            let Server { ask, priority, preemptible, team, booked, lifetime, preemptions, not_before, .. } = server;
            let ask = (ask.devices(), ask.nodes, lifetime, priority, preemptible, team, booked, preemptions);
            let state = running(server).map(|run| {
                let nodes: Vec<&String> = run.on.iter().map(|(node, _)| node).collect();
                (nodes, run.end.map(|end| end - now), run.leaving, since.range(..run.since).count())
            });
            format!("{ask:?} {:?} {state:?}", not_before.map(|at| (at - now).max(0)))
        });
        let servers: Vec<String> = servers.collect();
        let nodes: Vec<_> = nodes.values().map(|node| (node.service, node.others.device(GPU))).collect();
        let promises = promises(world);
        let promises = promises.values().map(|promise| {
            (number(&promise.id), promise.place, promise.start - now, promise.until - now, &promise.nodes)
        });
        let promises: Vec<_> = promises.collect();
        format!("{} {nodes:?} {:?} {servers:?} {promises:?}", self.came, teams["two"].limits.devices)
    }
}

impl Sort {
    fn of(self, new: Server) -> Server {
        match self {
            Plain => new,
            High => Server { priority: Priority::High, ..new },
            Low => Server { priority: Priority::Low, preemptible: true, ..new },
            Booked(later) => Server { not_before: Some(new.queued + later), ..new },
            Of(team, preemptible) => Server { team: Some(team.into()), preemptible, ..new },
        }
    }
}

/// Everything that can happen, in every order. Says how many states there are. Whether anybody is delayed by somebody who
/// starts first costs as much as all the rest.
fn explore(all: &[Happens], events: usize, undelayed: bool) -> usize {
    let mut cases = vec![(Case::begin(), Vec::new())];
    let mut known = BTreeSet::new();
    for event in 0..events {
        let mut next = Vec::new();
        for (case, history) in &cases {
            for happens in all {
                let Some(mut after) = case.after(*happens) else { continue };
                let history = [history.as_slice(), &[*happens]].concat();
                let lived = after.harness.live(Also { second: false, undelayed });
                let is_new = lived.and_then(|plan| {
                    let is_new = known.insert(after.key());
                    if is_new { after.check(&plan).map(|()| true) } else { Ok(false) }
                });
                match is_new {
                    // Nothing follows the last ones, and they are most.
                    Ok(true) if event + 1 < events => next.push((after, history)),
                    Ok(_) => {}
                    Err(wrong) => panic!("after {history:?}: {wrong}\n{}", after.harness.facts()),
                }
            }
        }
        cases = next;
    }
    known.len()
}

#[test]
fn nothing_goes_wrong_in_a_small_world_whatever_happens() {
    assert!(explore(PLAIN, events().0, false) > 1_000);
}

#[test]
fn nothing_goes_wrong_whatever_happens_to_nodes() {
    assert!(explore(NODES, events().1, true) > 500);
}

#[test]
fn nothing_goes_wrong_whoever_is_urgent() {
    assert!(explore(URGENCY, events().1, true) > 500);
}

#[test]
fn nothing_goes_wrong_whatever_is_booked() {
    assert!(explore(BOOKINGS, events().1, true) > 500);
}

#[test]
fn nothing_goes_wrong_whoever_borrows() {
    assert!(explore(QUOTAS, events().1, true) > 500);
}
