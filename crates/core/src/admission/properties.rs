//! Properties of plans for arbitrary clusters. Expectations are computed independently of the scheduler.

mod clusters;

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::jiff::Timestamp;
use odc_api::v1alpha1::{Admission, DevServerFlavor, Quota};
use proptest::prelude::*;

use super::fixtures::{Cluster, GPU, amounts, time};
use super::{Action, Decision, QueueIntent, REJECTION_TTL, Request, Server};
use crate::cluster::{Node, Pod, Readiness};
use crate::flavor;
use crate::resources::Resources;
use clusters::{any_cluster, any_node, any_request, numbered};

fn find<'a>(cluster: &'a Cluster, decision: &Decision) -> &'a Server {
    cluster.servers.iter().find(|server| server.uid == decision.uid).unwrap()
}

fn assigned_nodes(server: &Server) -> &[String] {
    server.admission.as_ref().map_or(&[], |admission| &admission.nodes)
}

fn list(amounts: &Resources) -> [i64; 4] {
    [amounts.cpu, amounts.memory, amounts.pods, amounts.device(GPU)]
}

/// Returns what a node assignment uses in addition to bound pods.
fn unbound(cluster: &Cluster, server: &Server, ordinal: usize, node: &str) -> [i64; 4] {
    let name = format!("{}-{ordinal}", server.name);
    let run = server.admission.as_ref().map(|admission| admission.run);
    let per_node = list(&server.request.per_node);
    let of_run = |pod: &&Pod| pod.name == name && pod.server.as_ref().is_some_and(|server| server.run == run);
    let Some(pod) = cluster.pods.iter().find(of_run).filter(|pod| !pod.is_terminated()) else { return per_node };
    match pod.node.as_deref() {
        Some(_) if pod.deletion_timestamp.is_none() => [0; 4],
        Some(on) if on == node => {
            let before = list(&pod.requests);
            std::array::from_fn(|index| (per_node[index] - before[index]).max(0))
        }
        _ => per_node,
    }
}

/// Returns what bound pods and all assignments use on a node.
fn used(cluster: &Cluster, node: &str) -> [i64; 4] {
    let bound = cluster.pods.iter().filter(|pod| pod.node.as_deref() == Some(node) && !pod.is_terminated());
    let mut used: [i64; 4] = [0; 4];
    let mut add = |amounts: [i64; 4]| used.iter_mut().zip(amounts).for_each(|(used, more)| *used += more);
    bound.for_each(|pod| add(list(&pod.requests)));
    for server in &cluster.servers {
        for (ordinal, on) in assigned_nodes(server).iter().enumerate().filter(|(_, on)| *on == node) {
            add(unbound(cluster, server, ordinal, on));
        }
    }
    used
}

fn allocatable(cluster: &Cluster, node: &str) -> Option<[i64; 4]> {
    cluster.nodes.iter().find(|known| known.name == node).map(|node| list(&node.allocatable))
}

/// Reports whether a node matches a request, apart from what is free on it.
fn matches_request(node: &Node, request: &Request) -> bool {
    node.readiness == Readiness::Ready
        && !node.cordoned
        && (node.taints.is_empty() || !request.tolerations.is_empty())
        && request.selector.iter().all(|(key, value)| node.labels.get(key) == Some(value))
}

fn order(server: &Server) -> (i64, &str, &str) {
    (server.queued_at.as_second(), &server.namespace, &server.name)
}

fn is_short_of_capacity(admission: &Admission) -> bool {
    matches!(admission.reason.as_deref(), Some("InsufficientCapacity" | "Fragmented"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn assignments_never_exceed_node_capacity(cluster in any_cluster()) {
        let plan = cluster.plan();
        let after = cluster.clone().after(&plan);
        for server in after.servers.iter().filter(|server| server.intent != QueueIntent::Stopped && !server.ended) {
            for (ordinal, node) in assigned_nodes(server).iter().enumerate() {
                let (used, missing) = (used(&after, node), unbound(&after, server, ordinal, node));
                let have = allocatable(&after, node).unwrap();
                for ((used, missing), have) in used.into_iter().zip(missing).zip(have) {
                    prop_assert!(missing == 0 || used <= have, "{}: {used} of {have} used", node);
                }
            }
        }
    }

    #[test]
    fn gang_gets_all_nodes_in_one_domain(cluster in any_cluster()) {
        for decision in cluster.plan().decisions.iter().filter(|decision| decision.action == Action::Admit) {
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
    fn assigned_nodes_match_and_did_not_reject(cluster in any_cluster()) {
        for decision in cluster.plan().decisions.iter().filter(|decision| decision.action == Action::Admit) {
            let server = find(&cluster, decision);
            prop_assert!(server.intent == QueueIntent::Run && !server.ended);
            for name in &decision.admission.nodes {
                let node = cluster.nodes.iter().find(|node| node.name == *name).unwrap();
                prop_assert!(matches_request(node, &server.request), "{:?} does not match {:?}", node, server);
                let mut rejections = cluster.node_rejections.for_server(&server.uid);
                let is_fresh = |at| cluster.now.duration_since(at) < REJECTION_TTL.try_into().unwrap();
                prop_assert!(!rejections.any(|rejection| rejection.node == *name && is_fresh(rejection.at)));
            }
        }
    }

    #[test]
    fn equal_servers_never_overtake(cluster in any_cluster()) {
        let after = cluster.clone().after(&cluster.plan());
        let was_pending = |server: &&Server| {
            let is_unrejected = cluster.node_rejections.for_server(&server.uid).next().is_none();
            is_unrejected && server.intent == QueueIntent::Run && !server.ended && assigned_nodes(server).is_empty()
        };
        for early in cluster.servers.iter().filter(was_pending) {
            for late in cluster.servers.iter().filter(was_pending).filter(|late| order(late) > order(early)) {
                let equal = (&early.request, &early.owner, &early.team) == (&late.request, &late.owner, &late.team);
                let is_admitted = |server: &Server| {
                    after.servers.iter().any(|known| known.uid == server.uid && !assigned_nodes(known).is_empty())
                };
                prop_assert!(!equal || !is_admitted(late) || is_admitted(early), "{} overtook {}", late.name, early.name);
            }
        }
    }

    #[test]
    fn node_that_earlier_server_waits_for_is_not_assigned(cluster in any_cluster()) {
        let plan = cluster.plan();
        let without_foreign_pods = |node: &Node| {
            let others = cluster.pods.iter().filter(|pod| pod.server.is_none() && pod.deletion_timestamp.is_none());
            let here = others.filter(|pod| pod.node.as_ref() == Some(&node.name) && !pod.is_terminated());
            here.fold(node.allocatable.clone(), |left, pod| left.saturating_sub(&pod.requests))
        };
        let pending = cluster.clone().after(&plan).servers.into_iter().filter(|server| {
            let admission = server.admission.as_ref();
            let is_unrejected = plan.node_rejections.for_server(&server.uid).next().is_none();
            is_unrejected && server.request.nodes == 1 && server.is_pending() && admission.is_some_and(is_short_of_capacity)
        });
        for early in pending {
            for decision in plan.decisions.iter().filter(|decision| decision.action == Action::Admit) {
                let late = find(&cluster, decision);
                for node in cluster.nodes.iter().filter(|node| decision.admission.nodes.contains(&node.name)) {
                    let is_wanted = matches_request(node, &early.request) && without_foreign_pods(node).fits(&early.request.per_node);
                    prop_assert!(order(late) < order(&early) || !is_wanted, "{} is assigned {}", late.name, node.name);
                }
            }
        }
    }

    #[test]
    fn admission_never_exceeds_quota(cluster in any_cluster()) {
        let plan = cluster.plan();
        let after = cluster.clone().after(&plan);
        for decision in plan.decisions.iter().filter(|decision| decision.action == Action::Admit) {
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
                let admitted = || servers.iter().filter(|server| !assigned_nodes(server).is_empty());
                let sum = |amount: fn(&Resources) -> i64| -> i64 {
                    admitted().map(|server| amount(&server.request.per_node) * i64::from(server.request.nodes)).sum()
                };
                let (devices, cpu) = (sum(|amounts| amounts.device(GPU)), sum(|amounts| amounts.cpu));
                if let Some(limit) = quota.devices.filter(|_| server.request.per_node.device(GPU) > 0) {
                    prop_assert!(devices <= i64::from(limit), "{devices} devices of {limit}");
                }
                if let Some(limit) = quota.cpu {
                    prop_assert!(cpu <= limit.milli_value(), "{cpu} of {limit}");
                }
                if let Some(limit) = quota.servers {
                    let before = servers.iter().filter(|other| !other.ended && order(other) < order(server)).count();
                    prop_assert!(before < usize::try_from(limit).unwrap(), "{before} servers before, limit {limit}");
                }
            }
        }
    }

    #[test]
    fn pending_server_has_position_and_reason(cluster in any_cluster()) {
        let after = cluster.clone().after(&cluster.plan());
        let mut pending: Vec<_> = after.servers.iter().filter(|server| server.is_pending()).collect();
        pending.sort_by_key(|server| order(server));
        for (server, position) in pending.into_iter().zip(1..) {
            let admission = server.admission.as_ref().unwrap();
            prop_assert_eq!(admission.position, Some(position));
            prop_assert!(admission.reason.is_some() && admission.queued_at.is_some());
            let message = admission.message.as_ref().unwrap().as_str();
            prop_assert!(message.ends_with('.') && message.len() > 10, "{}", message);
        }
    }

    #[test]
    fn admission_on_lost_node_is_revoked(cluster in any_cluster()) {
        let after = cluster.clone().after(&cluster.plan());
        for server in after.servers.iter().filter(|server| server.intent != QueueIntent::Stopped && !server.ended) {
            for name in assigned_nodes(server) {
                let node = after.nodes.iter().find(|node| node.name == *name);
                let is_lost = match node.map(|node| node.readiness) {
                    None => true,
                    Some(Readiness::Unready(since)) => since <= time(3_000),
                    Some(_) => false,
                };
                prop_assert!(!is_lost, "{} is assigned to {}", name, server.name);
            }
        }
    }

    #[test]
    fn counters_never_decrease_and_runs_count_admissions(cluster in any_cluster()) {
        for decision in cluster.plan().decisions {
            let before = find(&cluster, &decision).admission.clone().unwrap_or_default();
            let admissions = i64::from(decision.action == Action::Admit);
            prop_assert_eq!(decision.admission.run, before.run + admissions);
            prop_assert_eq!(decision.admission.epoch, before.epoch.max(cluster.policy.epoch));
            prop_assert_ne!(decision.admission, before);
        }
    }

    #[test]
    fn plan_does_not_depend_on_order_of_snapshot(cluster in any_cluster(), rotation in 0..9_usize) {
        let mut reordered = cluster.clone();
        reordered.nodes.reverse();
        reordered.pods.reverse();
        reordered.servers.reverse();
        let rotation = rotation.min(reordered.servers.len());
        reordered.servers.rotate_left(rotation);
        let (one, other) = (reordered.plan(), cluster.plan());
        prop_assert_eq!(one.decisions, other.decisions);
        prop_assert_eq!((one.new_rejections, one.node_rejections, one.requeue), (other.new_rejections, other.node_rejections, other.requeue));
    }

    #[test]
    fn applied_plan_leaves_nothing_to_decide(cluster in any_cluster()) {
        let plan = cluster.plan();
        let is_revoked = plan.decisions.iter().any(|decision| matches!(decision.action, Action::Revoke(_)));
        let after = cluster.after(&plan);
        let second = after.plan();
        prop_assert!(is_revoked || second.decisions.is_empty(), "{:#?}", second.decisions);
        let second_revokes = second.decisions.iter().any(|decision| matches!(decision.action, Action::Revoke(_)));
        prop_assert!(!second_revokes, "{:#?}", second.decisions);
        let third = after.after(&second).plan();
        prop_assert!(third.decisions.is_empty(), "{:#?}", third.decisions);
    }

    /// A leader change may follow any write: the next leader keeps the admissions that were written.
    #[test]
    fn partially_applied_plan_keeps_admissions(cluster in any_cluster(), share in 0..=100_usize) {
        let mut plan = cluster.plan();
        let admitted: Vec<String> = {
            plan.decisions.truncate(plan.decisions.len() * share / 100);
            let admitted = plan.decisions.iter().filter(|decision| decision.action == Action::Admit);
            admitted.map(|decision| decision.uid.clone()).collect()
        };
        let second = cluster.after(&plan).plan();
        for decision in second.decisions {
            prop_assert!(!admitted.contains(&decision.uid), "{:?}", decision);
        }
    }

    #[test]
    fn satisfiable_servers_are_eventually_admitted(
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
            for server in cluster.servers.iter_mut().filter(|server| server.is_admitted()) {
                server.ended = true;
            }
        }
        for server in cluster.servers.iter().filter(|server| !server.ended) {
            let reason = server.admission.as_ref().and_then(|admission| admission.reason.clone());
            prop_assert_eq!(reason.as_deref(), Some("Unsatisfiable"));
        }
    }
}

fn any_amounts() -> impl Strategy<Value = Resources> {
    let amount = || prop_oneof![any::<i64>(), Just(i64::MAX), Just(i64::MIN), Just(0), 0..10_i64];
    (amount(), amount(), amount(), amount())
        .prop_map(|(cpu, memory, pods, gpus)| amounts(cpu, memory, pods).with_device(GPU, gpus))
}

proptest! {
    #[test]
    fn extreme_values_do_not_panic(
        cluster in any_cluster(),
        extreme in prop::collection::vec(any_amounts(), 30),
        nodes in any::<u32>(),
        since in prop_oneof![Just(i64::MIN), Just(i64::MAX), any::<i64>()],
        epoch in any::<i64>(),
        run in any::<i64>(),
    ) {
        let mut cluster = cluster;
        let mut extreme = extreme.into_iter().cycle();
        let mut next = || extreme.next().unwrap();
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
            server.request.per_node = next();
            server.queued_at = Timestamp::from_second(bounded).unwrap();
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
        after.policy.node_lost_timeout = std::time::Duration::MAX;
        after.policy.unschedulable_timeout = std::time::Duration::ZERO;
        let _ = after.plan();
        for mut flavor in [DevServerFlavor::test(), DevServerFlavor::test_cpu()] {
            flavor.spec.node_selector = BTreeMap::new();
            let capacity = flavor::FlavorCapacities::new(&after.snapshot()).of(&flavor);
            prop_assert!(capacity.free >= 0 && capacity.largest_block >= 0 && capacity.total >= 0);
        }
    }
}
