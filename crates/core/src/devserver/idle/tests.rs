//! When a server is asked, warned and stopped because nobody uses it.

use odc_api::time::stored;
use odc_api::v1alpha1::condition::Status;
use odc_api::v1alpha1::{DevServer, HibernationCause, Home, Phase};
use odc_control::Signals;

use super::*;
use crate::devserver::agents::{AgentSeen, Agents};
use crate::devserver::fixtures::{Request, at, node, pod, seen, settings};
use crate::devserver::{Plan, Seen, decide};

const LIMIT: i64 = 1_800;
const GRACE: i64 = 300;
const HOUR: i64 = 3_600;

/// Runs since second 0, to be put to sleep after half an hour.
fn running(action: IdleAction) -> Request {
    let mut request = Request::test(|server: &mut DevServer| {
        server.spec.home = Home::Claim("home".parse().unwrap());
        server.spec.lifetime = "100h".parse().unwrap();
        server.spec.idle.action = action;
    });
    request.server = request.server.in_phase(Phase::Running).status(|status| {
        let admission = status.admission.get_or_insert_default();
        (admission.nodes, admission.run) = (vec!["node-1".into()], 3);
        status.running_since = Some(stored(at(0)));
    });
    request
}

fn warned(mut request: Request, second: i64) -> Request {
    let idle = condition::new(Type::Idle, Status::True, Reason::NobodyThere, "x", None, stored(at(second)));
    request.server = request.server.status(|status| status.conditions = vec![idle]);
    request
}

/// An answer of that second: typed so long before, in a server that is as old as it.
fn typed(asked: i64, ago: u64) -> Answer {
    let mut signals = Signals { up_seconds: u64::try_from(asked).unwrap(), ..Signals::default() };
    signals.terminal_input.last_seen_seconds_ago = Some(ago);
    Answer { at: at(asked), signals: Ok(signals), failures: 0 }
}

fn silence(asked: i64, failures: u32) -> Answer {
    Answer { at: at(asked), signals: Err("no route".into()), failures }
}

fn reachable(name: &str) -> Pod {
    let mut pod = pod(name);
    let details = pod.server.as_mut().unwrap();
    (details.ip, details.host_key) = (Some("10.0.0.7".into()), Some("ssh-ed25519 host".into()));
    pod
}

fn plan(request: &Request, answer: impl Into<Option<Answer>>, now: i64) -> Plan {
    let answer = answer.into();
    let idle = request.server.status.as_ref().and_then(|status| condition::find(&status.conditions, Type::Idle));
    // Told at once.
    let noticed = idle.map(|idle| idle.last_transition_time.0);
    request.check(|checked| {
        let answer = answer.clone().map(Box::new);
        let pod = reachable("server-1-0");
        let of = [(pod.uid.clone(), AgentSeen { noticed, answer, ..AgentSeen::default() })].into();
        let (pods, nodes) = ([pod], [node("node-1")]);
        let seen = Seen { agents: Agents { since: Some(at(-1_000)), of }, ..seen(&pods, &nodes) };
        decide(&request.server, checked, &seen, &settings(), at(now))
    })
}

fn asks(plan: &Plan) -> bool {
    plan.calls.iter().any(|call| call.say == Say::Signals)
}

/// As it is to be stored.
fn idle(plan: &Plan) -> String {
    let conditions = plan.status.as_ref().map_or(&[][..], |status| &status.conditions);
    condition::find(conditions, Type::Idle).map_or_else(String::new, |idle| format!("{} {}", idle.status, idle.reason))
}

#[test]
fn nobody_is_asked_before_it_can_be_idle() {
    let request = running(IdleAction::Hibernate);
    assert!(!asks(&plan(&request, None, LIMIT - 1)));
    assert!(asks(&plan(&request, None, LIMIT)));
    assert_eq!(idle(&plan(&request, None, 10)), "False Active");
    // Typed ten minutes before it was asked: idle after twenty more at the earliest.
    assert!(!asks(&plan(&request, typed(LIMIT, 600), LIMIT + 1_199)));
    assert!(asks(&plan(&request, typed(LIMIT, 600), LIMIT + 1_200)));
}

#[test]
fn who_is_not_to_be_stopped_is_asked_about_hourly_and_never_judged() {
    let request = running(IdleAction::None);
    assert!(!asks(&plan(&request, None, HOUR - 1)));
    let first = plan(&request, None, HOUR);
    assert_eq!((asks(&first), idle(&first).as_str()), (true, "False NotWatched"));
    // Nobody was there for days; and an agent that says nothing is asked no sooner.
    for answer in [typed(HOUR, 500_000), silence(HOUR, 100)] {
        let later = plan(&request, answer.clone(), 2 * HOUR - 1);
        assert_eq!((asks(&later), idle(&later).as_str()), (false, "False NotWatched"));
        assert_eq!((later.phase, later.again), (Some(Phase::Running), Again::After(Duration::from_secs(1))));
        assert!(asks(&plan(&request, answer, 2 * HOUR)));
    }
}

#[test]
fn what_was_killed_for_want_of_memory_is_told_where_nobody_is_judged_and_nothing_else_is_written() {
    let mut request = running(IdleAction::None);
    request.server.status = plan(&request, None, 10).status;
    let heard = |oom_kills| {
        let mut answer = typed(HOUR, 0);
        answer.signals = answer.signals.map(|signals| Signals { oom_kills, ..signals });
        plan(&request, answer, HOUR + 1)
    };
    assert_eq!(heard(2).status.unwrap().oom_kills, Some(2));
    let nothing = heard(0);
    assert_eq!((nothing.status, nothing.writes.len(), nothing.events.len()), (None, 0, 0));
}

#[test]
fn a_warning_is_stored_and_nothing_stops_before_its_grace_is_over() {
    let request = running(IdleAction::Hibernate);
    let first = plan(&request, typed(LIMIT, 1_800), LIMIT);
    assert_eq!((idle(&first), first.writes.len()), ("True NobodyThere".to_owned(), 0));
    let request = warned(request, LIMIT);
    let waiting = plan(&request, typed(LIMIT, 1_800), LIMIT + GRACE - 1);
    assert!(!asks(&waiting) && waiting.writes.is_empty());
    assert_ne!(waiting.phase, Some(Phase::Hibernating));
    assert!(asks(&plan(&request, typed(LIMIT, 1_800), LIMIT + GRACE)));
}

#[test]
fn after_the_grace_a_fresh_answer_puts_it_to_sleep() {
    let request = warned(running(IdleAction::Hibernate), LIMIT);
    let now = LIMIT + GRACE;
    let status = plan(&request, typed(now, 2_100), now + 1).status.unwrap();
    assert_eq!(status.phase, Some(Phase::Hibernating));
    assert_eq!(status.hibernation.unwrap().by, HibernationCause::Idle);
    // What was true minutes ago is asked again.
    let old = plan(&request, typed(now, 2_100), now + 31);
    assert!(asks(&old) && old.status.is_none_or(|status| status.phase == Some(Phase::Running)));
}

#[test]
fn who_is_to_end_ends_with_the_reason_stored_first() {
    let mut request = warned(running(IdleAction::End), LIMIT);
    let now = LIMIT + GRACE;
    let first = plan(&request, typed(now, 2_100), now);
    assert_eq!((first.status.as_ref().unwrap().phase, first.writes.len()), (Some(Phase::Stopping), 0));
    request.server.status = first.status;
    // From here on it ends, whatever the agent says.
    let second = plan(&request, typed(now + 1, 0), now + 1);
    assert_eq!((second.phase, second.writes.len()), (Some(Phase::Stopping), 1));
}

#[test]
fn any_use_since_the_warning_cancels_it() {
    let request = warned(running(IdleAction::Hibernate), LIMIT);
    let now = LIMIT + GRACE;
    let plan = plan(&request, typed(now, 299), now);
    assert_eq!((idle(&plan), plan.phase), ("False Active".to_owned(), Some(Phase::Running)));
}

#[test]
fn use_within_the_grace_cancels_even_where_the_timeout_is_shorter() {
    let mut request = warned(running(IdleAction::Hibernate), 60);
    request.server.spec.idle.timeout = "1m".parse().unwrap();
    let plan = plan(&request, typed(60 + GRACE, 120), 60 + GRACE);
    assert_eq!((idle(&plan), plan.phase), ("False Active".to_owned(), Some(Phase::Running)));
}

#[test]
fn no_answer_stops_nothing_and_is_told_when_it_lasts() {
    let request = warned(running(IdleAction::Hibernate), LIMIT);
    let now = LIMIT + GRACE;
    let once = plan(&request, silence(now, 1), now);
    assert_eq!((once.writes.len(), once.phase), (0, Some(Phase::Running)));
    let often = plan(&request, silence(now, 3), now);
    assert_eq!(idle(&often), "False AgentUnreachable");
    assert!(asks(&plan(&request, silence(now, 3), now + 30)));
    assert!(!asks(&plan(&request, silence(now, 100), now + 299)));
}

#[test]
fn a_warning_of_an_earlier_run_counts_for_nothing() {
    let request = warned(running(IdleAction::Hibernate), -10);
    let plan = plan(&request, None, 10);
    assert_eq!((idle(&plan), asks(&plan)), ("False Active".to_owned(), false));
}

#[test]
fn the_grace_begins_when_people_could_read_the_warning() {
    let request = warned(running(IdleAction::Hibernate), LIMIT);
    let later = LIMIT + GRACE + 60;
    let told = |noticed: Option<i64>, now: i64| {
        request.check(|checked| {
            let (pods, nodes) = ([reachable("server-1-0")], [node("node-1")]);
            let agent = AgentSeen {
                answer: Some(Box::new(typed(later, 3_000))),
                noticed: noticed.map(at),
                ..AgentSeen::default()
            };
            let agents = Agents { since: Some(at(-1_000)), of: [(pods[0].uid.clone(), agent)].into() };
            let plan = decide(&request.server, checked, &Seen { agents, ..seen(&pods, &nodes) }, &settings(), at(now));
            plan.status.and_then(|status| status.phase) == Some(Phase::Hibernating)
        })
    };
    assert!(!told(None, later), "nobody was told");
    assert!(!told(Some(later - 1), later), "just told");
    assert!(told(Some(later - GRACE), later));
}

#[test]
fn of_several_nodes_only_those_are_asked_whose_answer_is_missing() {
    let mut request = running(IdleAction::Hibernate);
    request.server.spec.nodes = 2;
    request.server = request.server.status(|status| {
        status.admission.get_or_insert_default().nodes = vec!["node-1".into(), "node-2".into()];
    });
    let asked = |answers: [Option<Answer>; 2], change: fn(&mut Pod)| {
        request.check(|checked| {
            let mut pods = [reachable("server-1-0"), reachable("server-1-1")];
            pods[1].node = Some("node-2".into());
            change(&mut pods[1]);
            let nodes = [node("node-1"), node("node-2")];
            let agent =
                |answer: &Option<Answer>| AgentSeen { answer: answer.clone().map(Box::new), ..AgentSeen::default() };
            let of = pods.iter().zip(&answers).map(|(pod, answer)| (pod.uid.clone(), agent(answer))).collect();
            let seen = Seen { agents: Agents { since: Some(at(-1_000)), of }, ..seen(&pods, &nodes) };
            let plan = decide(&request.server, checked, &seen, &settings(), at(LIMIT));
            let asked = plan.calls.iter().filter(|call| call.say == Say::Signals);
            asked.map(|call| call.pod.clone()).collect::<Vec<_>>()
        })
    };
    assert_eq!(asked([None, None], |_| {}).len(), 2);
    assert_eq!(asked([Some(typed(LIMIT, 0)), None], |_| {}), ["uid-server-1-1"]);
    assert_eq!(asked([Some(typed(LIMIT, 0)), Some(typed(LIMIT, 9))], |_| {}), Vec::<String>::new());
    // One that cannot be asked makes nobody ask the others again and again.
    let lost: fn(&mut Pod) = |pod| pod.server.as_mut().unwrap().host_key = None;
    assert_eq!(asked([Some(typed(LIMIT, 0)), None], lost), Vec::<String>::new());
}

#[test]
fn an_answer_from_a_time_to_come_counts_for_nothing() {
    let request = warned(running(IdleAction::Hibernate), LIMIT);
    let plan = plan(&request, typed(LIMIT + GRACE + 100, 9_000), LIMIT + GRACE);
    assert!(asks(&plan) && plan.phase == Some(Phase::Running));
}

#[test]
fn the_port_that_kept_it_awake_is_named() {
    let told = |port| {
        let mut answer = typed(LIMIT, 1_500);
        let carried = odc_control::Forwarded { port, bytes: 7, last_seen_seconds_ago: Some(60) };
        answer.signals = answer.signals.map(|signals| Signals { forwarded: vec![carried], ..signals });
        let status = plan(&running(IdleAction::Hibernate), answer, LIMIT).status.unwrap();
        condition::find(&status.conditions, Type::Idle).unwrap().message.to_string()
    };
    assert_eq!(told(8888), "When it was last asked, forwarded port 8888 carried data.");
    assert_eq!(told(0), "When it was last asked, a forwarded socket carried data.");
}

#[test]
fn one_busy_node_keeps_the_others() {
    let active = |rest| Verdict::Active {
        last: Signal::TerminalInput.into(),
        look_again: Duration::from_secs(rest),
        because: String::new(),
    };
    let idle = |ago| Verdict::Idle { last: Signal::Gpu.into(), ago: Duration::from_secs(ago), because: String::new() };
    let unknown = || Verdict::Unknown { because: String::new() };
    assert_eq!(busier(idle(5), active(1)), active(1));
    assert_eq!(busier(active(3), active(7)), active(7));
    assert_eq!(busier(unknown(), active(1)), active(1));
    assert_eq!(busier(idle(5), unknown()), unknown());
    assert_eq!(busier(idle(5), idle(3)), idle(3));
}
