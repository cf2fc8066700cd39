//! What agents are told, and how a stop waits for them.

use std::time::Duration;

use odc_api::fixtures::KEY;
use odc_api::time::stored;
use odc_api::v1alpha1::condition::Reason;
use odc_api::v1alpha1::{Desired, DevServer, Home, Phase};

use super::*;
use crate::devserver::fixtures::{Request, at, node, pod, seen, settings};
use crate::devserver::{Plan, Seen, decide};
use crate::plan::Write;

/// Runs on one node since second 0, with an agent that can be reached.
fn running() -> Request {
    let home = |server: &mut DevServer| server.spec.home = Home::Claim("home".parse().unwrap());
    let mut request = Request::test(home);
    request.server = request.server.in_phase(Phase::Running).status(|status| {
        let admission = status.admission.get_or_insert_default();
        (admission.nodes, admission.run) = (vec!["node-1".into()], 3);
        status.running_since = Some(stored(at(0)));
        status.started_at = Some(stored(at(0)));
    });
    request
}

fn there(change: impl FnOnce(&mut Pod)) -> Pod {
    let mut pod = pod("server-1-0");
    let details = pod.server.as_mut().unwrap();
    (details.ip, details.host_key) = (Some("10.0.0.7".into()), Some("ssh-ed25519 host".into()));
    change(&mut pod);
    pod
}

fn plan(request: &Request, pod: &Pod, agent: Option<AgentSeen>, now: i64) -> Plan {
    request.check(|checked| {
        let (pods, nodes) = ([pod.clone()], [node("node-1")]);
        let of = agent.map(|agent| (pod.uid.clone(), agent)).into_iter().collect();
        let agents = Agents { since: Some(at(0)), of };
        let seen = Seen { agents, ..seen(&pods, &nodes) };
        decide(&request.server, checked, &seen, &settings(), at(now))
    })
}

fn said(plan: &Plan) -> Vec<&Say> {
    plan.calls.iter().map(|call| &call.say).collect()
}

fn told(request: &Request) -> Told {
    match said(&plan(request, &there(|_| {}), None, 10)).as_slice() {
        [Say::Tell(told)] => (**told).clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_running_server_is_told_everything_once() {
    let mut request = running();
    request.user.as_mut().unwrap().spec.keys.clear();
    request.server.spec.access.keys = vec![KEY.parse().unwrap()];
    let first = told(&request);
    assert_eq!(first.access.keys, [KEY.parse::<odc_api::ssh_key::PublicKey>().unwrap().line()]);
    assert_eq!(first.jupyter, Some(false));
    let knows = AgentSeen { told: Some(Box::new(first.clone())), ..AgentSeen::default() };
    assert_eq!(said(&plan(&request, &there(|_| {}), Some(knows.clone()), 10)), Vec::<&Say>::new());
    // Another list, and another start of the container, which forgot.
    request.server.spec.access.keys.clear();
    assert_ne!(told(&request), first);
    let mut restarted = request.clone();
    restarted.server.spec.access.keys = vec![KEY.parse().unwrap()];
    let knows_less = AgentSeen { told: Some(Box::new(Told { restarts: -1, ..first })), ..AgentSeen::default() };
    assert_eq!(said(&plan(&restarted, &there(|_| {}), Some(knows_less), 10)).len(), 1);
}

#[test]
fn the_call_goes_to_the_pod_and_to_no_other_key() {
    let plan = plan(&running(), &there(|_| {}), None, 10);
    let call = plan.calls.first().unwrap();
    assert_eq!(
        (call.pod.as_str(), call.address.as_str(), call.host_key.as_str()),
        ("uid-server-1-0", "10.0.0.7", "ssh-ed25519 host")
    );
}

#[test]
fn who_does_not_answer_is_called_again_after_a_pause_that_grows() {
    let deaf = |times| AgentSeen { deaf: Some(Failed { at: at(100), times }), ..AgentSeen::default() };
    let calls = |times, now| plan(&running(), &there(|_| {}), Some(deaf(times)), now).calls.len();
    assert_eq!((calls(1, 100), calls(1, 101)), (0, 1));
    assert_eq!((calls(4, 107), calls(4, 108)), (0, 1));
    assert_eq!((calls(40, 399), calls(40, 400)), (0, 1));
}

#[test]
fn nobody_is_called_who_cannot_be_reached() {
    for pod in [
        there(|pod| pod.server.as_mut().unwrap().ip = None),
        there(|pod| pod.server.as_mut().unwrap().host_key = None),
        there(|pod| pod.server.as_mut().unwrap().ready = false),
    ] {
        assert_eq!(plan(&running(), &pod, None, 10).calls, []);
    }
}

#[test]
fn a_stop_waits_for_an_agent_that_answered_and_for_no_other() {
    let mut stopping = running();
    stopping.server = stopping.server.desired(Desired::Hibernated);
    let agent = |quiesce| AgentSeen { told: Some(Box::new(told(&running()))), quiesce, ..AgentSeen::default() };
    let go = |agent, now| {
        let plan = plan(&stopping, &there(|_| {}), agent, now);
        (plan.calls.len(), plan.writes.iter().filter(|write| matches!(write, Write::Delete(_))).count())
    };
    assert_eq!(go(None, 10), (0, 1));
    assert_eq!(go(Some(AgentSeen::default()), 10), (0, 1));
    assert_eq!(go(Some(agent(Quiesce::NotAsked)), 10), (1, 0));
    assert_eq!(go(Some(agent(Quiesce::Asked(at(10)))), 69), (1, 0));
    assert_eq!(go(Some(agent(Quiesce::Asked(at(10)))), 70), (0, 1));
    assert_eq!(go(Some(agent(Quiesce::Over)), 10), (0, 1));
}

#[test]
fn what_was_not_in_order_is_told_before_the_pod_goes_and_only_once() {
    let mut stopping = running();
    stopping.server = stopping.server.desired(Desired::Hibernated);
    let unfit = Unfit { at: at(20), reason: Reason::PreStopFailed, message: "It failed.".into(), log: None };
    let agent = |unfit: &Unfit| AgentSeen {
        told: Some(Box::new(told(&running()))),
        quiesce: Quiesce::Over,
        unfit: Some(unfit.clone()),
        ..AgentSeen::default()
    };
    let first = plan(&stopping, &there(|_| {}), Some(agent(&unfit)), 20);
    let status = first.status.unwrap();
    assert_eq!(status.last_failure.as_ref().unwrap().reason, "PreStopFailed");
    assert!(first.events.iter().any(|event| event.serious && event.note == "It failed."));
    assert_eq!((first.writes, first.again), (vec![], Again::After(Duration::ZERO)));
    stopping.server.status = Some(status);
    let then = plan(&stopping, &there(|_| {}), Some(agent(&unfit)), 21);
    assert_eq!((then.writes.len(), then.events, then.status), (1, vec![], None));
    // The same words at another stop are another failure.
    let again = Unfit { at: at(500), ..unfit };
    assert_eq!(plan(&stopping, &there(|_| {}), Some(agent(&again)), 500).events.len(), 1);
}

#[test]
fn an_agent_whose_stop_was_called_off_is_told_everything_again() {
    let asked =
        AgentSeen { told: Some(Box::new(told(&running()))), quiesce: Quiesce::Asked(at(5)), ..AgentSeen::default() };
    for mut agent in [asked.clone(), AgentSeen { quiesce: Quiesce::Over, ..asked.clone() }] {
        agent.goes_on();
        assert_eq!(agent.quiesce, Quiesce::NotAsked);
        assert_eq!(said(&plan(&running(), &there(|_| {}), Some(agent), 10)).len(), 1);
    }
    let mut other = AgentSeen { quiesce: Quiesce::NotAsked, ..asked };
    other.goes_on();
    assert_eq!(said(&plan(&running(), &there(|_| {}), Some(other), 10)).len(), 0);
}

#[test]
fn kills_are_counted_once_however_often_they_are_told() {
    let answer = |boot: &str, oom_kills| {
        let signals = Signals { container_boot: boot.into(), oom_kills, ..Signals::default() };
        AgentSeen {
            answer: Some(Box::new(Answer { at: at(5), signals: Ok(signals), failures: 0 })),
            ..AgentSeen::default()
        }
    };
    let counted = |request: &Request, (boot, kills)| {
        let plan = plan(request, &there(|_| {}), Some(answer(boot, kills)), 10);
        plan.status.as_ref().unwrap_or(request.server.status.as_ref().unwrap()).clone()
    };
    let mut request = running();
    for (told, total) in [
        (("one", 0), None),
        (("one", 2), Some(2)),
        (("one", 2), Some(2)),
        (("one", 3), Some(3)),
        // The container was started anew, and counts from none.
        (("two", 0), Some(3)),
        (("two", 3), Some(6)),
        (("two", 4), Some(7)),
        (("three", 1), Some(8)),
    ] {
        let status = counted(&request, told);
        assert_eq!(status.oom_kills, total, "after {told:?}");
        request.server.status = Some(status);
    }
}

#[test]
fn pauses_are_bounded() {
    assert_eq!(pause(0), Duration::from_secs(1));
    assert_eq!(pause(u32::MAX), LONGEST_PAUSE);
}
