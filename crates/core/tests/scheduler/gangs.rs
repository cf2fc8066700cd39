//! Two gangs of five on eight nodes, with all orders of events: each has all of its nodes or none, and is not pending while
//! enough nodes are free.

use odc_api::v1alpha1::Priority;
use odc_core::scheduler::{NodeState, Policy, Server};

use super::checked_step::ExtraChecks;
use super::harness::{Harness, node, running, server};

#[derive(Clone, Copy, Debug)]
enum Change {
    /// Name and number of nodes.
    Create(&'static str, u32),
    Delete(&'static str),
    NodeDown,
    NodeUp,
}

/// Each sequence keeps its order; all interleavings of them are tested.
const SEQUENCES: [[Change; 2]; 4] = [
    [Change::Create("a", 5), Change::Delete("a")],
    [Change::Create("b", 5), Change::Delete("b")],
    [Change::Create("c", 1), Change::Delete("c")],
    [Change::NodeDown, Change::NodeUp],
];

/// Returns all interleavings of what is left of the sequences.
fn interleavings(left: [usize; 4]) -> Vec<Vec<Change>> {
    if left == [0; 4] {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for sequence in (0..left.len()).filter(|sequence| left[*sequence] > 0) {
        let mut rest = left;
        rest[sequence] -= 1;
        let next = SEQUENCES[sequence][SEQUENCES[sequence].len() - left[sequence]];
        all.extend(interleavings(rest).into_iter().map(|rest| [vec![next], rest].concat()));
    }
    all
}

/// Applies the changes with `seconds` between them, and plans after those whose bit in `plans` is set.
fn run(changes: &[Change], plans: u32, seconds: i64, preempt: bool) -> Result<(), String> {
    let policy = Policy { preempt_exempt_time: 0, fair_share_resolution: i64::MAX, ..Policy::default() };
    let mut harness = Harness::new(policy);
    for number in 0..8 {
        harness.node(node(&format!("n{number}"), 8, "a"));
    }
    for (number, change) in changes.iter().enumerate() {
        harness.now += seconds;
        harness.expire();
        match change {
            Change::Create(name, nodes) => {
                let mut new = server(name, 8, 250, harness.now);
                new.request.nodes = *nodes;
                if preempt {
                    new.preemptible = *name == "a";
                    new.priority = if *name == "b" { Priority::High } else { Priority::Normal };
                }
                harness.put(new);
            }
            Change::Delete(name) => harness.remove(name),
            Change::NodeDown => harness.make_unschedulable("n0"),
            Change::NodeUp => harness.make_schedulable("n0"),
        }
        if plans >> number & 1 == 1 {
            harness.step(ExtraChecks { second_plan: true, backfill: true })?;
            check_no_deadlock(&harness)?;
        }
    }
    Ok(())
}

/// Checks that a gang is pending only if too few nodes are empty. Nodes may be held for it against the single server.
fn check_no_deadlock(harness: &Harness) -> Result<(), String> {
    let schedulable = harness.nodes.values().filter(|node| node.state == NodeState::Schedulable).count();
    let used: usize = harness.servers.values().filter_map(running).map(|run| run.nodes.len()).sum();
    let is_blocked =
        |server: &&Server| running(server).is_none() && server.request.nodes == 5 && 5 <= schedulable - used;
    harness
        .servers
        .values()
        .find(is_blocked)
        .map_or(Ok(()), |server| Err(format!("{} is pending with {} empty nodes", server.id, schedulable - used)))
}

#[test]
fn gangs_never_hold_part_of_their_nodes_or_deadlock() {
    let all = interleavings([2; 4]);
    assert_eq!(all.len(), 2_520);
    for changes in &all {
        for (plans, seconds, preempt) in [(0xFF, 10, false), (0xFF, 100, true), (0xAA, 10, true), (0x55, 100, false)] {
            if let Err(error) = run(changes, plans, seconds, preempt) {
                panic!("{changes:?}, plans {plans:b}, {seconds} s, preempt {preempt}: {error}");
            }
        }
    }
}
