//! Exhaustive search of small clusters: three nodes of four devices, up to five requests, up to eight changes. Further searches
//! combine other kinds of changes, with fewer of them. States that differ only in names and absolute times are visited once.

use std::collections::BTreeSet;

use odc_api::v1alpha1::Priority;
use odc_core::resources::Resources;
use odc_core::scheduler::{ClusterState, NodeState, PendingReason, Plan, Policy, Server, ServerState};

use super::checked_step::ExtraChecks;
use super::harness::{Effort, GPU, Harness, node, running, server, without_shares};
use super::properties::{explanations, reservations};

const MAX_REQUESTS: usize = 5;

/// Returns the number of changes in the first search, and in the others.
fn depths() -> (usize, usize) {
    match Effort::from_env() {
        Effort::Quick => (5, 4),
        Effort::Default => (8, 6),
        Effort::Full => (9, 7),
    }
}

#[derive(Clone, Copy, Debug)]
enum Change {
    /// Creates a server with devices, lifetime and nodes.
    Create(i64, i64, u32, Kind),
    /// Deletes the first or last running server.
    Delete(Which),
    /// Deletes the first or last pending server.
    Cancel(Which),
    /// Extends the first running server.
    Extend,
    /// Raises the priority of the first or last pending server.
    RaisePriority(Which),
    /// Advances to the next end or start time.
    Advance,
    /// Makes a node unschedulable or schedulable.
    ToggleNode(&'static str),
    /// Foreign pods start or stop using half of a node.
    ToggleForeign(&'static str),
    /// Halves or restores the quota of a team.
    ToggleQuota,
}

#[derive(Clone, Copy, Debug)]
enum Which {
    First,
    Last,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Plain,
    High,
    /// Low priority and preemptible.
    Low,
    /// Starts this many seconds later.
    Booked(i64),
    /// Team, and whether it is preemptible.
    Team(&'static str, bool),
}

use Change::{Advance, Cancel, Create, Delete, Extend, RaisePriority, ToggleForeign, ToggleNode, ToggleQuota};
use Kind::{Booked, High, Low, Plain, Team};
use Which::{First, Last};

const PLAIN: &[Change] = &[
    Create(1, 100, 1, Plain),
    Create(2, 30, 1, Plain),
    Create(4, 60, 1, Plain),
    Create(4, 50, 2, Plain),
    Delete(First),
    Advance,
    ToggleNode("n0"),
];

const NODES: &[Change] = &[
    Create(1, 100, 1, Plain),
    Create(4, 60, 1, Plain),
    Create(4, 50, 2, Plain),
    Delete(First),
    Delete(Last),
    Advance,
    ToggleNode("n0"),
    ToggleNode("n2"),
    ToggleForeign("n1"),
];

const PRIORITIES: &[Change] = &[
    Create(4, 60, 2, Plain),
    Create(4, 50, 1, High),
    Create(2, 90, 1, Low),
    Create(4, 80, 1, Low),
    Cancel(First),
    RaisePriority(Last),
    Extend,
    Advance,
];

const BOOKINGS: &[Change] = &[
    Create(4, 40, 1, Plain),
    Create(3, 70, 2, Plain),
    Create(4, 30, 2, Booked(35)),
    Create(4, 50, 1, Booked(10)),
    Cancel(First),
    Cancel(Last),
    Extend,
    ToggleNode("n1"),
    Advance,
];

const QUOTAS: &[Change] = &[
    Create(4, 60, 1, Team("one", true)),
    Create(2, 40, 1, Team("one", false)),
    Create(4, 50, 1, Team("two", false)),
    Create(2, 90, 2, Team("two", true)),
    Delete(First),
    Cancel(First),
    ToggleQuota,
    Advance,
];

#[derive(Clone)]
struct Case {
    harness: Harness,
    created: usize,
}

fn select(servers: impl DoubleEndedIterator<Item = Server>, which: Which) -> Option<Server> {
    let mut servers = servers;
    match which {
        First => servers.next(),
        Last => servers.next_back(),
    }
}

impl Case {
    fn new() -> Self {
        // Victims stop soon, and are preempted once.
        let policy = Policy {
            preemption_notice: 5,
            termination_grace_period: 5,
            preempt_exempt_time: 0,
            max_preemptions: 1,
            ..without_shares()
        };
        let mut harness = Harness::new(policy);
        for name in ["n0", "n1", "n2"] {
            harness.node(node(name, 4, "a"));
        }
        harness.team("one", Some(4), Some(4));
        harness.team("two", Some(8), None);
        Self { harness, created: 0 }
    }

    /// Returns `None` if the change is not possible now, or there would be too many requests.
    fn after(&self, change: Change) -> Option<Self> {
        let mut next = self.clone();
        let harness = &mut next.harness;
        let running_servers = || self.harness.servers.values().filter(|server| running(server).is_some()).cloned();
        let pending_servers =
            || self.harness.servers.values().filter(|server| server.state == ServerState::Pending).cloned();
        harness.now += 1;
        match change {
            Create(..) if self.created >= MAX_REQUESTS => return None,
            Create(gpus, lifetime, nodes, kind) => {
                let mut new = server(&format!("s{}", self.created), gpus, lifetime, harness.now);
                new.request.nodes = nodes;
                harness.put(kind.apply(new));
                next.created += 1;
            }
            Delete(which) => harness.remove(&select(running_servers(), which)?.id),
            Cancel(which) => harness.remove(&select(pending_servers(), which)?.id),
            RaisePriority(which) => {
                let server = select(pending_servers(), which).filter(|server| server.priority != Priority::High)?;
                harness.put(Server { priority: Priority::High, ..server });
            }
            Extend => {
                let mut server = select(running_servers(), First)?;
                let ServerState::Running(run) = &mut server.state else { return None };
                if run.terminating {
                    return None;
                }
                (run.end, server.max_hold_time) =
                    (run.end.map(|end| end + 40), server.max_hold_time.map(|hold_time| hold_time + 40));
                harness.put(server);
            }
            Advance => {
                let ends = running_servers().filter_map(|server| running(&server)?.end);
                let bookings = pending_servers().filter_map(|server| server.not_before);
                harness.now = ends.chain(bookings).filter(|time| *time > self.harness.now).min()?;
            }
            ToggleNode(name) if harness.nodes[name].state == NodeState::Schedulable => harness.make_unschedulable(name),
            ToggleNode(name) => harness.make_schedulable(name),
            ToggleForeign(name) => {
                let mut node = harness.nodes[name].clone();
                let half = Resources::default().with_device(GPU, 2);
                node.foreign_usage = if node.foreign_usage == half { Resources::default() } else { half };
                harness.node(node);
            }
            ToggleQuota => {
                let limit = if harness.teams["two"].limits.devices == Some(8) { 4 } else { 8 };
                harness.team("two", Some(limit), None);
            }
        }
        harness.expire();
        Some(next)
    }

    /// Checks a state after its plan was applied.
    fn check(&mut self, plan: &Plan) -> Result<(), String> {
        let harness = &mut self.harness;
        let mut rebuilt = harness.rebuilt_state();
        let (second, other) = (harness.plan(), rebuilt.plan(&harness.policy, harness.now));
        if second != (Plan { pending: plan.pending.clone(), requeue_at: second.requeue_at, ..Plan::default() }) {
            return Err(format!("{plan:?} is followed by {second:?}"));
        }
        let summary = |state: &ClusterState, plan: &Plan| {
            (explanations(state, plan), reservations(state), plan.assignments.clone())
        };
        if summary(&rebuilt, &other) != summary(&harness.state, &second) {
            return Err(format!("the rebuilt state gives {other:?}, not {second:?}"));
        }
        // The first server starts if its capacity is free.
        let blocked = plan.pending.first().filter(|first| first.reason == PendingReason::Priority);
        blocked.map_or(Ok(()), |first| Err(format!("{first:?} has no server ahead")))
    }

    /// Returns the state without names and absolute times. Servers are in order of creation.
    fn key(&self) -> String {
        let Harness { now, nodes, teams, servers, state, .. } = &self.harness;
        let ids: Vec<&String> = servers.keys().collect();
        let number = |id: &String| ids.binary_search(&id).unwrap();
        // The order of starts matters, because the youngest victim is preempted first.
        let starts: BTreeSet<i64> = servers.values().filter_map(|server| Some(running(server)?.started_at)).collect();
        let servers = servers.values().map(|server| {
            let Server { request, priority, preemptible, team, max_hold_time, preemptions, not_before, .. } = server;
            let request = (request.devices(), request.nodes, max_hold_time, priority, preemptible, team);
            let history = (server.booking_confirmed, preemptions);
            let state = running(server).map(|run| {
                let nodes: Vec<&String> = run.nodes.iter().map(|(node, _)| node).collect();
                (nodes, run.end.map(|end| end - now), run.terminating, starts.range(..run.started_at).count())
            });
            format!("{request:?} {history:?} {:?} {state:?}", not_before.map(|start| (start - now).max(0)))
        });
        let servers: Vec<String> = servers.collect();
        let nodes: Vec<_> = nodes.values().map(|node| (node.state, node.foreign_usage.device(GPU))).collect();
        let reservations = reservations(state);
        let reservations = reservations.values().map(|reservation| {
            (
                number(&reservation.server),
                reservation.queue_index,
                reservation.start - now,
                reservation.end - now,
                &reservation.nodes,
            )
        });
        let reservations: Vec<_> = reservations.collect();
        format!("{} {nodes:?} {:?} {servers:?} {reservations:?}", self.created, teams["two"].limits.devices)
    }
}

impl Kind {
    fn apply(self, new: Server) -> Server {
        match self {
            Plain => new,
            High => Server { priority: Priority::High, ..new },
            Low => Server { priority: Priority::Low, preemptible: true, ..new },
            Booked(seconds) => Server { not_before: Some(new.queued_at + seconds), ..new },
            Team(team, preemptible) => Server { team: Some(team.into()), preemptible, ..new },
        }
    }
}

/// Applies all changes in all orders. Returns the number of states. The check of `backfill` costs as much as all others.
fn explore(changes: &[Change], depth: usize, backfill: bool) -> usize {
    let mut cases = vec![(Case::new(), Vec::new())];
    let mut known = BTreeSet::new();
    for step in 0..depth {
        let mut next = Vec::new();
        for (case, history) in &cases {
            for change in changes {
                let Some(mut after) = case.after(*change) else { continue };
                let history = [history.as_slice(), &[*change]].concat();
                let stepped = after.harness.step(ExtraChecks { second_plan: false, backfill });
                let is_new = stepped.and_then(|plan| {
                    let is_new = known.insert(after.key());
                    if is_new { after.check(&plan).map(|()| true) } else { Ok(false) }
                });
                match is_new {
                    // States of the last step are the most, and are not continued.
                    Ok(true) if step + 1 < depth => next.push((after, history)),
                    Ok(_) => {}
                    Err(error) => panic!("after {history:?}: {error}\n{}", after.harness.describe()),
                }
            }
        }
        cases = next;
    }
    known.len()
}

#[test]
fn all_orders_of_basic_changes_are_valid() {
    assert!(explore(PLAIN, depths().0, false) > 1_000);
}

#[test]
fn all_orders_of_node_changes_are_valid() {
    assert!(explore(NODES, depths().1, true) > 500);
}

#[test]
fn all_orders_of_priority_changes_are_valid() {
    assert!(explore(PRIORITIES, depths().1, true) > 500);
}

#[test]
fn all_orders_of_bookings_are_valid() {
    assert!(explore(BOOKINGS, depths().1, true) > 500);
}

#[test]
fn all_orders_of_quota_changes_are_valid() {
    assert!(explore(QUOTAS, depths().1, true) > 500);
}
