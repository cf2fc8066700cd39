//! Properties of plans for arbitrary changes.

use std::collections::BTreeMap;

use odc_core::scheduler::{AccountSpec, ClusterState, PendingReason, Plan, Policy, ReservationSpec, Server};
use proptest::prelude::*;

use super::change::{Change, NODES, any_change, start};
use super::checked_step::ExtraChecks;
use super::harness::{Harness, running, server, without_shares};

/// Returns positions, planned starts and messages of pending servers.
pub fn explanations(state: &ClusterState, plan: &Plan) -> Vec<(String, Option<u32>, Option<i64>, String)> {
    let mut explainer = state.explainer();
    let explanations = plan.pending.iter().map(|pending| {
        let message = explainer.explain(pending).message;
        (pending.id.clone(), pending.position, pending.planned_start, message)
    });
    explanations.collect()
}

/// Returns delays without their causes, which a rebuilt state does not know.
fn delays(plan: &Plan) -> Vec<(&str, i64, Option<i64>)> {
    plan.delayed.iter().map(|delayed| (delayed.id.as_str(), delayed.from, delayed.to)).collect()
}

pub fn reservations(state: &ClusterState) -> BTreeMap<String, ReservationSpec> {
    state.reservations().map(|reservation| (reservation.server.clone(), reservation)).collect()
}

/// Reports whether there are enough nodes for a server on an empty cluster.
fn is_satisfiable(harness: &Harness, server: &Server) -> bool {
    let fitting = harness.nodes.values().filter(|node| node.capacity.fits(&server.request.per_node));
    let mut domains: BTreeMap<Option<&String>, usize> = BTreeMap::new();
    for node in fitting {
        let zone = server
            .request
            .topology
            .as_ref()
            .filter(|_| server.request.nodes > 1)
            .and_then(|label| node.labels.get(label));
        *domains.entry(zone).or_default() += 1;
    }
    domains.values().any(|nodes| *nodes >= server.request.nodes())
}

/// Reports whether a server alone exceeds a quota.
fn exceeds_quota_alone(harness: &Harness, server: &Server) -> bool {
    let nodes = i128::from(server.request.nodes);
    let (devices, flavor) = (server.request.devices(), &server.flavor);
    let (cpu, memory) =
        (i128::from(server.request.per_node.cpu) * nodes, i128::from(server.request.per_node.memory) * nodes);
    let exceeds = |account: &AccountSpec, own: &dyn Fn(&Server) -> bool| {
        let limits = &account.limits;
        let earlier = |other: &&Server| own(other) && (other.queued_at, &other.name) < (server.queued_at, &server.name);
        let before = harness.servers.values().filter(earlier).count();
        limits.devices.is_some_and(|limit| devices > limit)
            || limits.flavors.get(flavor).is_some_and(|limit| devices > *limit)
            || limits.cpu.is_some_and(|limit| cpu * 1_000_000 > limit)
            || limits.memory.is_some_and(|limit| memory * 1_000_000_000 > limit)
            || limits.servers.is_some_and(|limit| before >= usize::try_from(limit).unwrap())
    };
    let user = harness.users.get(&server.owner);
    let team = server.team.as_ref().and_then(|team| harness.teams.get(team));
    user.is_some_and(|user| exceeds(user, &|other| other.owner == server.owner))
        || team.is_some_and(|team| exceeds(team, &|other| other.team == server.team))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// A state that was built incrementally, with plans in between, gives the same plan as a rebuilt one.
    #[test]
    fn plan_does_not_depend_on_history(changes in prop::collection::vec(any_change(), 1..40)) {
        let mut harness = start(Policy { reservation_depth: 6, ..Policy::default() });
        for (number, change) in changes.iter().enumerate() {
            harness.apply_change(number, change);
            let mut rebuilt = harness.rebuilt_state();
            let expect = rebuilt.plan(&harness.policy, harness.now);
            let plan = harness.plan();
            prop_assert_eq!(&plan.assignments, &expect.assignments);
            prop_assert_eq!(&plan.preemptions, &expect.preemptions);
            prop_assert_eq!(&plan.confirmed_bookings, &expect.confirmed_bookings);
            prop_assert_eq!(plan.requeue_at, expect.requeue_at);
            prop_assert_eq!(explanations(&harness.state, &plan), explanations(&rebuilt, &expect));
            prop_assert_eq!(delays(&plan), delays(&expect));
            prop_assert_eq!(reservations(&harness.state), reservations(&rebuilt));
            harness.apply_plan(&plan);
        }
    }

    #[test]
    fn plan_is_valid_and_leaves_nothing_to_decide_when_applied(changes in prop::collection::vec(any_change(), 1..40)) {
        let mut harness = start(Policy::default());
        for (number, change) in changes.iter().enumerate() {
            harness.apply_change(number, change);
            harness.step(ExtraChecks { second_plan: true, backfill: true }).map_err(TestCaseError::fail)?;
        }
    }

    /// If all servers run for their lifetime and have equal precedence, no reservation is delayed.
    #[test]
    fn backfill_delays_no_reservation(
        arrivals in prop::collection::vec(((1..=8_i64, 1..=5_i64), 10..300_i64, 1..=2_u32, 0..60_i64, 0..3_usize), 1..25),
    ) {
        let mut harness = start(without_shares());
        let mut planned: BTreeMap<String, i64> = BTreeMap::new();
        let mut time = 0;
        let mut arrivals: std::collections::VecDeque<(i64, Server)> = arrivals
            .into_iter()
            .enumerate()
            .map(|(number, ((gpus, cores), lifetime, nodes, after, team))| {
                time += after;
                let mut new = server(&format!("s{number:03}"), gpus, lifetime, time);
                new.request.per_node.cpu = gpus * cores * 1_000;
                new.request.nodes = nodes;
                // At most the quota of the team.
                let team = if new.request.devices() > 10 { None } else { [None, Some("one"), Some("two")][team] };
                (time, Server { team: team.map(str::to_owned), ..new })
            })
            .collect();
        while !arrivals.is_empty() || !harness.servers.is_empty() {
            let arrival = arrivals.front().map(|(time, _)| *time);
            let end = harness.servers.values().filter_map(|server| running(server)?.end).min();
            harness.now = arrival.into_iter().chain(end).min().expect("a server runs while others are pending");
            harness.expire();
            while let Some((_, new)) = arrivals.pop_front_if(|(time, _)| *time <= harness.now) {
                harness.put(new);
            }
            let plan = harness.plan();
            prop_assert_eq!(&plan.delayed, &vec![]);
            for assignment in &plan.assignments {
                let latest = planned.remove(&assignment.id).unwrap_or(harness.now);
                prop_assert!(harness.now <= latest, "{} was planned for {latest}", assignment.id);
            }
            for pending in &plan.pending {
                let start = pending.planned_start.expect("all servers are within the depth and all ends are known");
                let before = planned.insert(pending.id.clone(), start);
                prop_assert!(before.is_none_or(|before| start <= before), "{} was delayed", pending.id);
            }
            harness.apply_plan(&plan);
        }
    }

    #[test]
    fn satisfiable_servers_run_eventually(changes in prop::collection::vec(any_change(), 1..30)) {
        let mut harness = start(Policy::default());
        for (number, change) in changes.iter().enumerate() {
            harness.apply_change(number, change);
            let plan = harness.plan();
            harness.apply_plan(&plan);
        }
        for number in 0..NODES {
            harness.apply_change(0, &Change::MakeSchedulable(number));
            harness.apply_change(0, &Change::ForeignUsage(number, 0, 0));
        }
        harness.set_accounts();
        let unbounded = harness.servers.values().filter(|server| server.max_hold_time.is_none());
        for id in unbounded.map(|server| server.id.clone()).collect::<Vec<_>>() {
            harness.remove(&id);
        }
        for server in harness.servers.values().filter(|server| !server.rejected_by.is_empty()).cloned().collect::<Vec<_>>() {
            harness.put(Server { rejected_by: BTreeMap::new(), ..server });
        }
        for _ in 0..500 {
            harness.now += 600;
            harness.expire();
            let plan = harness.plan();
            harness.apply_plan(&plan);
        }
        let plan = harness.plan();
        for pending in &plan.pending {
            let server = &harness.servers[&pending.id];
            let expected = match pending.reason {
                PendingReason::Unsatisfiable => !is_satisfiable(&harness, server),
                PendingReason::Quota(_) => exceeds_quota_alone(&harness, server),
                _ => false,
            };
            prop_assert!(expected, "{pending:?} of {server:?}");
        }
    }

    /// Servers that differ only in their arrival never overtake each other.
    #[test]
    fn equal_servers_never_overtake(changes in prop::collection::vec(any_change(), 1..40)) {
        let mut harness = start(Policy::default());
        for (number, change) in changes.iter().enumerate() {
            harness.apply_change(number, change);
            let plan = harness.plan();
            let kind = |server: &Server| {
                let request = (server.request.clone(), server.owner.clone(), server.team.clone(), server.priority, server.max_hold_time);
                let rest = (server.preemptible, server.not_before, server.preemptions, server.rejected_by.clone());
                (request, server.flavor.clone(), rest)
            };
            for assignment in &plan.assignments {
                let late = &harness.servers[&assignment.id];
                for pending in &plan.pending {
                    let early = &harness.servers[&pending.id];
                    let is_same = kind(early) == kind(late) && (early.queued_at, &early.name) < (late.queued_at, &late.name);
                    prop_assert!(!is_same, "{} overtook {}", assignment.id, pending.id);
                }
            }
            harness.apply_plan(&plan);
        }
    }

    /// A dry run changes nothing, and predicts the plan with the real server.
    #[test]
    fn dry_run_equals_real_plan(
        changes in prop::collection::vec(any_change(), 1..20), (gpus, lifetime) in (1..=8_i64, 10..600_i64)
    ) {
        let mut harness = start(Policy::default());
        for (number, change) in changes.iter().enumerate() {
            harness.apply_change(number, change);
            let plan = harness.plan();
            harness.apply_plan(&plan);
        }
        let new = server("zzz", gpus, lifetime, harness.now);
        let start = |plan: &Plan| {
            let assigned = plan.assignments.iter().any(|assignment| assignment.id == "zzz");
            let pending = plan.pending.iter().find(|pending| pending.id == "zzz");
            if assigned { Some(harness.now) } else { pending.and_then(|pending| pending.planned_start) }
        };
        let before = harness.clone().plan();
        let (_, dry_run) = harness.dry_run(new.clone());
        let expected = start(&dry_run);
        prop_assert_eq!(harness.clone().plan(), before);
        let mut real = harness.clone();
        real.put(new);
        prop_assert_eq!(start(&real.plan()), expected);
    }
}
