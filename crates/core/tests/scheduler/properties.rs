//! What holds in every world.

use std::collections::BTreeMap;

use odc_api::v1alpha1::Priority;
use odc_core::scheduler::{Event, Plan, Policy, Server, State, Stop};
use proptest::prelude::*;

use super::harness::{Harness, ZONE, node, running, server, without_shares};

#[derive(Clone, Debug)]
enum Change {
    Come {
        gpus: i64,
        life: i64,
        nodes: u32,
        zone: bool,
        team: usize,
        priority: usize,
        preemptible: bool,
        booked: Option<i64>,
    },
    Leave(usize),
    Extend(usize),
    Close(usize),
    Open(usize),
    Pass(i64),
}

fn any_change() -> impl Strategy<Value = Change> {
    let come = (
        1..=8_i64,
        10..600_i64,
        prop_oneof![5 => Just(1_u32), 1 => 2..=3_u32],
        any::<bool>(),
        0..3_usize,
        0..3_usize,
        prop::bool::weighted(0.3),
        prop::option::weighted(0.1, 1..400_i64),
    )
        .prop_map(|(gpus, life, nodes, zone, team, priority, preemptible, booked)| Change::Come {
            gpus,
            life,
            nodes,
            zone,
            team,
            priority,
            preemptible,
            booked,
        });
    prop_oneof![
        6 => come,
        2 => (0..20_usize).prop_map(Change::Leave),
        1 => (0..20_usize).prop_map(Change::Extend),
        1 => (0..4_usize).prop_map(Change::Close),
        1 => (0..4_usize).prop_map(Change::Open),
        4 => (1..300_i64).prop_map(Change::Pass),
    ]
}

fn start(policy: Policy) -> Harness {
    let mut harness = Harness::new(policy);
    for (number, zone) in ["a", "a", "b", "b"].into_iter().enumerate() {
        harness.node(node(&format!("n{number}"), 8, zone));
    }
    harness.team("one", Some(12), Some(8));
    harness.team("two", Some(10), None);
    harness
}

fn make(harness: &mut Harness, number: usize, change: &Change) {
    let nth = |harness: &Harness, at: usize| harness.servers.keys().nth(at).cloned();
    match change {
        Change::Come { gpus, life, nodes, zone, team, priority, preemptible, booked } => {
            let mut new = server(&format!("s{number:03}"), *gpus, *life, harness.now);
            new.ask.nodes = *nodes;
            new.ask.topology = zone.then(|| ZONE.to_owned());
            new.team = [None, Some("one"), Some("two")][*team].map(str::to_owned);
            new.priority = [Priority::Low, Priority::Normal, Priority::High][*priority];
            new.preemptible = *preemptible;
            new.not_before = booked.map(|later| harness.now + later);
            harness.put(new);
        }
        Change::Leave(at) => {
            if let Some(id) = nth(harness, *at) {
                harness.remove(&id);
            }
        }
        Change::Extend(at) => {
            if let Some(mut server) = nth(harness, *at).map(|id| harness.servers[&id].clone())
                && let State::Running(running) = &mut server.state
            {
                running.end = running.end.map(|end| end + 50);
                harness.put(server);
            }
        }
        Change::Close(at) => harness.close(&format!("n{at}")),
        Change::Open(at) => harness.open(&format!("n{at}")),
        Change::Pass(time) => {
            harness.now += time;
            harness.expire();
        }
    }
}

fn starts(plan: &Plan) -> BTreeMap<String, Option<i64>> {
    plan.waits.iter().map(|wait| (wait.id.clone(), wait.start)).collect()
}

/// What people are told, in words.
fn told(plan: &Plan) -> Vec<(String, Option<u32>, Option<i64>, &'static str)> {
    plan.waits.iter().map(|wait| (wait.id.clone(), wait.position, wait.start, wait.stop.word())).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// What was told bit by bit, with plans in between, and what is told at once lead to the same plan; so does telling it
    /// in another order.
    #[test]
    fn a_plan_depends_on_what_is_so_and_not_on_how_it_came_about(changes in prop::collection::vec(any_change(), 1..40)) {
        let mut harness = start(without_shares());
        for (number, change) in changes.iter().enumerate() {
            make(&mut harness, number, change);
            let mut anew = harness.told_anew();
            let expect = anew.plan(&harness.policy, harness.now);
            let plan = harness.plan();
            prop_assert_eq!(&plan.grants, &expect.grants);
            prop_assert_eq!(told(&plan), told(&expect));
            prop_assert_eq!(&plan.preemptions, &expect.preemptions);
            prop_assert_eq!(&plan.booked, &expect.booked);
            harness.carry_out(&plan);
        }
    }

    #[test]
    fn a_plan_that_was_carried_out_leaves_nothing_to_decide(changes in prop::collection::vec(any_change(), 1..40)) {
        let mut harness = start(Policy::default());
        for (number, change) in changes.iter().enumerate() {
            make(&mut harness, number, change);
            let plan = harness.plan();
            harness.carry_out(&plan);
            let second = harness.plan();
            prop_assert!(second.grants.is_empty() && second.preemptions.is_empty() && second.booked.is_empty(), "{:?}", second);
            // A second look may find something earlier for somebody, as long as others are not asked to pay for it.
            if plan.booked.is_empty() && plan.preemptions.is_empty() {
                let (first, then) = (starts(&plan), starts(&second));
                let later = then.iter().find(|(id, start)| {
                    let before = first.get(*id).copied().flatten();
                    before.is_some_and(|before| start.is_none_or(|start| start > before))
                });
                prop_assert_eq!(later, None);
                prop_assert_eq!(second.moved.len(), 0);
            }
        }
    }

    /// Where everybody stays as long as they may and nobody has a better right, every planned start is kept: nobody who
    /// starts before somebody else delays them.
    #[test]
    fn backfill_delays_nobody(
        comes in prop::collection::vec((1..=8_i64, 10..300_i64, 1..=2_u32, 0..60_i64), 1..25),
    ) {
        let mut harness = start(without_shares());
        let mut promised: BTreeMap<String, i64> = BTreeMap::new();
        let mut at = 0;
        let mut comes: std::collections::VecDeque<(usize, i64, (i64, i64, u32))> = comes
            .into_iter()
            .enumerate()
            .map(|(number, (gpus, life, nodes, after))| {
                at += after;
                (number, at, (gpus, life, nodes))
            })
            .collect();
        while !comes.is_empty() || !harness.servers.is_empty() {
            let arrival = comes.front().map(|(_, at, _)| *at);
            let end = harness.servers.values().filter_map(|server| running(server)?.end).min();
            harness.now = arrival.into_iter().chain(end).min().expect("somebody runs while somebody waits");
            harness.expire();
            while let Some((number, _, (gpus, life, nodes))) = comes.pop_front_if(|(_, at, _)| *at <= harness.now) {
                let mut new = server(&format!("s{number:03}"), gpus, life, harness.now);
                new.ask.nodes = nodes;
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
            make(&mut harness, number, change);
            let plan = harness.plan();
            harness.carry_out(&plan);
        }
        (0..4).for_each(|number| harness.open(&format!("n{number}")));
        for _ in 0..500 {
            harness.now += 60;
            harness.expire();
            let plan = harness.plan();
            harness.carry_out(&plan);
        }
        let plan = harness.plan();
        for wait in &plan.waits {
            let server = &harness.servers[&wait.id];
            let never = matches!(wait.stop, Stop::Never);
            let too_much = matches!(wait.stop, Stop::Quota(_)) && server.ask.devices() > 10;
            prop_assert!(never || too_much, "{wait:?} of {server:?}");
        }
    }

    /// Two that differ in nothing but their arrival never change places.
    #[test]
    fn equals_never_overtake(changes in prop::collection::vec(any_change(), 1..40)) {
        let mut harness = start(Policy::default());
        for (number, change) in changes.iter().enumerate() {
            make(&mut harness, number, change);
            let plan = harness.plan();
            let like = |server: &Server| {
                let ask = (server.ask.clone(), server.owner.clone(), server.team.clone(), server.priority, server.lifetime);
                (ask, server.preemptible, server.not_before, server.preemptions)
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
            make(&mut harness, number, change);
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
