//! What holds in every world, however odd. What is expected is counted here anew, with no code of the scheduler.

mod worlds;

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::jiff::Timestamp;
use odc_api::v1alpha1::{Admission, DevServerFlavor, Quota};
use proptest::prelude::*;

use super::fixtures::{Cluster, GPU, amounts, time};
use super::{Decision, Request, Server, Want, What};
use crate::amounts::Amounts;
use crate::flavor;
use crate::seen::{Node, Pod, Readiness};
use worlds::{any_cluster, any_node, any_request, numbered};

// What is so, counted plainly.

fn find<'a>(cluster: &'a Cluster, decision: &Decision) -> &'a Server {
    cluster.servers.iter().find(|server| server.uid == decision.uid).unwrap()
}

fn granted_nodes(server: &Server) -> &[String] {
    server.admission.as_ref().map_or(&[], |admission| &admission.nodes)
}

fn list(amounts: &Amounts) -> [i64; 4] {
    [amounts.cpu, amounts.memory, amounts.pods, amounts.device(GPU)]
}

/// What a slot of a grant takes besides the pods that are counted anyway.
fn unbound(cluster: &Cluster, server: &Server, ordinal: usize, node: &str) -> [i64; 4] {
    let name = format!("{}-{ordinal}", server.name);
    let run = server.admission.as_ref().map(|admission| admission.run);
    let each = list(&server.request.each);
    let of_run = |pod: &&Pod| pod.name == name && pod.server.as_ref().is_some_and(|server| server.run == run);
    let Some(pod) = cluster.pods.iter().find(of_run).filter(|pod| !pod.is_over()) else { return each };
    match pod.node.as_deref() {
        Some(_) if pod.deleting.is_none() => [0; 4],
        Some(on) if on == node => {
            let before = list(&pod.requests);
            std::array::from_fn(|at| (each[at] - before[at]).max(0))
        }
        _ => each,
    }
}

/// What pods that are bound and all grants take of a node.
fn used(cluster: &Cluster, node: &str) -> [i64; 4] {
    let bound = cluster.pods.iter().filter(|pod| pod.node.as_deref() == Some(node) && !pod.is_over());
    let mut used: [i64; 4] = [0; 4];
    let mut add = |amounts: [i64; 4]| used.iter_mut().zip(amounts).for_each(|(used, more)| *used += more);
    bound.for_each(|pod| add(list(&pod.requests)));
    for server in &cluster.servers {
        for (ordinal, on) in granted_nodes(server).iter().enumerate().filter(|(_, on)| *on == node) {
            add(unbound(cluster, server, ordinal, on));
        }
    }
    used
}

fn allocatable(cluster: &Cluster, node: &str) -> Option<[i64; 4]> {
    cluster.nodes.iter().find(|known| known.name == node).map(|node| list(&node.allocatable))
}

/// Whether a node is right for a request, apart from what is free on it.
fn right(node: &Node, request: &Request) -> bool {
    node.readiness == Readiness::Ready
        && !node.cordoned
        && (node.taints.is_empty() || !request.tolerations.is_empty())
        && request.selector.iter().all(|(key, value)| node.labels.get(key) == Some(value))
}

fn order(server: &Server) -> (i64, &str, &str) {
    (server.since.as_second(), &server.namespace, &server.name)
}

fn shortage(admission: &Admission) -> bool {
    matches!(admission.reason.as_deref(), Some("InsufficientCapacity" | "Fragmented"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn no_node_is_promised_more_than_it_has(cluster in any_cluster()) {
        let plan = cluster.plan();
        let after = cluster.clone().after(&plan);
        for server in after.servers.iter().filter(|server| server.want != Want::Rest && !server.ended) {
            for (ordinal, node) in granted_nodes(server).iter().enumerate() {
                let (used, missing) = (used(&after, node), unbound(&after, server, ordinal, node));
                let have = allocatable(&after, node).unwrap();
                for ((used, missing), have) in used.into_iter().zip(missing).zip(have) {
                    prop_assert!(missing == 0 || used <= have, "{} has {have} and gave {used}", node);
                }
            }
        }
    }

    #[test]
    fn a_gang_gets_all_its_nodes_and_they_agree(cluster in any_cluster()) {
        for decision in cluster.plan().decisions.iter().filter(|decision| decision.what == What::Grant) {
            let request = &find(&cluster, decision).request;
            let nodes: BTreeSet<&String> = decision.admission.nodes.iter().collect();
            prop_assert_eq!(decision.admission.nodes.len(), request.nodes());
            prop_assert_eq!(nodes.len(), request.nodes());
            if request.nodes > 1 && let Some(label) = &request.topology {
                let value = |name: &&String| {
                    cluster.nodes.iter().find(|node| node.name == **name).unwrap().labels.get(label).cloned()
                };
                let values: BTreeSet<_> = nodes.iter().map(value).collect();
                prop_assert!(values.len() == 1 && !values.contains(&None), "{:?}", values);
            }
        }
    }

    #[test]
    fn grants_go_to_nodes_that_take_them(cluster in any_cluster()) {
        for decision in cluster.plan().decisions.iter().filter(|decision| decision.what == What::Grant) {
            let server = find(&cluster, decision);
            prop_assert!(server.want == Want::Run && !server.ended);
            for name in &decision.admission.nodes {
                let node = cluster.nodes.iter().find(|node| node.name == *name).unwrap();
                prop_assert!(right(node, &server.request), "{:?} does not suit {:?}", node, server);
                let mut refusals = cluster.unfit.of_server(&server.uid);
                let fresh = |at| cluster.now.duration_since(at) < cluster.policy.retry_after.try_into().unwrap();
                prop_assert!(!refusals.any(|refusal| refusal.node == *name && fresh(refusal.at)));
            }
        }
    }

    #[test]
    fn equals_never_overtake(cluster in any_cluster()) {
        let after = cluster.clone().after(&cluster.plan());
        let waited = |server: &&Server| {
            let unmarked = cluster.unfit.of_server(&server.uid).next().is_none();
            unmarked && server.want == Want::Run && !server.ended && granted_nodes(server).is_empty()
        };
        for early in cluster.servers.iter().filter(waited) {
            for late in cluster.servers.iter().filter(waited).filter(|late| order(late) > order(early)) {
                let equal = (&early.request, &early.owner, &early.team) == (&late.request, &late.owner, &late.team);
                let got = |server: &Server| {
                    after.servers.iter().any(|known| known.uid == server.uid && !granted_nodes(known).is_empty())
                };
                prop_assert!(!equal || !got(late) || got(early), "{} overtook {}", late.name, early.name);
            }
        }
    }

    #[test]
    fn nobody_takes_a_node_that_an_earlier_one_waits_for(cluster in any_cluster()) {
        let plan = cluster.plan();
        let foreign_use = |node: &Node| {
            let others = cluster.pods.iter().filter(|pod| pod.server.is_none() && pod.deleting.is_none());
            let here = others.filter(|pod| pod.node.as_ref() == Some(&node.name) && !pod.is_over());
            here.fold(node.allocatable.clone(), |left, pod| left.minus(&pod.requests))
        };
        let waiting = cluster.clone().after(&plan).servers.into_iter().filter(|server| {
            let admission = server.admission.as_ref();
            let unmarked = plan.unfit.of_server(&server.uid).next().is_none();
            unmarked && server.request.nodes == 1 && server.waits() && admission.is_some_and(shortage)
        });
        for early in waiting {
            for decision in plan.decisions.iter().filter(|decision| decision.what == What::Grant) {
                let late = find(&cluster, decision);
                for node in cluster.nodes.iter().filter(|node| decision.admission.nodes.contains(&node.name)) {
                    let wanted = right(node, &early.request) && foreign_use(node).holds(&early.request.each);
                    prop_assert!(order(late) < order(&early) || !wanted, "{} got {}", late.name, node.name);
                }
            }
        }
    }

    #[test]
    fn quotas_are_never_exceeded_by_a_grant(cluster in any_cluster()) {
        let plan = cluster.plan();
        let after = cluster.clone().after(&plan);
        for decision in plan.decisions.iter().filter(|decision| decision.what == What::Grant) {
            let server = find(&after, decision);
            let user = cluster.accounts.users.get(&server.owner).map(|account| &account.quota);
            let team = server.team.as_ref().and_then(|team| cluster.accounts.teams.get(team)).map(|account| &account.quota);
            let of_user = |other: &&Server| other.owner == server.owner;
            let of_team = |other: &&Server| other.team == server.team;
            let all: Vec<(&Quota, Vec<&Server>)> = [
                user.map(|quota| (quota, after.servers.iter().filter(of_user).collect())),
                team.map(|quota| (quota, after.servers.iter().filter(of_team).collect())),
            ]
            .into_iter()
            .flatten()
            .collect();
            for (quota, servers) in all {
                let holding = || servers.iter().filter(|server| !granted_nodes(server).is_empty());
                let sum = |each: fn(&Amounts) -> i64| -> i64 {
                    holding().map(|server| each(&server.request.each) * i64::from(server.request.nodes)).sum()
                };
                let (devices, cpu) = (sum(|each| each.device(GPU)), sum(|each| each.cpu));
                if let Some(limit) = quota.devices.filter(|_| server.request.each.device(GPU) > 0) {
                    prop_assert!(devices <= i64::from(limit), "{devices} devices of {limit}");
                }
                if let Some(limit) = quota.cpu {
                    prop_assert!(cpu <= limit.milli_value(), "{cpu} of {limit}");
                }
                if let Some(limit) = quota.servers {
                    let before = servers.iter().filter(|other| !other.ended && order(other) < order(server)).count();
                    prop_assert!(before < usize::try_from(limit).unwrap(), "{before} before it, of {limit}");
                }
            }
        }
    }

    #[test]
    fn whoever_waits_knows_why_and_where(cluster in any_cluster()) {
        let after = cluster.clone().after(&cluster.plan());
        let mut waiting: Vec<_> = after.servers.iter().filter(|server| server.waits()).collect();
        waiting.sort_by_key(|server| order(server));
        for (server, place) in waiting.into_iter().zip(1..) {
            let admission = server.admission.as_ref().unwrap();
            prop_assert_eq!(admission.position, Some(place));
            prop_assert!(admission.reason.is_some() && admission.queued_at.is_some());
            let message = admission.message.as_ref().unwrap().as_str();
            prop_assert!(message.ends_with('.') && message.len() > 10, "{}", message);
        }
    }

    #[test]
    fn what_cannot_be_kept_is_taken_back(cluster in any_cluster()) {
        let after = cluster.clone().after(&cluster.plan());
        for server in after.servers.iter().filter(|server| server.want != Want::Rest && !server.ended) {
            for name in granted_nodes(server) {
                let node = after.nodes.iter().find(|node| node.name == *name);
                let lost = match node.map(|node| node.readiness) {
                    None => true,
                    Some(Readiness::Unready(since)) => since <= time(3_000),
                    Some(_) => false,
                };
                prop_assert!(!lost, "{} is granted to {}", name, server.name);
            }
        }
    }

    #[test]
    fn numbers_never_go_down_and_runs_count_grants(cluster in any_cluster()) {
        for decision in cluster.plan().decisions {
            let before = find(&cluster, &decision).admission.clone().unwrap_or_default();
            let grants = i64::from(decision.what == What::Grant);
            prop_assert_eq!(decision.admission.run, before.run + grants);
            prop_assert_eq!(decision.admission.epoch, before.epoch.max(cluster.policy.epoch));
            prop_assert_ne!(decision.admission, before);
        }
    }

    #[test]
    fn the_same_facts_give_the_same_plan(cluster in any_cluster(), turn in 0..9_usize) {
        let mut turned = cluster.clone();
        turned.nodes.reverse();
        turned.pods.reverse();
        turned.servers.reverse();
        let by = turn.min(turned.servers.len());
        turned.servers.rotate_left(by);
        let (one, other) = (turned.plan(), cluster.plan());
        prop_assert_eq!(one.decisions, other.decisions);
        prop_assert_eq!((one.refused, one.unfit, one.again), (other.refused, other.unfit, other.again));
    }

    #[test]
    fn a_plan_that_was_carried_out_leaves_nothing_to_decide(cluster in any_cluster()) {
        let plan = cluster.plan();
        let revoked = plan.decisions.iter().any(|decision| matches!(decision.what, What::Revoke(_)));
        let after = cluster.after(&plan);
        let second = after.plan();
        prop_assert!(revoked || second.decisions.is_empty(), "{:#?}", second.decisions);
        let second_revokes = second.decisions.iter().any(|decision| matches!(decision.what, What::Revoke(_)));
        prop_assert!(!second_revokes, "{:#?}", second.decisions);
        let third = after.after(&second).plan();
        prop_assert!(third.decisions.is_empty(), "{:#?}", third.decisions);
    }

    /// Every write may be the last one before another leader takes over: whatever was written by then, it goes on to
    /// the same end, and what was granted in the meantime is kept.
    #[test]
    fn half_a_plan_is_a_fine_place_to_go_on_from(cluster in any_cluster(), share in 0..=100_usize) {
        let mut plan = cluster.plan();
        let granted: Vec<String> = {
            plan.decisions.truncate(plan.decisions.len() * share / 100);
            let granted = plan.decisions.iter().filter(|decision| decision.what == What::Grant);
            granted.map(|decision| decision.uid.clone()).collect()
        };
        let second = cluster.after(&plan).plan();
        for decision in second.decisions {
            prop_assert!(!granted.contains(&decision.uid), "{:?}", decision);
        }
    }

    #[test]
    fn everybody_who_can_be_served_is_served(
        mut nodes in numbered(5, any_node), requests in prop::collection::vec(any_request(), 0..8)
    ) {
        for node in &mut nodes {
            (node.readiness, node.cordoned) = (Readiness::Ready, false);
        }
        let mut cluster = Cluster::new(nodes);
        for (number, request) in requests.into_iter().enumerate() {
            cluster = cluster.server(&format!("s{number}"), |server| Server { request, ..server });
        }
        for _ in 0..=cluster.servers.len() {
            let plan = cluster.plan();
            cluster = cluster.after(&plan);
            for server in cluster.servers.iter_mut().filter(|server| server.is_granted()) {
                server.ended = true;
            }
        }
        for server in cluster.servers.iter().filter(|server| !server.ended) {
            let reason = server.admission.as_ref().and_then(|admission| admission.reason.clone());
            prop_assert_eq!(reason.as_deref(), Some("Unsatisfiable"));
        }
    }
}

// Absurd worlds.

fn any_amounts() -> impl Strategy<Value = Amounts> {
    let amount = || prop_oneof![any::<i64>(), Just(i64::MAX), Just(i64::MIN), Just(0), 0..10_i64];
    (amount(), amount(), amount(), amount())
        .prop_map(|(cpu, memory, pods, gpus)| amounts(cpu, memory, pods).with_device(GPU, gpus))
}

proptest! {
    #[test]
    fn nothing_panics(
        cluster in any_cluster(),
        odd in prop::collection::vec(any_amounts(), 30),
        nodes in any::<u32>(),
        since in prop_oneof![Just(i64::MIN), Just(i64::MAX), any::<i64>()],
        epoch in any::<i64>(),
        run in any::<i64>(),
    ) {
        let mut cluster = cluster;
        let mut odd = odd.into_iter().cycle();
        let mut next = || odd.next().unwrap();
        let bounded = since.clamp(-377_705_023_201, 253_402_207_200);
        for node in &mut cluster.nodes {
            node.allocatable = next();
            node.readiness = Readiness::Unready(Timestamp::from_second(bounded).unwrap());
        }
        if let Some(node) = cluster.nodes.first_mut() {
            node.readiness = Readiness::Ready;
        }
        cluster.pods.iter_mut().for_each(|pod| pod.requests = next());
        for server in &mut cluster.servers {
            server.request.each = next();
            server.since = Timestamp::from_second(bounded).unwrap();
            if let Some(admission) = &mut server.admission {
                (admission.run, admission.epoch) = (run, epoch);
            }
        }
        if let Some(server) = cluster.servers.first_mut() {
            server.request.nodes = nodes;
        }
        if let Some(server) = cluster.servers.last_mut() {
            server.request.nodes = 0;
        }
        cluster.policy.epoch = epoch;
        let mut after = cluster.clone().after(&cluster.plan());
        after.policy.lost_after = std::time::Duration::MAX;
        after.policy.refused_after = std::time::Duration::ZERO;
        let _ = after.plan();
        for mut flavor in [DevServerFlavor::test(), DevServerFlavor::test_cpu()] {
            flavor.spec.node_selector = BTreeMap::new();
            let capacity = flavor::capacity(&flavor, &after.world());
            prop_assert!(capacity.free >= 0 && capacity.largest_block >= 0 && capacity.total >= 0);
        }
    }
}
