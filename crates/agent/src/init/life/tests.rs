//! Whole lives, told as what happens and what must be done about it.

use super::*;
use Action::{Flush, Kill, KillAll, Leave, Start, TerminateAll};
use Event::{AllEnded, Flushed, Glance, Stop};
use Role::{Entrypoint, PreStop, Serve, Setup};

const BARE: Terms =
    Terms { setup: false, entrypoint: None, pre_stop: false, serve: false, grace: Duration::from_secs(60) };
const FULL: Terms = Terms { setup: true, entrypoint: Some(EntrypointExit::Keep), pre_stop: true, ..BARE };

fn ended(role: Role, code: i32) -> Event {
    Event::Ended(role, Outcome::Code(code))
}

/// Lives through the steps: at a second, an event, and exactly the actions it must cause.
fn check(terms: Terms, first: &[Action], steps: &[(u64, Event, &[Action])]) -> State {
    let (mut life, actions) = Life::begin(terms, Process { pid: 1, start_ticks: None }, Duration::ZERO);
    assert_eq!(actions, first);
    for (second, event, expect) in steps {
        let now = Duration::from_secs(*second);
        assert_eq!(life.on(event.clone(), now), *expect, "at {second} s, {event:?}");
    }
    life.state
}

#[test]
fn setup_then_entrypoint_then_an_orderly_stop() {
    let state = check(
        FULL,
        &[Start(Setup)],
        &[
            (5, Glance, &[]),
            (6, ended(Setup, 0), &[Start(Entrypoint)]),
            (100, Stop, &[Start(PreStop)]),
            (101, ended(PreStop, 0), &[TerminateAll]),
            (101, ended(Entrypoint, 0), &[]),
            (102, AllEnded, &[Flush]),
            (102, Flushed, &[Leave(0)]),
        ],
    );
    assert_eq!(state.phase, Phase::Stopping);
    assert_eq!(state.phase_since, Duration::from_secs(100).into());
    let at = |run: Option<Run>| run.and_then(|run| run.ended).map(|ended| ended.at.as_f64());
    assert_eq!([at(state.setup), at(state.entrypoint), at(state.pre_stop)], [Some(6.0), Some(101.0), Some(101.0)]);
}

#[test]
fn a_server_without_anything_runs_at_once_and_stops_at_once() {
    let state = check(BARE, &[], &[(9, Glance, &[])]);
    assert_eq!(state.phase, Phase::Running);
    check(BARE, &[], &[(9, Stop, &[TerminateAll]), (9, AllEnded, &[Flush]), (9, Flushed, &[Leave(0)])]);
}

#[test]
fn a_failed_setup_is_recorded_and_the_server_goes_on() {
    for outcome in [Outcome::Code(3), Outcome::Signal(9), Outcome::not_found("no shell")] {
        let failed = Event::Ended(Setup, outcome.clone());
        let state = check(FULL, &[Start(Setup)], &[(1, failed, &[Start(Entrypoint)])]);
        assert_eq!(state.phase, Phase::Running);
        assert_eq!(state.setup.unwrap().outcome(), Some(&outcome));
    }
}

#[test]
fn pre_stop_runs_once_however_often_a_stop_is_asked_for() {
    check(
        FULL,
        &[Start(Setup)],
        &[
            (1, ended(Setup, 0), &[Start(Entrypoint)]),
            (2, Stop, &[Start(PreStop)]),
            (3, Stop, &[]),
            (4, ended(PreStop, 1), &[TerminateAll]),
            (5, Stop, &[]),
            (6, AllEnded, &[Flush]),
            (6, Stop, &[]),
            (6, Flushed, &[Leave(0)]),
            (7, Stop, &[]),
        ],
    );
}

#[test]
fn a_pre_stop_that_others_left_is_begun_by_us_while_there_is_time() {
    let terms = Terms { pre_stop: true, ..BARE };
    check(
        terms,
        &[],
        &[
            (1, Event::PreStopOpen, &[]),
            (2, Stop, &[Start(PreStop)]),
            (3, Event::PreStopOpen, &[Start(PreStop)]),
            (4, ended(PreStop, 0), &[TerminateAll]),
            (5, Event::PreStopOpen, &[]),
        ],
    );
}

#[test]
fn whatever_hangs_the_server_leaves_in_time() {
    let terms = Terms { entrypoint: Some(EntrypointExit::End), ..FULL };
    let state = check(
        terms,
        &[Start(Setup)],
        &[
            (1, ended(Setup, 0), &[Start(Entrypoint)]),
            (100, Stop, &[Start(PreStop)]),
            (139, Glance, &[]),
            (140, Glance, &[Kill(PreStop), TerminateAll]),
            (141, Event::Ended(PreStop, Outcome::Signal(9)), &[]),
            (149, Glance, &[]),
            (150, Glance, &[KillAll]),
            (152, Glance, &[]),
            (153, Glance, &[Flush]),
            (156, Glance, &[]),
            (157, Glance, &[Leave(0)]),
            (158, Glance, &[]),
        ],
    );
    assert_eq!(state.pre_stop.unwrap().outcome(), Some(&Outcome::TimedOut));
    assert_eq!(state.entrypoint.unwrap().outcome(), None);
}

#[test]
fn the_killed_are_waited_for_before_files_are_written() {
    check(
        BARE,
        &[],
        &[(0, Stop, &[TerminateAll]), (50, Glance, &[KillAll]), (51, AllEnded, &[Flush]), (52, Flushed, &[Leave(0)])],
    );
}

#[test]
fn a_stop_during_setup_starts_no_entrypoint() {
    check(
        FULL,
        &[Start(Setup)],
        &[
            (1, Stop, &[Start(PreStop)]),
            (2, ended(Setup, 0), &[]),
            (3, ended(PreStop, 0), &[TerminateAll]),
            (4, AllEnded, &[Flush]),
            (4, Flushed, &[Leave(0)]),
        ],
    );
}

#[test]
fn an_ended_entrypoint_leaves_the_server_alone_or_takes_it_along() {
    let keep = Terms { setup: false, ..FULL };
    let state = check(keep, &[Start(Entrypoint)], &[(1, ended(Entrypoint, 3), &[]), (2, Glance, &[])]);
    assert_eq!((state.phase, state.pre_stop), (Phase::Running, None));

    let end = Terms { entrypoint: Some(EntrypointExit::End), ..keep };
    let state = check(
        end,
        &[Start(Entrypoint)],
        &[
            (1, ended(Entrypoint, 3), &[TerminateAll]),
            (1, Stop, &[]),
            (2, AllEnded, &[Flush]),
            (2, Flushed, &[Leave(3)]),
        ],
    );
    assert_eq!((state.phase, state.pre_stop), (Phase::Stopping, None));
}

#[test]
fn the_exit_code_is_the_entrypoints_only_if_it_counts() {
    let stopped = |terms, outcome| {
        let ended = Event::Ended(Entrypoint, outcome);
        let (mut life, _) = Life::begin(terms, Process { pid: 1, start_ticks: None }, Duration::ZERO);
        let last = [Stop, ended, AllEnded, Flushed].map(|event| life.on(event, Duration::ZERO)).into_iter().next_back();
        last.unwrap()
    };
    let keep = Terms { entrypoint: Some(EntrypointExit::Keep), ..BARE };
    let end = Terms { entrypoint: Some(EntrypointExit::End), ..keep };
    assert_eq!(stopped(keep, Outcome::Signal(15)), [Leave(0)]);
    assert_eq!(stopped(end, Outcome::Signal(15)), [Leave(143)]);
    assert_eq!(stopped(end, Outcome::Code(0)), [Leave(0)]);
}

#[test]
fn signals_reach_the_entrypoint_while_it_runs() {
    let hangup = || Event::Signal(Signal::HUP);
    check(
        FULL,
        &[Start(Setup)],
        &[
            (1, hangup(), &[]),
            (2, ended(Setup, 0), &[Start(Entrypoint)]),
            (3, hangup(), &[Action::Signal(Entrypoint, Signal::HUP)]),
            (4, Stop, &[Start(PreStop)]),
            (5, hangup(), &[Action::Signal(Entrypoint, Signal::HUP)]),
            (6, ended(Entrypoint, 0), &[]),
            (7, hangup(), &[]),
        ],
    );
}

#[test]
fn a_server_at_peace_needs_no_clock() {
    let (mut life, _) = Life::begin(FULL, Process { pid: 1, start_ticks: None }, Duration::ZERO);
    assert_eq!(life.patience(Duration::ZERO), None);
    life.on(ended(Setup, 0), Duration::ZERO);
    assert_eq!(life.patience(Duration::ZERO), None);
    life.on(Stop, Duration::ZERO);
    assert_eq!(life.patience(Duration::from_secs(39)), Some(Duration::from_secs(1)));
    life.on(ended(PreStop, 0), Duration::from_secs(40));
    assert_eq!(life.patience(Duration::from_secs(40)), Some(GLANCE));
    assert_eq!(life.patience(Duration::from_millis(49_999)), Some(Duration::from_millis(1)));
    assert_eq!(life.patience(Duration::from_secs(99)), Some(Duration::ZERO));
}

#[test]
fn people_are_let_in_before_setup_and_again_whenever_that_ends() {
    let terms = Terms { serve: true, ..FULL };
    let state = check(
        terms,
        &[Start(Serve), Start(Setup)],
        &[
            (1, ended(Serve, 1), &[Start(Serve)]),
            (2, ended(Serve, 1), &[]),
            (2, Glance, &[]),
            (3, Glance, &[Start(Serve)]),
            (4, ended(Setup, 0), &[Start(Entrypoint)]),
            (50, ended(Serve, 1), &[Start(Serve)]),
            (60, Stop, &[Start(PreStop)]),
            (61, ended(Serve, 1), &[Start(Serve)]),
            (62, ended(PreStop, 0), &[TerminateAll]),
            (62, ended(Serve, 0), &[]),
            (63, AllEnded, &[Flush]),
        ],
    );
    assert_eq!(state.serve.unwrap().started, Duration::from_secs(61).into());
}

#[test]
fn the_pause_before_a_comeback_is_waited_for() {
    let (mut life, _) =
        Life::begin(Terms { serve: true, ..BARE }, Process { pid: 1, start_ticks: None }, Duration::ZERO);
    assert_eq!(life.patience(Duration::ZERO), None);
    life.on(ended(Serve, 1), Duration::ZERO);
    life.on(ended(Serve, 1), Duration::ZERO);
    assert_eq!(life.patience(Duration::ZERO), Some(Duration::from_secs(1)));
    assert_eq!(life.on(Glance, Duration::from_secs(1)), [Start(Serve)]);
    assert_eq!(life.patience(Duration::from_secs(1)), None);
}
