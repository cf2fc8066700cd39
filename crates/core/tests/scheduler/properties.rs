//! What holds in every world.

use std::collections::BTreeMap;

use odc_core::scheduler::{Account, Event, Plan, Policy, Promise, Server, Stop, World};
use proptest::prelude::*;

use super::change::{Change, NODES, any_change, start};
use super::harness::{Harness, running, server, without_shares};
use super::live::Also;

/// What people are told, in words.
pub fn told(world: &World, plan: &Plan) -> Vec<(String, Option<u32>, Option<i64>, String)> {
    let mut explained = world.explained();
    let told = plan.waits.iter().map(|wait| (wait.id.clone(), wait.position, wait.start, explained.why(wait).1));
    told.collect()
}

/// What moved. Why it did is in what happened, which a world that is told of the outcome does not know.
fn moved(plan: &Plan) -> Vec<(&str, i64, Option<i64>)> {
    plan.moved.iter().map(|moved| (moved.id.as_str(), moved.from, moved.to)).collect()
}

pub fn promises(world: &World) -> BTreeMap<String, Promise> {
    world.promises().map(|promise| (promise.id.clone(), promise)).collect()
}

/// Whether there are enough nodes for a server if all others were gone.
fn could_ever(harness: &Harness, server: &Server) -> bool {
    let large = harness.nodes.values().filter(|node| node.capacity.holds(&server.ask.each));
    let mut groups: BTreeMap<Option<&String>, usize> = BTreeMap::new();
    for node in large {
        let zone =
            server.ask.topology.as_ref().filter(|_| server.ask.nodes > 1).and_then(|label| node.labels.get(label));
        *groups.entry(zone).or_default() += 1;
    }
    groups.values().any(|nodes| *nodes >= server.ask.nodes())
}

/// Whether a server is more than its user or team may have, whoever else runs.
fn exceeds_alone(harness: &Harness, server: &Server) -> bool {
    let nodes = i128::from(server.ask.nodes);
    let (devices, flavor) = (server.ask.devices(), &server.flavor);
    let (cpu, memory) = (i128::from(server.ask.each.cpu) * nodes, i128::from(server.ask.each.memory) * nodes);
    let exceeds = |account: &Account, own: &dyn Fn(&Server) -> bool| {
        let limits = &account.limits;
        let earlier = |other: &&Server| own(other) && (other.queued, &other.name) < (server.queued, &server.name);
        let before = harness.servers.values().filter(earlier).count();
        limits.devices.is_some_and(|most| devices > most)
            || limits.flavors.get(flavor).is_some_and(|most| devices > *most)
            || limits.cpu.is_some_and(|most| cpu * 1_000_000 > most)
            || limits.memory.is_some_and(|most| memory * 1_000_000_000 > most)
            || limits.servers.is_some_and(|most| before >= usize::try_from(most).unwrap())
    };
    let user = harness.users.get(&server.owner);
    let team = server.team.as_ref().and_then(|team| harness.teams.get(team));
    user.is_some_and(|user| exceeds(user, &|other| other.owner == server.owner))
        || team.is_some_and(|team| exceeds(team, &|other| other.team == server.team))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// What was told bit by bit, with plans in between, and what is told at once lead to the same plan; so does telling it
    /// in another order.
    #[test]
    fn a_plan_depends_on_what_is_so_and_not_on_how_it_came_about(changes in prop::collection::vec(any_change(), 1..40)) {
        let mut harness = start(Policy { depth: 6, ..Policy::default() });
        for (number, change) in changes.iter().enumerate() {
            harness.happen(number, change);
            let mut anew = harness.told_anew();
            let expect = anew.plan(&harness.policy, harness.now);
            let plan = harness.plan();
            prop_assert_eq!(&plan.grants, &expect.grants);
            prop_assert_eq!(&plan.preemptions, &expect.preemptions);
            prop_assert_eq!(&plan.booked, &expect.booked);
            prop_assert_eq!(plan.again, expect.again);
            prop_assert_eq!(told(&harness.world, &plan), told(&anew, &expect));
            prop_assert_eq!(moved(&plan), moved(&expect));
            prop_assert_eq!(promises(&harness.world), promises(&anew));
            harness.carry_out(&plan);
        }
    }

    #[test]
    fn a_plan_keeps_every_rule_and_once_carried_out_leaves_nothing_to_decide(changes in prop::collection::vec(any_change(), 1..40)) {
        let mut harness = start(Policy::default());
        for (number, change) in changes.iter().enumerate() {
            harness.happen(number, change);
            harness.live(Also { second: true, undelayed: true }).map_err(TestCaseError::fail)?;
        }
    }

    /// Where everybody stays as long as they may and nobody has a better right, every planned start is kept: nobody who
    /// starts before somebody else delays them.
    #[test]
    fn backfill_delays_nobody(
        comes in prop::collection::vec(((1..=8_i64, 1..=5_i64), 10..300_i64, 1..=2_u32, 0..60_i64, 0..3_usize), 1..25),
    ) {
        let mut harness = start(without_shares());
        let mut promised: BTreeMap<String, i64> = BTreeMap::new();
        let mut at = 0;
        let mut comes: std::collections::VecDeque<(i64, Server)> = comes
            .into_iter()
            .enumerate()
            .map(|(number, ((gpus, cores), life, nodes, after, team))| {
                at += after;
                let mut new = server(&format!("s{number:03}"), gpus, life, at);
                new.ask.each.cpu = gpus * cores * 1_000;
                new.ask.nodes = nodes;
                // No more than the quota of the team.
                let team = if new.ask.devices() > 10 { None } else { [None, Some("one"), Some("two")][team] };
                (at, Server { team: team.map(str::to_owned), ..new })
            })
            .collect();
        while !comes.is_empty() || !harness.servers.is_empty() {
            let arrival = comes.front().map(|(at, _)| *at);
            let end = harness.servers.values().filter_map(|server| running(server)?.end).min();
            harness.now = arrival.into_iter().chain(end).min().expect("somebody runs while somebody waits");
            harness.expire();
            while let Some((_, new)) = comes.pop_front_if(|(at, _)| *at <= harness.now) {
                harness.put(new);
            }
            let plan = harness.plan();
            prop_assert_eq!(&plan.moved, &vec![]);
            for grant in &plan.grants {
                let latest = promised.remove(&grant.id).unwrap_or(harness.now);
                prop_assert!(harness.now <= latest, "{} was promised {latest}", grant.id);
            }
            for wait in &plan.waits {
                let start = wait.start.expect("all are within the depth and all ends are known");
                let before = promised.insert(wait.id.clone(), start);
                prop_assert!(before.is_none_or(|before| start <= before), "{} moved", wait.id);
            }
            harness.carry_out(&plan);
        }
    }

    #[test]
    fn whoever_can_run_runs_in_the_end(changes in prop::collection::vec(any_change(), 1..30)) {
        let mut harness = start(Policy::default());
        for (number, change) in changes.iter().enumerate() {
            harness.happen(number, change);
            let plan = harness.plan();
            harness.carry_out(&plan);
        }
        for number in 0..NODES {
            harness.happen(0, &Change::Open(number));
            harness.happen(0, &Change::Others(number, 0, 0));
        }
        harness.accounts();
        let unbounded = harness.servers.values().filter(|server| server.lifetime.is_none());
        for id in unbounded.map(|server| server.id.clone()).collect::<Vec<_>>() {
            harness.remove(&id);
        }
        for server in harness.servers.values().filter(|server| !server.unfit.is_empty()).cloned().collect::<Vec<_>>() {
            harness.put(Server { unfit: BTreeMap::new(), ..server });
        }
        for _ in 0..500 {
            harness.now += 600;
            harness.expire();
            let plan = harness.plan();
            harness.carry_out(&plan);
        }
        let plan = harness.plan();
        for wait in &plan.waits {
            let server = &harness.servers[&wait.id];
            let expected = match wait.stop {
                Stop::Never => !could_ever(&harness, server),
                Stop::Quota(_) => exceeds_alone(&harness, server),
                _ => false,
            };
            prop_assert!(expected, "{wait:?} of {server:?}");
        }
    }

    /// Two that differ in nothing but their arrival never change places, by whatever right.
    #[test]
    fn equals_never_overtake(changes in prop::collection::vec(any_change(), 1..40)) {
        let mut harness = start(Policy::default());
        for (number, change) in changes.iter().enumerate() {
            harness.happen(number, change);
            let plan = harness.plan();
            let like = |server: &Server| {
                let ask = (server.ask.clone(), server.owner.clone(), server.team.clone(), server.priority, server.lifetime);
                let rest = (server.preemptible, server.not_before, server.preemptions, server.unfit.clone());
                (ask, server.flavor.clone(), rest)
            };
            for grant in &plan.grants {
                let late = &harness.servers[&grant.id];
                for wait in &plan.waits {
                    let early = &harness.servers[&wait.id];
                    let same = like(early) == like(late) && (early.queued, &early.name) < (late.queued, &late.name);
                    prop_assert!(!same, "{} overtook {}", grant.id, wait.id);
                }
            }
            harness.carry_out(&plan);
        }
    }

    /// A question changes nothing, and the answer is what then happens.
    #[test]
    fn a_dry_run_says_what_the_request_would_get(
        changes in prop::collection::vec(any_change(), 1..20), (gpus, life) in (1..=8_i64, 10..600_i64)
    ) {
        let mut harness = start(Policy::default());
        for (number, change) in changes.iter().enumerate() {
            harness.happen(number, change);
            let plan = harness.plan();
            harness.carry_out(&plan);
        }
        let asked = server("zzz", gpus, life, harness.now);
        let before = harness.plan();
        let policy = harness.policy;
        let answer = harness.world.dry_run(asked.clone(), &policy, harness.now);
        prop_assert_eq!(harness.plan(), before);
        harness.tell(Event::Server(Box::new(asked)));
        let plan = harness.plan();
        let granted = plan.grants.iter().any(|grant| grant.id == "zzz").then_some(harness.now);
        let planned = plan.waits.iter().find(|wait| wait.id == "zzz").and_then(|wait| wait.start);
        prop_assert_eq!(answer.start, granted.or(planned));
    }
}
