//! When agents are polled, and when an idle server is warned and stopped.

use odc_api::time::to_api_precision;
use odc_api::v1alpha1::condition::Status;
use odc_api::v1alpha1::{DevServer, HibernationCause, Home, Phase};
use odc_control::Signals;

use super::*;
use crate::activity::Signal;
use crate::devserver::agent_requests::{AgentState, Agents};
use crate::devserver::fixtures::{Request, at, node, observed, pod, settings, soft_state};
use crate::devserver::{Plan, reconcile};

const TIMEOUT: i64 = 1_800;
const GRACE: i64 = 300;
const HOUR: i64 = 3_600;

/// Running since second 0, with an idle timeout of 30m.
fn running(action: IdleAction) -> Request {
    let mut request = Request::test(|server: &mut DevServer| {
        server.spec.home = Home::Claim("home".parse().unwrap());
        server.spec.lifetime = "100h".parse().unwrap();
        server.spec.idle.action = action;
    });
    request.server = request.server.in_phase(Phase::Running).status(|status| {
        let admission = status.admission.get_or_insert_default();
        (admission.nodes, admission.run) = (vec!["node-1".into()], 3);
        status.running_since = Some(to_api_precision(at(0)));
    });
    request
}

fn warned(mut request: Request, second: i64) -> Request {
    let idle = condition::new(Type::Idle, Status::True, Reason::Idle, "x", None, to_api_precision(at(second)));
    request.server = request.server.status(|status| status.conditions = vec![idle]);
    request
}

/// A reply with terminal input `ago` seconds before, from an agent started at second 0.
fn typed(answered: i64, ago: u64) -> SignalsReply {
    let mut signals = Signals { up_seconds: u64::try_from(answered).unwrap(), ..Signals::default() };
    signals.terminal_input.last_seen_seconds_ago = Some(ago);
    SignalsReply { at: at(answered), signals: Ok(signals), failures: 0 }
}

fn unreachable(answered: i64, failures: u32) -> SignalsReply {
    SignalsReply { at: at(answered), signals: Err("no route".into()), failures }
}

fn reachable(name: &str) -> Pod {
    let mut pod = pod(name);
    let details = pod.server.as_mut().unwrap();
    (details.ip, details.host_key) = (Some("10.0.0.7".into()), Some("ssh-ed25519 host".into()));
    pod
}

fn plan(request: &Request, reply: impl Into<Option<SignalsReply>>, now: i64) -> Plan {
    let reply = reply.into();
    let idle = request.server.status.as_ref().and_then(|status| condition::find(&status.conditions, Type::Idle));
    // Agents receive a warning at once.
    let warned_at = idle.map(|idle| idle.last_transition_time.0);
    request.check(|checked| {
        let reply = reply.clone().map(Box::new);
        let pod = reachable("server-1-0");
        let by_pod =
            [(pod.uid.clone(), AgentState { warned_at, signals_reply: reply, ..AgentState::default() })].into();
        let soft_state = soft_state(Agents { leader_since: Some(at(-1_000)), by_pod });
        let (pods, nodes) = ([pod], [node("node-1")]);
        reconcile(&request.server, checked, &observed(&pods, &nodes), &soft_state, &settings(), at(now))
    })
}

fn polls(plan: &Plan) -> bool {
    plan.calls.iter().any(|call| call.request == AgentRequest::GetSignals)
}

/// The condition Idle in the plan.
fn idle(plan: &Plan) -> String {
    let conditions = plan.status.as_ref().map_or(&[][..], |status| &status.conditions);
    condition::find(conditions, Type::Idle).map_or_else(String::new, |idle| format!("{} {}", idle.status, idle.reason))
}

#[test]
fn agent_is_polled_when_server_can_be_idle_at_the_earliest() {
    let request = running(IdleAction::Hibernate);
    assert!(!polls(&plan(&request, None, TIMEOUT - 1)));
    assert!(polls(&plan(&request, None, TIMEOUT)));
    assert_eq!(idle(&plan(&request, None, 10)), "False Active");
    // Input ten minutes before the reply: idle after twenty more at the earliest.
    assert!(!polls(&plan(&request, typed(TIMEOUT, 600), TIMEOUT + 1_199)));
    assert!(polls(&plan(&request, typed(TIMEOUT, 600), TIMEOUT + 1_200)));
}

#[test]
fn agent_is_polled_hourly_if_idle_detection_is_disabled() {
    let request = running(IdleAction::None);
    assert!(!polls(&plan(&request, None, HOUR - 1)));
    let first = plan(&request, None, HOUR);
    assert_eq!((polls(&first), idle(&first).as_str()), (true, "False IdleDetectionDisabled"));
    // Neither long inactivity nor an unreachable agent changes the interval.
    for reply in [typed(HOUR, 500_000), unreachable(HOUR, 100)] {
        let later = plan(&request, reply.clone(), 2 * HOUR - 1);
        assert_eq!((polls(&later), idle(&later).as_str()), (false, "False IdleDetectionDisabled"));
        assert_eq!((later.phase, later.requeue), (Some(Phase::Running), Requeue::After(Duration::from_secs(1))));
        assert!(polls(&plan(&request, reply, 2 * HOUR)));
    }
}

#[test]
fn oom_kills_are_reported_if_idle_detection_is_disabled() {
    let mut request = running(IdleAction::None);
    request.server.status = plan(&request, None, 10).status;
    let answered = |oom_kills| {
        let mut reply = typed(HOUR, 0);
        reply.signals = reply.signals.map(|signals| Signals { oom_kills, ..signals });
        plan(&request, reply, HOUR + 1)
    };
    assert_eq!(answered(2).status.unwrap().oom_kills, Some(2));
    let nothing = answered(0);
    assert_eq!((nothing.status, nothing.writes.len(), nothing.events.len()), (None, 0, 0));
}

#[test]
fn warning_is_stored_and_server_runs_during_grace() {
    let request = running(IdleAction::Hibernate);
    let first = plan(&request, typed(TIMEOUT, 1_800), TIMEOUT);
    assert_eq!((idle(&first), first.writes.len()), ("True Idle".to_owned(), 0));
    let request = warned(request, TIMEOUT);
    let waiting = plan(&request, typed(TIMEOUT, 1_800), TIMEOUT + GRACE - 1);
    assert!(!polls(&waiting) && waiting.writes.is_empty());
    assert_ne!(waiting.phase, Some(Phase::Hibernating));
    assert!(polls(&plan(&request, typed(TIMEOUT, 1_800), TIMEOUT + GRACE)));
}

#[test]
fn recent_answer_after_grace_hibernates_server() {
    let request = warned(running(IdleAction::Hibernate), TIMEOUT);
    let now = TIMEOUT + GRACE;
    let status = plan(&request, typed(now, 2_100), now + 1).status.unwrap();
    assert_eq!(status.phase, Some(Phase::Hibernating));
    assert_eq!(status.hibernation.unwrap().cause, HibernationCause::Idle);
    // An old reply does not count.
    let old = plan(&request, typed(now, 2_100), now + 31);
    assert!(polls(&old) && old.status.is_none_or(|status| status.phase == Some(Phase::Running)));
}

#[test]
fn idle_server_ends_after_cause_is_stored() {
    let mut request = warned(running(IdleAction::End), TIMEOUT);
    let now = TIMEOUT + GRACE;
    let first = plan(&request, typed(now, 2_100), now);
    assert_eq!((first.status.as_ref().unwrap().phase, first.writes.len()), (Some(Phase::Stopping), 0));
    let stopping = first.status.as_ref().unwrap().stopping.as_ref().unwrap();
    assert_eq!(stopping.cause, odc_api::v1alpha1::StopCause::Idle);
    request.server.status = first.status;
    // New activity does not revert the stop.
    let second = plan(&request, typed(now + 1, 0), now + 1);
    assert_eq!((second.phase, second.writes.len()), (Some(Phase::Stopping), 1));
}

#[test]
fn activity_after_warning_cancels_it() {
    let request = warned(running(IdleAction::Hibernate), TIMEOUT);
    let now = TIMEOUT + GRACE;
    let plan = plan(&request, typed(now, 299), now);
    assert_eq!((idle(&plan), plan.phase), ("False Active".to_owned(), Some(Phase::Running)));
}

#[test]
fn activity_within_grace_cancels_warning_with_short_timeout() {
    let mut request = warned(running(IdleAction::Hibernate), 60);
    request.server.spec.idle.timeout = "1m".parse().unwrap();
    let plan = plan(&request, typed(60 + GRACE, 120), 60 + GRACE);
    assert_eq!((idle(&plan), plan.phase), ("False Active".to_owned(), Some(Phase::Running)));
}

#[test]
fn unreachable_agent_is_reported_and_server_keeps_running() {
    let request = warned(running(IdleAction::Hibernate), TIMEOUT);
    let now = TIMEOUT + GRACE;
    let once = plan(&request, unreachable(now, 1), now);
    assert_eq!((once.writes.len(), once.phase), (0, Some(Phase::Running)));
    let often = plan(&request, unreachable(now, 3), now);
    assert_eq!(idle(&often), "False AgentUnreachable");
    assert!(polls(&plan(&request, unreachable(now, 3), now + 30)));
    assert!(!polls(&plan(&request, unreachable(now, 100), now + 299)));
}

#[test]
fn warning_of_earlier_run_is_ignored() {
    let request = warned(running(IdleAction::Hibernate), -10);
    let plan = plan(&request, None, 10);
    assert_eq!((idle(&plan), polls(&plan)), ("False Active".to_owned(), false));
}

#[test]
fn grace_starts_when_agent_received_warning() {
    let request = warned(running(IdleAction::Hibernate), TIMEOUT);
    let later = TIMEOUT + GRACE + 60;
    let hibernates = |warned_at: Option<i64>, now: i64| {
        request.check(|checked| {
            let (pods, nodes) = ([reachable("server-1-0")], [node("node-1")]);
            let agent = AgentState {
                signals_reply: Some(Box::new(typed(later, 3_000))),
                warned_at: warned_at.map(at),
                ..AgentState::default()
            };
            let soft_state =
                soft_state(Agents { leader_since: Some(at(-1_000)), by_pod: [(pods[0].uid.clone(), agent)].into() });
            let plan = reconcile(&request.server, checked, &observed(&pods, &nodes), &soft_state, &settings(), at(now));
            plan.status.and_then(|status| status.phase) == Some(Phase::Hibernating)
        })
    };
    assert!(!hibernates(None, later), "not warned");
    assert!(!hibernates(Some(later - 1), later), "just warned");
    assert!(hibernates(Some(later - GRACE), later));
}

#[test]
fn only_agents_with_outdated_answers_are_polled() {
    let mut request = running(IdleAction::Hibernate);
    request.server.spec.nodes = 2;
    request.server = request.server.status(|status| {
        status.admission.get_or_insert_default().nodes = vec!["node-1".into(), "node-2".into()];
    });
    let polled = |replies: [Option<SignalsReply>; 2], change: fn(&mut Pod)| {
        request.check(|checked| {
            let mut pods = [reachable("server-1-0"), reachable("server-1-1")];
            pods[1].node = Some("node-2".into());
            change(&mut pods[1]);
            let nodes = [node("node-1"), node("node-2")];
            let agent = |reply: &Option<SignalsReply>| AgentState {
                signals_reply: reply.clone().map(Box::new),
                ..AgentState::default()
            };
            let by_pod = pods.iter().zip(&replies).map(|(pod, reply)| (pod.uid.clone(), agent(reply))).collect();
            let soft_state = soft_state(Agents { leader_since: Some(at(-1_000)), by_pod });
            let plan =
                reconcile(&request.server, checked, &observed(&pods, &nodes), &soft_state, &settings(), at(TIMEOUT));
            let polled = plan.calls.iter().filter(|call| call.request == AgentRequest::GetSignals);
            polled.map(|call| call.pod.clone()).collect::<Vec<_>>()
        })
    };
    assert_eq!(polled([None, None], |_| {}).len(), 2);
    assert_eq!(polled([Some(typed(TIMEOUT, 0)), None], |_| {}), ["uid-server-1-1"]);
    assert_eq!(polled([Some(typed(TIMEOUT, 0)), Some(typed(TIMEOUT, 9))], |_| {}), Vec::<String>::new());
    // An unreachable agent does not cause repeated polls of the others.
    let lost: fn(&mut Pod) = |pod| pod.server.as_mut().unwrap().host_key = None;
    assert_eq!(polled([Some(typed(TIMEOUT, 0)), None], lost), Vec::<String>::new());
}

#[test]
fn answer_from_the_future_is_ignored() {
    let request = warned(running(IdleAction::Hibernate), TIMEOUT);
    let plan = plan(&request, typed(TIMEOUT + GRACE + 100, 9_000), TIMEOUT + GRACE);
    assert!(polls(&plan) && plan.phase == Some(Phase::Running));
}

#[test]
fn active_message_names_forwarded_port() {
    let message = |port| {
        let mut reply = typed(TIMEOUT, 1_500);
        let carried = odc_control::Forwarded { port, bytes: 7, last_seen_seconds_ago: Some(60) };
        reply.signals = reply.signals.map(|signals| Signals { forwarded: vec![carried], ..signals });
        let status = plan(&running(IdleAction::Hibernate), reply, TIMEOUT).status.unwrap();
        condition::find(&status.conditions, Type::Idle).unwrap().message.to_string()
    };
    assert_eq!(message(8888), "Last activity: traffic on forwarded port 8888.");
    assert_eq!(message(0), "Last activity: traffic on a forwarded socket.");
}

#[test]
fn one_active_node_keeps_server_active() {
    let active = |rest| Verdict::Active { last: Signal::TerminalInput.into(), next_check: Duration::from_secs(rest) };
    let idle = |ago| Verdict::Idle { last: Signal::Gpu.into(), ago: Duration::from_secs(ago), reason: String::new() };
    assert_eq!(most_active(idle(5), active(1)), active(1));
    assert_eq!(most_active(active(3), active(7)), active(7));
    assert_eq!(most_active(Verdict::Unknown, active(1)), active(1));
    assert_eq!(most_active(idle(5), Verdict::Unknown), Verdict::Unknown);
    assert_eq!(most_active(idle(5), idle(3)), idle(3));
}
