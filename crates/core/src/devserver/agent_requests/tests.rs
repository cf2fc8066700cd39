//! Configuration of agents, and quiescing them before a stop.

use std::time::Duration;

use odc_api::fixtures::KEY;
use odc_api::time::to_api_precision;
use odc_api::v1alpha1::condition::Reason;
use odc_api::v1alpha1::{Desired, DevServer, Home, Phase};

use super::*;
use crate::devserver::fixtures::{Request, at, node, observed, pod, settings, soft_state};
use crate::devserver::{Plan, reconcile};
use crate::plan::Write;

/// Running on one node since second 0.
fn running() -> Request {
    let home = |server: &mut DevServer| server.spec.home = Home::Claim("home".parse().unwrap());
    let mut request = Request::test(home);
    request.server = request.server.in_phase(Phase::Running).status(|status| {
        let admission = status.admission.get_or_insert_default();
        (admission.nodes, admission.run) = (vec!["node-1".into()], 3);
        status.running_since = Some(to_api_precision(at(0)));
        status.started_at = Some(to_api_precision(at(0)));
    });
    request
}

fn reachable(change: impl FnOnce(&mut Pod)) -> Pod {
    let mut pod = pod("server-1-0");
    let details = pod.server.as_mut().unwrap();
    (details.ip, details.host_key) = (Some("10.0.0.7".into()), Some("ssh-ed25519 host".into()));
    change(&mut pod);
    pod
}

fn plan(request: &Request, pod: &Pod, agent: Option<AgentState>, now: i64) -> Plan {
    request.check(|checked| {
        let (pods, nodes) = ([pod.clone()], [node("node-1")]);
        let by_pod = agent.map(|agent| (pod.uid.clone(), agent)).into_iter().collect();
        let soft_state = soft_state(Agents { leader_since: Some(at(0)), by_pod });
        reconcile(&request.server, checked, &observed(&pods, &nodes), &soft_state, &settings(), at(now))
    })
}

fn requests(plan: &Plan) -> Vec<&AgentRequest> {
    plan.calls.iter().map(|call| &call.request).collect()
}

fn config(request: &Request) -> AgentConfig {
    match requests(&plan(request, &reachable(|_| {}), None, 10)).as_slice() {
        [AgentRequest::Configure(config)] => (**config).clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn agent_is_configured_once() {
    let mut request = running();
    request.user.as_mut().unwrap().spec.keys.clear();
    request.server.spec.access.keys = vec![KEY.parse().unwrap()];
    let first = config(&request);
    assert_eq!(first.access.keys, [KEY.parse::<odc_api::ssh_key::PublicKey>().unwrap().line()]);
    assert_eq!(first.jupyter, Some(false));
    let configured = AgentState { config: Some(Box::new(first.clone())), ..AgentState::default() };
    assert_eq!(
        requests(&plan(&request, &reachable(|_| {}), Some(configured.clone()), 10)),
        Vec::<&AgentRequest>::new()
    );
    // Another key list, and another start of the container.
    request.server.spec.access.keys.clear();
    assert_ne!(config(&request), first);
    let mut restarted = request.clone();
    restarted.server.spec.access.keys = vec![KEY.parse().unwrap()];
    let outdated =
        AgentState { config: Some(Box::new(AgentConfig { restarts: -1, ..first })), ..AgentState::default() };
    assert_eq!(requests(&plan(&restarted, &reachable(|_| {}), Some(outdated), 10)).len(), 1);
}

#[test]
fn call_has_address_and_host_key_of_pod() {
    let plan = plan(&running(), &reachable(|_| {}), None, 10);
    let call = plan.calls.first().unwrap();
    assert_eq!(
        (call.pod.as_str(), call.address.as_str(), call.host_key.as_str()),
        ("uid-server-1-0", "10.0.0.7", "ssh-ed25519 host")
    );
}

#[test]
fn unreachable_agent_is_retried_with_backoff() {
    let unreachable =
        |count| AgentState { unreachable: Some(Failures { at: at(100), count }), ..AgentState::default() };
    let calls = |count, now| plan(&running(), &reachable(|_| {}), Some(unreachable(count)), now).calls.len();
    assert_eq!((calls(1, 100), calls(1, 101)), (0, 1));
    assert_eq!((calls(4, 107), calls(4, 108)), (0, 1));
    assert_eq!((calls(40, 399), calls(40, 400)), (0, 1));
}

#[test]
fn agent_without_endpoint_is_not_called() {
    for pod in [
        reachable(|pod| pod.server.as_mut().unwrap().ip = None),
        reachable(|pod| pod.server.as_mut().unwrap().host_key = None),
        reachable(|pod| pod.server.as_mut().unwrap().ready = false),
    ] {
        assert_eq!(plan(&running(), &pod, None, 10).calls, []);
    }
}

#[test]
fn stop_waits_only_for_agent_that_answered() {
    let mut stopping = running();
    stopping.server = stopping.server.desired(Desired::Hibernated);
    let agent = |quiesce| AgentState { config: Some(Box::new(config(&running()))), quiesce, ..AgentState::default() };
    let actions = |agent, now| {
        let plan = plan(&stopping, &reachable(|_| {}), agent, now);
        (plan.calls.len(), plan.writes.iter().filter(|write| matches!(write, Write::Delete(_))).count())
    };
    assert_eq!(actions(None, 10), (0, 1));
    assert_eq!(actions(Some(AgentState::default()), 10), (0, 1));
    assert_eq!(actions(Some(agent(QuiesceState::NotRequested)), 10), (1, 0));
    assert_eq!(actions(Some(agent(QuiesceState::Requested(at(10)))), 69), (1, 0));
    assert_eq!(actions(Some(agent(QuiesceState::Requested(at(10)))), 70), (0, 1));
    assert_eq!(actions(Some(agent(QuiesceState::Finished)), 10), (0, 1));
}

#[test]
fn quiesce_failure_is_reported_once_before_pod_is_deleted() {
    let mut stopping = running();
    stopping.server = stopping.server.desired(Desired::Hibernated);
    let failure = QuiesceFailure { at: at(20), reason: Reason::PreStopFailed, message: "It failed.".into(), log: None };
    let agent = |failure: &QuiesceFailure| AgentState {
        config: Some(Box::new(config(&running()))),
        quiesce: QuiesceState::Finished,
        quiesce_failure: Some(failure.clone()),
        ..AgentState::default()
    };
    let first = plan(&stopping, &reachable(|_| {}), Some(agent(&failure)), 20);
    let status = first.status.unwrap();
    assert_eq!(status.last_failure.as_ref().unwrap().reason, "PreStopFailed");
    assert!(first.events.iter().any(|event| event.warning && event.note == "It failed."));
    assert_eq!((first.writes, first.requeue), (vec![], Requeue::After(Duration::ZERO)));
    stopping.server.status = Some(status);
    let then = plan(&stopping, &reachable(|_| {}), Some(agent(&failure)), 21);
    assert_eq!((then.writes.len(), then.events, then.status), (1, vec![], None));
    // The same message in another stop is another failure.
    let again = QuiesceFailure { at: at(500), ..failure };
    assert_eq!(plan(&stopping, &reachable(|_| {}), Some(agent(&again)), 500).events.len(), 1);
}

#[test]
fn agent_is_configured_again_after_cancelled_stop() {
    let requested = AgentState {
        config: Some(Box::new(config(&running()))),
        quiesce: QuiesceState::Requested(at(5)),
        ..AgentState::default()
    };
    for mut agent in [requested.clone(), AgentState { quiesce: QuiesceState::Finished, ..requested.clone() }] {
        agent.cancel_stop();
        assert_eq!(agent.quiesce, QuiesceState::NotRequested);
        assert_eq!(requests(&plan(&running(), &reachable(|_| {}), Some(agent), 10)).len(), 1);
    }
    let mut other = AgentState { quiesce: QuiesceState::NotRequested, ..requested };
    other.cancel_stop();
    assert_eq!(requests(&plan(&running(), &reachable(|_| {}), Some(other), 10)).len(), 0);
}

#[test]
fn repeated_oom_kill_reports_are_counted_once() {
    let reply = |boot: &str, oom_kills| {
        let signals = Signals { container_boot_id: boot.into(), oom_kills, ..Signals::default() };
        AgentState {
            signals_reply: Some(Box::new(SignalsReply { at: at(5), signals: Ok(signals), failures: 0 })),
            ..AgentState::default()
        }
    };
    let counted = |request: &Request, (boot, kills)| {
        let plan = plan(request, &reachable(|_| {}), Some(reply(boot, kills)), 10);
        plan.status.as_ref().unwrap_or(request.server.status.as_ref().unwrap()).clone()
    };
    let mut request = running();
    for (reported, total) in [
        (("one", 0), None),
        (("one", 2), Some(2)),
        (("one", 2), Some(2)),
        (("one", 3), Some(3)),
        // A restarted container counts from zero.
        (("two", 0), Some(3)),
        (("two", 3), Some(6)),
        (("two", 4), Some(7)),
        (("three", 1), Some(8)),
    ] {
        let status = counted(&request, reported);
        assert_eq!(status.oom_kills, total, "after {reported:?}");
        request.server.status = Some(status);
    }
}

#[test]
fn retry_delay_is_bounded() {
    assert_eq!(retry_delay(0), Duration::from_secs(1));
    assert_eq!(retry_delay(u32::MAX), MAX_RETRY_DELAY);
}

#[test]
fn idle_warning_and_preemption_notice_are_separate() {
    let mut request = running();
    request.server = request.server.status(|status| {
        let admission = status.admission.get_or_insert_default();
        admission.preempt_at = Some(to_api_precision(at(120)));
        admission.message = Some(condition::Message::truncated("Preempted by server b."));
        let now = to_api_precision(at(5));
        let idle = condition::new(Type::Idle, condition::Status::True, Reason::Idle, "Idle: no activity.", None, now);
        condition::set(&mut status.conditions, idle);
    });
    let both = config(&request);
    assert_eq!(both.idle_warning.as_deref(), Some("Idle: no activity."));
    let notice = both.preemption_notice.as_deref().unwrap();
    assert!(notice.starts_with("Preempted by server b. Save your work before "), "{notice}");
    // Only the idle warning starts the grace period of an idle server.
    let mut agent = AgentState::default();
    agent.record_config(Box::new(AgentConfig { idle_warning: None, ..both.clone() }), at(10));
    assert_eq!(agent.warned_at, None);
    agent.record_config(Box::new(both), at(20));
    assert_eq!(agent.warned_at, Some(at(20)));
}
