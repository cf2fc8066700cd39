//! Reconciliation of arbitrary stored objects, such as manually edited ones or ones with arbitrary timestamps. It must not
//! panic, and the resulting status must be accepted by the API server.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;
use odc_api::check::check_update;
use odc_api::time::to_api_precision;
use odc_api::v1alpha1::condition::Reason;
use odc_api::v1alpha1::{
    Admission, Desired, DevServer, DevServerStatus, GrantedLifetime, Hibernation, HibernationCause, Phase, StopCause,
    Stopping, TimelineEntry,
};
use proptest::prelude::*;

use super::fixtures::{self, Request, at, settings};
use super::{QueueRequest, SecretState, SoftState, queue_intent, reconcile};
use crate::cluster::{Container, ContainerState, Exit, Node, Pod, PodPhase, Readiness, ServerPod};

fn time() -> impl Strategy<Value = Timestamp> {
    prop_oneof![
        4 => (0..2_000_000_i64).prop_map(|second| Timestamp::from_second(second).unwrap()),
        1 => Just(Timestamp::MIN),
        1 => Just(Timestamp::MAX),
        1 => (-9_000_000_000..9_000_000_000_i64).prop_map(|second| Timestamp::from_second(second).unwrap()),
    ]
}

fn phase() -> impl Strategy<Value = Phase> {
    prop::sample::select(Phase::ALL.to_vec())
}

fn status() -> impl Strategy<Value = DevServerStatus> {
    let times = prop::collection::vec(prop::option::of(time()), 4);
    let cause = prop::sample::select(vec![HibernationCause::Idle, HibernationCause::User, HibernationCause::Drain]);
    let hibernation = prop::option::of((time(), cause, prop::option::of("[a-c]")));
    let admission = prop::option::of((0..3_i64, prop::collection::vec("node-[0-3]", 0..4), prop::option::of(time())));
    let timeline = prop::collection::vec((phase(), time()), 0..25);
    let causes = vec![StopCause::Expired, StopCause::User, StopCause::Idle, StopCause::QueueTimeout];
    let stopping = prop::option::weighted(0.2, (prop::sample::select(causes), time()));
    let numbers = (prop::option::of(any::<i64>()), prop::option::of(0..9_000_u64), prop::option::of(0..9_i64));
    (prop::option::of(phase()), times, hibernation, stopping, admission, timeline, numbers).prop_map(
        |(phase, times, hibernation, stopping, admission, timeline, (ran, lifetime, restarts))| {
            let time = |at: usize| times[at].map(to_api_precision);
            let span = |minutes| odc_api::duration::Duration::from_std(std::time::Duration::from_secs(60 * minutes));
            DevServerStatus {
                phase,
                running_since: time(0),
                started_at: time(1),
                finished_at: time(2),
                expires_at: time(3),
                accumulated_run_seconds: ran,
                restarts,
                lifetime: lifetime
                    .map(|minutes| GrantedLifetime { requested: span(minutes), granted: span(minutes / 2) }),
                hibernation: hibernation.map(|(at, cause, observed_wake)| Hibernation {
                    since: to_api_precision(at),
                    cause,
                    observed_wake,
                }),
                stopping: stopping.map(|(cause, since)| Box::new(Stopping { cause, since: to_api_precision(since) })),
                admission: admission.map(|(run, nodes, admitted_at)| Admission {
                    run,
                    nodes,
                    admitted_at: admitted_at.map(to_api_precision),
                    ..Admission::default()
                }),
                timeline: timeline
                    .into_iter()
                    .map(|(phase, at)| TimelineEntry::new(phase, to_api_precision(at), Reason::Running))
                    .collect(),
                ..DevServerStatus::default()
            }
        },
    )
}

fn container() -> impl Strategy<Value = Container> {
    let reasons = ["ImagePullBackOff", "ContainerCreating", "CrashLoopBackOff", "", "Unknown"];
    let exit = (any::<i32>(), prop::sample::select(vec!["OOMKilled", "Error", ""]), ".{0,9}")
        .prop_map(|(code, reason, message)| Exit { code, reason: reason.into(), message });
    let state = prop_oneof![
        Just(ContainerState::Running),
        exit.clone().prop_map(ContainerState::Terminated),
        (prop::sample::select(reasons.to_vec()), ".{0,9}")
            .prop_map(|(reason, message)| ContainerState::Waiting { reason: reason.into(), message }),
    ];
    (state, prop::option::of(exit), 0..9_i64).prop_map(|(state, last, restarts)| Container {
        name: "dev".into(),
        restarts,
        state,
        last: last.map(Box::new),
    })
}

fn pod() -> impl Strategy<Value = Pod> {
    let uid = || prop::option::of(prop::sample::select(vec!["uid-server-1".to_owned(), "uid-other".to_owned()]));
    let details = (uid(), uid(), prop::option::of(0..3_i64), prop::option::of(time()), any::<bool>());
    let rest = (prop::collection::vec(container(), 0..3), prop::option::of("key-[ab]"));
    let phases = [PodPhase::Pending, PodPhase::Running, PodPhase::Succeeded, PodPhase::Failed];
    let binding = (prop::option::of("node-[0-3]"), prop::sample::select(phases.to_vec()), prop::option::of(time()));
    (0..3_usize, binding, prop::option::weighted(0.9, (details, rest))).prop_map(|(ordinal, binding, details)| {
        let mut pod = fixtures::pod(&format!("server-1-{ordinal}"));
        (pod.node, pod.phase, pod.deletion_timestamp) = binding;
        pod.server = details.map(|((owner, created_for, run, created_at, ready), (containers, host_key))| {
            let before = *pod.server.take().unwrap();
            Box::new(ServerPod { owner, created_for, run, host_key, created_at, ready, containers, ..before })
        });
        pod
    })
}

fn nodes() -> impl Strategy<Value = Vec<Node>> {
    let readiness = || prop_oneof![Just(Readiness::Ready), Just(Readiness::New), time().prop_map(Readiness::Unready)];
    let node = move |at: usize| {
        let ready = fixtures::node(&format!("node-{at}"));
        prop::option::of(readiness().prop_map(move |readiness| Node { readiness, ..ready.clone() }))
    };
    [node(0), node(1), node(2), node(3)].prop_map(|nodes| nodes.into_iter().flatten().collect())
}

fn secret() -> impl Strategy<Value = SecretState> {
    let present = SecretState::Present("key-a".into());
    prop::sample::select(vec![SecretState::Unknown, SecretState::Missing, SecretState::Foreign, present])
}

/// Keeps one pod per name.
fn distinct(pods: Vec<Pod>) -> Vec<Pod> {
    pods.into_iter().map(|pod| (pod.name.clone(), pod)).collect::<BTreeMap<_, _>>().into_values().collect()
}

fn server() -> impl Strategy<Value = DevServer> {
    let desired = prop::sample::select(vec![Desired::Running, Desired::Hibernated, Desired::Ended]);
    let shape = (1..3_u32, any::<bool>(), desired, prop::option::of("[a-c]"), any::<bool>());
    (shape, prop::option::weighted(0.9, status())).prop_map(|((nodes, ephemeral, desired, wake, deleted), status)| {
        let mut server = DevServer::test().size("flavor-gpu", 1, nodes);
        if ephemeral {
            server = server.ephemeral("1Gi");
        }
        server.spec.desired = if ephemeral && desired == Desired::Hibernated { Desired::Ended } else { desired };
        server.spec.wake = wake;
        server.status = status;
        if deleted {
            server.metadata.deletion_timestamp = Some(to_api_precision(Timestamp::UNIX_EPOCH));
            server.metadata.finalizers = Some(vec!["example.org/hold".into()]);
        }
        server
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn reconcile_never_panics_and_is_idempotent(
        server in server(),
        pods in prop::collection::vec(pod(), 0..3).prop_map(distinct),
        nodes in nodes(),
        (secret, secret_checked_at, deferred_phase) in (secret(), prop::option::of(time()), prop::option::of((phase(), time()))),
        (flavor, now) in (any::<bool>(), time()),
    ) {
        let mut request = Request::new(server).claim(|state| state.claim.as_mut().unwrap().shared = true);
        if !flavor {
            request.flavors.clear();
        }
        let observed = fixtures::observed(&pods, &nodes);
        let soft_state = SoftState { secret, secret_checked_at, deferred_phase, ..SoftState::default() };
        let run = |request: &Request| {
            request.check(|checked| {
                queue_intent(&request.server, QueueRequest::new(checked), || !pods.is_empty(), &settings(), now);
                reconcile(&request.server, checked, &observed, &soft_state, &settings(), now)
            })
        };
        let plan = run(&request);
        let ended = request.server.status.as_ref().and_then(|status| status.phase).is_some_and(Phase::is_terminal);
        prop_assert!(plan.status.is_none() || !ended, "the status of an ended server changes");
        if let Some(status) = plan.status {
            request.server.status = Some(status.clone());
            // In the same phase, the second reconciliation writes nothing.
            let repeated = run(&request).status.filter(|repeated| repeated.phase == status.phase);
            prop_assert_eq!(repeated, None);
        }
    }
}

/// A pod with arbitrarily long texts.
fn verbose_pod(text: &str, log: String, restarts: i64) -> Pod {
    let state = ContainerState::Waiting { reason: "CrashLoopBackOff".into(), message: text.into() };
    let last = Some(Exit { code: 1, reason: text.into(), message: log });
    let mut pod = fixtures::pod("server-1-0");
    pod.phase = if restarts == 0 { PodPhase::Failed } else { PodPhase::Running };
    let details = pod.server.as_mut().unwrap();
    details.ready = restarts == 1;
    details.host_key = Some(text.into());
    details.ip = Some(text.into());
    details.reason = Some(text.into());
    details.message = Some(text.into());
    details.containers = vec![Container { name: "dev".into(), restarts, state, last: last.map(Box::new) }];
    pod
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn status_is_accepted_by_api_server(text in ".{0,2000}", log in ".{0,6000}", restarts in 0..6_i64) {
        let server = DevServer::test().in_phase(Phase::Starting).status(|status| {
            status.admission = Some(Admission { run: 3, nodes: vec!["node-1".into()], ..Admission::default() });
        });
        let (pods, nodes) = ([verbose_pod(&text, log, restarts)], [fixtures::node("node-1")]);
        let request = Request::new(server.clone());
        let observed = fixtures::observed(&pods, &nodes);
        let soft_state = SoftState::default();
        let plan = request.check(|checked| reconcile(&server, checked, &observed, &soft_state, &settings(), at(1_000)));
        let after = DevServer { status: plan.status.or_else(|| server.status.clone()), ..server.clone() };
        prop_assert_eq!(check_update(&server, &after), Ok(()));
    }
}
