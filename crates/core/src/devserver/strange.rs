//! Objects that should not exist: edited by hand, of another version, with clocks that went mad. Whatever is stored, a
//! decision comes about, and it is one that the API server takes.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;
use odc_api::check::check_update;
use odc_api::time::stored;
use odc_api::v1alpha1::condition::Reason;
use odc_api::v1alpha1::{
    Admission, Desired, DevServer, DevServerStatus, GrantedLifetime, Hibernation, HibernationCause, Phase,
    TimelineEntry,
};
use proptest::prelude::*;

use super::fixtures::{self, Request, at, keys, settings};
use super::{SecretSeen, Seen, decide, wish};
use crate::seen::{Container, ContainerState, Exit, Node, Pod, PodPhase, Readiness, ServerPod};

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
    let sleeper = prop::sample::select(vec![HibernationCause::Idle, HibernationCause::User, HibernationCause::Drain]);
    let sleep = prop::option::of((time(), sleeper, prop::option::of("[a-c]")));
    let admission = prop::option::of((0..3_i64, prop::collection::vec("node-[0-3]", 0..4), prop::option::of(time())));
    let timeline = prop::collection::vec((phase(), time()), 0..25);
    let numbers = (prop::option::of(any::<i64>()), prop::option::of(0..9_000_u64), prop::option::of(0..9_i64));
    (prop::option::of(phase()), times, sleep, admission, timeline, numbers).prop_map(
        |(phase, times, sleep, admission, timeline, (ran, lifetime, restarts))| {
            let time = |at: usize| times[at].map(stored);
            let span = |minutes| odc_api::duration::Duration::from_std(std::time::Duration::from_secs(60 * minutes));
            DevServerStatus {
                phase,
                running_since: time(0),
                started_at: time(1),
                finished_at: time(2),
                expires_at: time(3),
                ran_seconds: ran,
                restarts,
                lifetime: lifetime.map(|minutes| GrantedLifetime { asked: span(minutes), granted: span(minutes / 2) }),
                hibernation: sleep.map(|(at, by, wake_seen)| Hibernation { since: stored(at), by, wake_seen }),
                admission: admission.map(|(run, nodes, granted_at)| Admission {
                    run,
                    nodes,
                    granted_at: granted_at.map(stored),
                    ..Admission::default()
                }),
                timeline: timeline
                    .into_iter()
                    .map(|(phase, at)| TimelineEntry::new(phase, stored(at), Reason::Running))
                    .collect(),
                ..DevServerStatus::default()
            }
        },
    )
}

fn container() -> impl Strategy<Value = Container> {
    let words = ["ImagePullBackOff", "ContainerCreating", "CrashLoopBackOff", "", "Strange"];
    let exit = (any::<i32>(), prop::sample::select(vec!["OOMKilled", "Error", ""]), ".{0,9}")
        .prop_map(|(code, reason, message)| Exit { code, reason: reason.into(), message });
    let state = prop_oneof![
        Just(ContainerState::Running),
        exit.clone().prop_map(ContainerState::Ended),
        (prop::sample::select(words.to_vec()), ".{0,9}")
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
    let place = (prop::option::of("node-[0-3]"), prop::sample::select(phases.to_vec()), prop::option::of(time()));
    (0..3_usize, place, prop::option::weighted(0.9, (details, rest))).prop_map(|(ordinal, place, details)| {
        let mut pod = fixtures::pod(&format!("server-1-{ordinal}"));
        (pod.node, pod.phase, pod.deleting) = place;
        pod.server = details.map(|((owner, made_for, run, created, ready), (containers, host_key))| {
            let before = *pod.server.take().unwrap();
            Box::new(ServerPod { owner, made_for, run, host_key, created, ready, containers, ..before })
        });
        pod
    })
}

fn nodes() -> impl Strategy<Value = Vec<Node>> {
    let readiness = || prop_oneof![Just(Readiness::Ready), Just(Readiness::New), time().prop_map(Readiness::Unready)];
    let node = move |at: usize| {
        let well = fixtures::node(&format!("node-{at}"));
        prop::option::of(readiness().prop_map(move |readiness| Node { readiness, ..well.clone() }))
    };
    [node(0), node(1), node(2), node(3)].prop_map(|nodes| nodes.into_iter().flatten().collect())
}

fn secret() -> impl Strategy<Value = SecretSeen> {
    let there = SecretSeen::There("key-a".into());
    prop::sample::select(vec![SecretSeen::Unknown, SecretSeen::Missing, SecretSeen::Foreign, there])
}

/// One pod for each name, as in a real namespace.
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
            server.metadata.deletion_timestamp = Some(stored(Timestamp::UNIX_EPOCH));
            server.metadata.finalizers = Some(vec!["example.org/hold".into()]);
        }
        server
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_decision_always_comes_about(
        server in server(),
        pods in prop::collection::vec(pod(), 0..3).prop_map(distinct),
        nodes in nodes(),
        (secret, checked, held) in (secret(), prop::option::of(time()), prop::option::of((phase(), time()))),
        (flavor, keyed, admitting, now) in (any::<bool>(), any::<bool>(), any::<bool>(), time()),
    ) {
        let mut request = Request::of(server).claim(|state| state.claim.as_mut().unwrap().shared = true);
        if !flavor {
            request.flavors.clear();
        }
        let keys = keys(1);
        let keys = keyed.then_some(&keys);
        let seen = Seen { secret, secret_checked: checked, keys, held, admitting, ..fixtures::seen(&pods, &nodes) };
        let look = |request: &Request| {
            request.check(|checked| {
                wish(&request.server, checked, !pods.is_empty(), &settings(), now);
                decide(&request.server, checked, &seen, &settings(), now)
            })
        };
        let plan = look(&request);
        let ended = request.server.status.as_ref().and_then(|status| status.phase).is_some_and(Phase::terminal);
        prop_assert!(plan.status.is_none() || !ended, "an ended server changes");
        if let Some(status) = plan.status {
            request.server.status = Some(status.clone());
            // Seen again, the same phase has nothing new to tell.
            let again = look(&request).status.filter(|again| again.phase == status.phase);
            prop_assert_eq!(again, None);
        }
    }
}

/// A pod about which Kubernetes says too much.
fn talkative(text: &str, log: String, restarts: i64) -> Pod {
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
    fn a_status_is_one_that_the_api_server_takes(text in ".{0,2000}", log in ".{0,6000}", restarts in 0..6_i64) {
        let server = DevServer::test().in_phase(Phase::Starting).status(|status| {
            status.admission = Some(Admission { run: 3, nodes: vec!["node-1".into()], ..Admission::default() });
        });
        let (pods, nodes) = ([talkative(&text, log, restarts)], [fixtures::node("node-1")]);
        let request = Request::of(server.clone());
        let seen = fixtures::seen(&pods, &nodes);
        let plan = request.check(|checked| decide(&server, checked, &seen, &settings(), at(1_000)));
        let after = DevServer { status: plan.status.or_else(|| server.status.clone()), ..server.clone() };
        prop_assert_eq!(check_update(&server, &after), Ok(()));
    }
}
