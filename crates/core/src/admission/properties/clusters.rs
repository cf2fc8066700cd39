//! Arbitrary clusters: servers and pods in all states, nodes in all conditions.

use odc_api::quantity::Quantity;
use odc_api::time::to_api_precision;
use odc_api::v1alpha1::{Quota, Toleration, TolerationOperator};
use proptest::prelude::*;

use crate::admission::fixtures::{Cluster, GPU, cpu_node, foreign, labelled, server_pod, taint, time};
use crate::admission::{Fingerprint, NodeRejection, QueueIntent, Request, Server};
use crate::cluster::{Node, Pod, PodPhase, Readiness};

const ZONE: &str = "zone";
const POOL: &str = "pool";

pub(super) fn any_node(number: usize) -> impl Strategy<Value = Node> {
    let readiness = prop_oneof![
        6 => Just(Readiness::Ready),
        1 => (0..3_600_i64).prop_map(|since| Readiness::Unready(time(since))),
        1 => Just(Readiness::New),
    ];
    let zone = prop::option::of(prop_oneof![Just("a"), Just("b")]);
    (
        0..=8_i64,
        0..=16_i64,
        0..=6_i64,
        readiness,
        (zone, prop::bool::ANY),
        prop::bool::weighted(0.1),
        prop::bool::weighted(0.1),
    )
        .prop_map(move |(gpus, cores, pods, readiness, (zone, pool), tainted, cordoned)| {
            let mut node = cpu_node(&format!("n{number}"), cores, 64);
            node.allocatable = node.allocatable.with_device(GPU, gpus);
            node.allocatable.pods = pods;
            (node.readiness, node.cordoned) = (readiness, cordoned);
            node.taints = if tainted { vec![taint("dedicated:NoSchedule")] } else { vec![] };
            let node = if pool { labelled(node, POOL, "x") } else { node };
            zone.map_or(node.clone(), |zone| labelled(node, ZONE, zone))
        })
}

fn any_foreign(number: usize) -> impl Strategy<Value = Pod> {
    (0..6_usize, 0..=3_i64, 0..=4_i64, prop::bool::weighted(0.2), prop::bool::weighted(0.2)).prop_map(
        move |(node, gpus, cores, terminated, deleting)| {
            let mut pod = foreign(&format!("p{number}"), &format!("n{node}"), gpus);
            pod.requests.cpu = cores * 1_000;
            pod.phase = if terminated { PodPhase::Succeeded } else { PodPhase::Running };
            pod.deletion_timestamp = deleting.then(|| time(3_500));
            pod
        },
    )
}

pub(super) fn any_request() -> impl Strategy<Value = Request> {
    let nodes = prop_oneof![4 => Just(1_u32), 1 => 2..=3_u32];
    (0..=8_i64, 1..=6_i64, nodes, prop::bool::ANY, prop::bool::weighted(0.3), prop::bool::ANY).prop_map(
        |(gpus, cores, nodes, topology, pool, tolerant)| {
            let server = Server::test("s", 0).nodes(nodes);
            let server = if pool { server.selects(POOL, "x") } else { server };
            let mut server = if gpus == 0 { server.cpus(cores, 1) } else { server.gpus(gpus) };
            let toleration = Toleration { key: None, operator: TolerationOperator::Exists, value: None, effect: None };
            server.request.tolerations = if tolerant { vec![toleration] } else { vec![] };
            server.request.topology = topology.then(|| ZONE.to_owned());
            server.request
        },
    )
}

/// The state of the pod of an assigned node.
#[derive(Clone, Copy, Debug)]
enum PodState {
    NotCreated,
    Pending,
    Unschedulable(i64),
    Bound,
    BoundElsewhere,
    Terminated,
    Terminating,
    OfEarlierRun,
}

fn any_pod_state() -> impl Strategy<Value = PodState> {
    prop_oneof![
        2 => Just(PodState::NotCreated),
        1 => Just(PodState::Pending),
        1 => (3_560..3_600_i64).prop_map(PodState::Unschedulable),
        4 => Just(PodState::Bound),
        1 => Just(PodState::BoundElsewhere),
        1 => Just(PodState::Terminated),
        1 => Just(PodState::Terminating),
        1 => Just(PodState::OfEarlierRun),
    ]
}

fn pod(server: &Server, ordinal: usize, node: &str, state: PodState) -> Option<Pod> {
    let mut pod = server_pod(server, ordinal, 1);
    match state {
        PodState::NotCreated => return None,
        PodState::Pending => {}
        PodState::Unschedulable(since) => pod.server.as_mut()?.unschedulable_since = Some(time(since)),
        PodState::Bound => pod.node = Some(node.to_owned()),
        PodState::BoundElsewhere => pod.node = Some("n0".to_owned()),
        PodState::Terminated => (pod.node, pod.phase) = (Some(node.to_owned()), PodPhase::Failed),
        PodState::Terminating => (pod.node, pod.deletion_timestamp) = (Some(node.to_owned()), Some(time(3_550))),
        PodState::OfEarlierRun => {
            pod.node = Some(node.to_owned());
            pod.server.as_mut()?.run = Some(0);
        }
    }
    Some(pod)
}

fn any_intent() -> impl Strategy<Value = QueueIntent> {
    prop_oneof![6 => Just(QueueIntent::Run), 1 => Just(QueueIntent::Postponed), 1 => Just(QueueIntent::Stopped)]
}

/// Returns a server with the pods of its assignment, if it has one.
fn any_server(number: usize) -> impl Strategy<Value = (Server, Vec<Pod>)> {
    let assignment =
        prop::option::weighted(0.4, (0..6_usize, 1..=3_i64, 0..=2_i64, prop::array::uniform3(any_pod_state())));
    let owner = (prop_oneof![Just("ada"), Just("bob")], prop::bool::weighted(0.3));
    (any_request(), any_intent(), prop::bool::weighted(0.1), 0..5_i64, owner, assignment, prop::bool::weighted(0.2))
        .prop_map(move |(request, intent, ended, queued_at, (owner, team), assignment, stale)| {
            let mut server =
                Server { request, ended, ..Server::test(&format!("s{number}"), queued_at) }.intent(intent).owner(owner);
            if team {
                server = server.team("team-vision");
            }
            let Some((first, epoch, admitted_at, states)) = assignment else {
                return (
                    if stale { server.admission(|admission| admission.position = Some(7)) } else { server },
                    vec![],
                );
            };
            let nodes: Vec<String> =
                (0..server.request.nodes()).map(|offset| format!("n{}", (first + offset) % 6)).collect();
            let server =
                server.admitted(1, &nodes.iter().map(String::as_str).collect::<Vec<_>>()).admission(|admission| {
                    (admission.epoch, admission.admitted_at) = (epoch, Some(to_api_precision(time(admitted_at))));
                });
            let pods = nodes.iter().zip(states).enumerate();
            let pods = pods.filter_map(|(ordinal, (node, state))| pod(&server, ordinal, node, state)).collect();
            (server, pods)
        })
}

fn any_quota() -> impl Strategy<Value = Quota> {
    let limit = |max: u32| prop::option::weighted(0.3, 0..=max);
    (limit(4), limit(12), limit(10)).prop_map(|(servers, devices, cpu)| Quota {
        servers,
        devices,
        cpu: cpu.map(|cpu| Quantity::whole(cpu.into())),
        ..Quota::default()
    })
}

pub(super) fn numbered<S: Strategy<Value: 'static> + 'static>(
    max: usize,
    strategy: fn(usize) -> S,
) -> BoxedStrategy<Vec<S::Value>> {
    (0..=max).prop_flat_map(move |count| (0..count).map(strategy).collect::<Vec<_>>()).boxed()
}

prop_compose! {
    pub(super) fn any_cluster()(
        nodes in numbered(5, any_node),
        foreign in numbered(4, any_foreign),
        servers in numbered(9, any_server),
        quotas in (any_quota(), any_quota()),
        rejections in prop::collection::vec((0..9_usize, 0..5_usize, 3_000..3_600_i64), 0..3),
    ) -> Cluster {
        let mut cluster = Cluster::new(nodes).user_quota("ada", quotas.0).team_quota("team-vision", quotas.1);
        cluster.pods = foreign;
        for (server, pods) in servers {
            cluster.servers.push(server);
            cluster.pods.extend(pods);
        }
        let rejections = rejections.into_iter().filter_map(|(server, node, second)| {
            let (server, node) = (cluster.servers.get(server)?, cluster.nodes.get(node)?);
            let (uid, fingerprint) = (server.uid.clone(), Fingerprint::new(node));
            Some(NodeRejection { uid, node: node.name.clone(), fingerprint, at: time(second), message: "no".into() })
        });
        cluster.node_rejections = rejections.collect();
        cluster
    }
}
