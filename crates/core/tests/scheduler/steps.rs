//! A million random steps: servers come, leave early, are extended, are asked to leave; nodes go and come back. Nothing is
//! ever given twice and no quota exceeded; and where nobody borrows or is preempted, no planned start moves for no reason
//! and a plan that was carried out leaves nothing to decide.

use odc_api::v1alpha1::Priority;
use odc_core::scheduler::{Cause, Policy, Server, State};

use super::harness::{Dice, Harness, ZONE, node, running, server};

const STEPS: usize = if cfg!(feature = "full") { 2_500_000 } else { 250_000 };

fn walk(seed: u64, teams: bool) {
    let mut dice = Dice(seed);
    let mut harness = Harness::new(Policy { depth: 6, ..Policy::default() });
    for number in 0..5 {
        let zone = if number < 3 { "a" } else { "b" };
        harness.node(node(&format!("n{number}"), 8, zone));
    }
    harness.team("one", Some(16), None);
    harness.team("two", Some(12), Some(4));
    let mut before = Vec::new();
    for step in 0..STEPS {
        harness.now += dice.number(120);
        harness.expire();
        change(&mut harness, &mut dice, step, teams);
        let plan = harness.plan();
        let unexplained = plan.moved.iter().find(|moved| moved.why == Cause::Unexplained && !teams);
        assert_eq!(unexplained, None, "in step {step} of {seed}, after {before:?}: {plan:?}");
        before.clone_from(&plan.waits);
        harness.carry_out(&plan);
        if step % 64 == 0 && !teams {
            let second = harness.plan();
            assert!(second.grants.is_empty() && second.preemptions.is_empty(), "step {step} of {seed}: {second:?}");
            let starts = |plan: &odc_core::scheduler::Plan| -> Vec<_> {
                plan.waits.iter().map(|wait| (wait.id.clone(), wait.start)).collect()
            };
            // Who was just promised a time is ahead from now on.
            if plan.preemptions.is_empty() && plan.booked.is_empty() {
                assert_eq!(starts(&second), starts(&plan), "step {step} of {seed}");
            }
        }
    }
}

fn change(harness: &mut Harness, dice: &mut Dice, step: usize, teams: bool) {
    let waiting = harness.servers.values().filter(|server| server.state == State::Waiting).count();
    match dice.roll(20) {
        0..=9 if waiting < 12 => {
            let mut new = server(&format!("s{step}"), 1 + dice.number(8), 60 + dice.number(4_000), harness.now);
            if dice.roll(8) == 0 {
                new.ask.nodes = 2 + u32::try_from(dice.roll(2)).unwrap();
                new.ask.topology = (dice.roll(2) == 0).then(|| ZONE.to_owned());
            }
            new.owner = ["ada", "bob", "eve"][usize::try_from(dice.roll(3)).unwrap()].into();
            new.team = [None, Some("one"), Some("two")][usize::try_from(dice.roll(3)).unwrap()].map(str::to_owned);
            new.priority = [Priority::Low, Priority::Normal, Priority::High][usize::try_from(dice.roll(3)).unwrap()];
            new.preemptible = dice.roll(3) == 0 && teams;
            new.team = new.team.filter(|_| teams);
            new.not_before = (dice.roll(12) == 0).then(|| harness.now + dice.number(2_000));
            harness.put(new);
        }
        10..=13 => {
            // Somebody leaves, or gives up waiting.
            let count = u64::try_from(harness.servers.len()).unwrap();
            let at = usize::try_from(dice.roll(count)).unwrap();
            if let Some(id) = harness.servers.keys().nth(at).cloned() {
                harness.remove(&id);
            }
        }
        14 => {
            let count = u64::try_from(harness.servers.len()).unwrap();
            let at = usize::try_from(dice.roll(count)).unwrap();
            let found =
                harness.servers.values().nth(at).filter(|server| running(server).is_some_and(|run| !run.leaving));
            if let Some(mut server) = found.cloned() {
                if let State::Running(running) = &mut server.state {
                    running.end = running.end.map(|end| end + 600);
                }
                harness.put(Server { lifetime: server.lifetime.map(|lifetime| lifetime + 600), ..server });
            }
        }
        15 if dice.roll(10) == 0 => harness.close(&format!("n{}", dice.roll(5))),
        _ => {
            let closed = harness.nodes.values().find(|node| node.service != odc_core::scheduler::Service::Open);
            if let Some(name) = closed.map(|node| node.name.clone()).filter(|_| dice.roll(8) == 0) {
                harness.open(&name);
            }
        }
    }
}

#[test]
fn a_quarter_of_a_million_steps_with_teams_from_seed_1() {
    walk(0x9E37_79B9_7F4A_7C15, true);
}

#[test]
fn a_quarter_of_a_million_steps_with_teams_from_seed_2() {
    walk(0xD1B5_4A32_D192_ED03, true);
}

#[test]
fn a_quarter_of_a_million_steps_without_from_seed_3() {
    walk(0x94D0_49BB_1331_11EB, false);
}

#[test]
fn a_quarter_of_a_million_steps_without_from_seed_4() {
    walk(0xBF58_476D_1CE4_E5B9, false);
}
