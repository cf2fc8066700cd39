//! Two gangs of five on eight nodes. Whatever happens in whatever order, each has all of its nodes or none, and none waits
//! while there are enough for it.

use odc_api::v1alpha1::Priority;
use odc_core::scheduler::{Policy, Server, Service};

use super::harness::{Harness, node, running, server};
use super::live::Also;

#[derive(Clone, Copy, Debug)]
enum Happens {
    /// A name, and on how many nodes.
    Come(&'static str, u32),
    Go(&'static str),
    Down,
    Up,
}

/// Each of these in its order, and all of them in every order.
const STORIES: [[Happens; 2]; 4] = [
    [Happens::Come("a", 5), Happens::Go("a")],
    [Happens::Come("b", 5), Happens::Go("b")],
    [Happens::Come("c", 1), Happens::Go("c")],
    [Happens::Down, Happens::Up],
];

/// All ways to go on with the stories.
fn interleavings(left: [usize; 4]) -> Vec<Vec<Happens>> {
    if left == [0; 4] {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for story in (0..left.len()).filter(|story| left[*story] > 0) {
        let mut rest = left;
        rest[story] -= 1;
        let next = STORIES[story][STORIES[story].len() - left[story]];
        all.extend(interleavings(rest).into_iter().map(|rest| [vec![next], rest].concat()));
    }
    all
}

/// Lets it happen, with a plan after those events whose bit is set, and seconds in between.
fn tell(events: &[Happens], looks: u32, seconds: i64, preempt: bool) -> Result<(), String> {
    let policy = Policy { least_run: 0, share_step: i64::MAX, ..Policy::default() };
    let mut harness = Harness::new(policy);
    for number in 0..8 {
        harness.node(node(&format!("n{number}"), 8, "a"));
    }
    for (number, event) in events.iter().enumerate() {
        harness.now += seconds;
        harness.expire();
        match event {
            Happens::Come(name, nodes) => {
                let mut new = server(name, 8, 250, harness.now);
                new.ask.nodes = *nodes;
                if preempt {
                    new.preemptible = *name == "a";
                    new.priority = if *name == "b" { Priority::High } else { Priority::Normal };
                }
                harness.put(new);
            }
            Happens::Go(name) => harness.remove(name),
            Happens::Down => harness.close("n0"),
            Happens::Up => harness.open("n0"),
        }
        if looks >> number & 1 == 1 {
            harness.live(Also { second: true, undelayed: true })?;
            no_deadlock(&harness)?;
        }
    }
    Ok(())
}

/// A gang waits only where too few nodes are empty. Room may be kept for it from the single one.
fn no_deadlock(harness: &Harness) -> Result<(), String> {
    let open = harness.nodes.values().filter(|node| node.service == Service::Open).count();
    let used: usize = harness.servers.values().filter_map(running).map(|run| run.on.len()).sum();
    let wait = |server: &&Server| running(server).is_none() && server.ask.nodes == 5 && 5 <= open - used;
    harness.servers.values().find(wait).map_or(Ok(()), |server| Err(format!("{} waits, {open} - {used}", server.id)))
}

#[test]
fn two_gangs_never_hold_half_each_and_never_wait_for_each_other() {
    let all = interleavings([2; 4]);
    assert_eq!(all.len(), 2_520);
    for events in &all {
        for (looks, seconds, preempt) in [(0xFF, 10, false), (0xFF, 100, true), (0xAA, 10, true), (0x55, 100, false)] {
            if let Err(wrong) = tell(events, looks, seconds, preempt) {
                panic!("{events:?}, looked at {looks:b}, {seconds} s, preempt {preempt}: {wrong}");
            }
        }
    }
}
