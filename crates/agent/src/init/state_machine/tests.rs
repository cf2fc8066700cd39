//! Sequences of events and the actions that each must cause.

use super::*;
use Action::{Kill, KillAll, Start, Sync, TerminateAll};
use Event::{AllExited, Stop, Synced, Tick};
use Role::{Entrypoint, PreStop, Serve, Setup, StartupFiles};

const MINIMAL: InitConfig = InitConfig {
    startup_files: false,
    setup: false,
    entrypoint: None,
    pre_stop: false,
    serve: false,
    grace_period: Duration::from_secs(60),
};
const FULL: InitConfig = InitConfig { setup: true, entrypoint: Some(EntrypointExit::Keep), pre_stop: true, ..MINIMAL };

fn exited(role: Role, code: i32) -> Event {
    Event::Exited(role, Outcome::Code(code))
}

/// Feeds the events, each at its second, and compares the actions. Returns the final state.
fn check(config: InitConfig, first: &[Action], steps: &[(u64, Event, &[Action])]) -> State {
    let (mut machine, actions) = InitMachine::new(config, ProcessId { pid: 1, start_ticks: None }, Duration::ZERO);
    assert_eq!(actions, first);
    for (second, event, expect) in steps {
        let now = Duration::from_secs(*second);
        assert_eq!(machine.handle_event(event.clone(), now), *expect, "at {second}s, {event:?}");
    }
    machine.state
}

#[test]
fn setup_entrypoint_and_stop_run_in_sequence() {
    let state = check(
        FULL,
        &[Start(Setup)],
        &[
            (5, Tick, &[]),
            (6, exited(Setup, 0), &[Start(Entrypoint)]),
            (100, Stop, &[Start(PreStop)]),
            (101, exited(PreStop, 0), &[TerminateAll]),
            (101, exited(Entrypoint, 0), &[]),
            (102, AllExited, &[Sync]),
            (102, Synced, &[Action::Exit(0)]),
        ],
    );
    assert_eq!(state.phase, Phase::Stopping);
    assert_eq!(state.phase_since, Duration::from_secs(100).into());
    let at = |run: Option<Run>| run.and_then(|run| run.ended).map(|ended| ended.at.as_f64());
    assert_eq!([at(state.setup), at(state.entrypoint), at(state.pre_stop)], [Some(6.0), Some(101.0), Some(101.0)]);
}

#[test]
fn minimal_server_starts_and_stops_immediately() {
    let state = check(MINIMAL, &[], &[(9, Tick, &[])]);
    assert_eq!(state.phase, Phase::Running);
    check(MINIMAL, &[], &[(9, Stop, &[TerminateAll]), (9, AllExited, &[Sync]), (9, Synced, &[Action::Exit(0)])]);
}

#[test]
fn failed_setup_is_recorded_and_does_not_stop_the_server() {
    for outcome in [Outcome::Code(3), Outcome::Signal(9), Outcome::not_found("no shell")] {
        let failed = Event::Exited(Setup, outcome.clone());
        let state = check(FULL, &[Start(Setup)], &[(1, failed, &[Start(Entrypoint)])]);
        assert_eq!(state.phase, Phase::Running);
        assert_eq!(state.setup.unwrap().outcome(), Some(&outcome));
    }
}

#[test]
fn startup_files_are_created_before_setup() {
    let config = InitConfig { startup_files: true, serve: true, ..FULL };
    for code in [0, 1] {
        let steps: [(u64, Event, &[Action]); 3] = [
            (1, exited(Serve, 1), &[Start(Serve)]),
            (2, exited(StartupFiles, code), &[Start(Setup)]),
            (3, exited(Setup, 0), &[Start(Entrypoint)]),
        ];
        let state = check(config, &[Start(Serve), Start(StartupFiles)], &steps);
        assert_eq!(state.startup_files.unwrap().outcome(), Some(&Outcome::Code(code)));
    }
    let config = InitConfig { startup_files: true, ..MINIMAL };
    let state = check(config, &[Start(StartupFiles)], &[(1, exited(StartupFiles, 0), &[])]);
    assert_eq!(state.phase, Phase::Running);
    check(config, &[Start(StartupFiles)], &[(1, Stop, &[TerminateAll]), (2, exited(StartupFiles, 0), &[])]);
}

#[test]
fn hanging_home_does_not_prevent_the_start() {
    let config = InitConfig { startup_files: true, ..FULL };
    let (machine, _) = InitMachine::new(config, ProcessId { pid: 1, start_ticks: None }, Duration::ZERO);
    assert_eq!(machine.next_wakeup(Duration::from_secs(10)), Some(Duration::from_secs(20)));
    let state = check(
        config,
        &[Start(StartupFiles)],
        &[
            (29, Tick, &[]),
            (30, Tick, &[Kill(StartupFiles), Start(Setup)]),
            (31, Event::Exited(StartupFiles, Outcome::Signal(9)), &[]),
        ],
    );
    assert_eq!((state.phase, state.startup_files.unwrap().outcome()), (Phase::Setup, Some(&Outcome::TimedOut)));
}

#[test]
fn pre_stop_runs_once_for_repeated_stop_requests() {
    check(
        FULL,
        &[Start(Setup)],
        &[
            (1, exited(Setup, 0), &[Start(Entrypoint)]),
            (2, Stop, &[Start(PreStop)]),
            (3, Stop, &[]),
            (4, exited(PreStop, 1), &[TerminateAll]),
            (5, Stop, &[]),
            (6, AllExited, &[Sync]),
            (6, Stop, &[]),
            (6, Synced, &[Action::Exit(0)]),
            (7, Stop, &[]),
        ],
    );
}

#[test]
fn unclaimed_pre_stop_is_started_before_its_deadline() {
    let config = InitConfig { pre_stop: true, ..MINIMAL };
    check(
        config,
        &[],
        &[
            (1, Event::PreStopUnclaimed, &[]),
            (2, Stop, &[Start(PreStop)]),
            (3, Event::PreStopUnclaimed, &[Start(PreStop)]),
            (4, exited(PreStop, 0), &[TerminateAll]),
            (5, Event::PreStopUnclaimed, &[]),
        ],
    );
}

#[test]
fn hanging_stages_end_at_their_deadlines() {
    let config = InitConfig { entrypoint: Some(EntrypointExit::Stop), ..FULL };
    let state = check(
        config,
        &[Start(Setup)],
        &[
            (1, exited(Setup, 0), &[Start(Entrypoint)]),
            (100, Stop, &[Start(PreStop)]),
            (139, Tick, &[]),
            (140, Tick, &[Kill(PreStop), TerminateAll]),
            (141, Event::Exited(PreStop, Outcome::Signal(9)), &[]),
            (149, Tick, &[]),
            (150, Tick, &[KillAll]),
            (152, Tick, &[]),
            (153, Tick, &[Sync]),
            (156, Tick, &[]),
            (157, Tick, &[Action::Exit(0)]),
            (158, Tick, &[]),
        ],
    );
    assert_eq!(state.pre_stop.unwrap().outcome(), Some(&Outcome::TimedOut));
    assert_eq!(state.entrypoint.unwrap().outcome(), None);
}

#[test]
fn sync_starts_after_killed_processes_exited() {
    check(
        MINIMAL,
        &[],
        &[
            (0, Stop, &[TerminateAll]),
            (50, Tick, &[KillAll]),
            (51, AllExited, &[Sync]),
            (52, Synced, &[Action::Exit(0)]),
        ],
    );
}

#[test]
fn stop_during_setup_does_not_start_the_entrypoint() {
    check(
        FULL,
        &[Start(Setup)],
        &[
            (1, Stop, &[Start(PreStop)]),
            (2, exited(Setup, 0), &[]),
            (3, exited(PreStop, 0), &[TerminateAll]),
            (4, AllExited, &[Sync]),
            (4, Synced, &[Action::Exit(0)]),
        ],
    );
}

#[test]
fn entrypoint_exit_keeps_or_stops_the_server() {
    let keep = InitConfig { setup: false, ..FULL };
    let state = check(keep, &[Start(Entrypoint)], &[(1, exited(Entrypoint, 3), &[]), (2, Tick, &[])]);
    assert_eq!((state.phase, state.pre_stop), (Phase::Running, None));

    let stop = InitConfig { entrypoint: Some(EntrypointExit::Stop), ..keep };
    let state = check(
        stop,
        &[Start(Entrypoint)],
        &[
            (1, exited(Entrypoint, 3), &[TerminateAll]),
            (1, Stop, &[]),
            (2, AllExited, &[Sync]),
            (2, Synced, &[Action::Exit(3)]),
        ],
    );
    assert_eq!((state.phase, state.pre_stop), (Phase::Stopping, None));
}

#[test]
fn exit_code_is_that_of_the_entrypoint_only_with_entrypoint_exit_stop() {
    let stopped = |config, outcome| {
        let exited = Event::Exited(Entrypoint, outcome);
        let (mut machine, _) = InitMachine::new(config, ProcessId { pid: 1, start_ticks: None }, Duration::ZERO);
        let last = [Stop, exited, AllExited, Synced]
            .map(|event| machine.handle_event(event, Duration::ZERO))
            .into_iter()
            .next_back();
        last.unwrap()
    };
    let keep = InitConfig { entrypoint: Some(EntrypointExit::Keep), ..MINIMAL };
    let stop = InitConfig { entrypoint: Some(EntrypointExit::Stop), ..keep };
    assert_eq!(stopped(keep, Outcome::Signal(15)), [Action::Exit(0)]);
    assert_eq!(stopped(stop, Outcome::Signal(15)), [Action::Exit(143)]);
    assert_eq!(stopped(stop, Outcome::Code(0)), [Action::Exit(0)]);
}

#[test]
fn signals_are_forwarded_to_a_running_entrypoint() {
    let sighup = || Event::Signal(Signal::HUP);
    check(
        FULL,
        &[Start(Setup)],
        &[
            (1, sighup(), &[]),
            (2, exited(Setup, 0), &[Start(Entrypoint)]),
            (3, sighup(), &[Action::Signal(Entrypoint, Signal::HUP)]),
            (4, Stop, &[Start(PreStop)]),
            (5, sighup(), &[Action::Signal(Entrypoint, Signal::HUP)]),
            (6, exited(Entrypoint, 0), &[]),
            (7, sighup(), &[]),
        ],
    );
}

#[test]
fn running_server_needs_no_wakeup() {
    let (mut machine, _) = InitMachine::new(FULL, ProcessId { pid: 1, start_ticks: None }, Duration::ZERO);
    assert_eq!(machine.next_wakeup(Duration::ZERO), None);
    machine.handle_event(exited(Setup, 0), Duration::ZERO);
    assert_eq!(machine.next_wakeup(Duration::ZERO), None);
    machine.handle_event(Stop, Duration::ZERO);
    assert_eq!(machine.next_wakeup(Duration::from_secs(39)), Some(Duration::from_secs(1)));
    machine.handle_event(exited(PreStop, 0), Duration::from_secs(40));
    assert_eq!(machine.next_wakeup(Duration::from_secs(40)), Some(POLL_INTERVAL));
    assert_eq!(machine.next_wakeup(Duration::from_millis(49_999)), Some(Duration::from_millis(1)));
    assert_eq!(machine.next_wakeup(Duration::from_secs(99)), Some(Duration::ZERO));
}

#[test]
fn serve_starts_before_setup_and_is_restarted() {
    let config = InitConfig { serve: true, ..FULL };
    let state = check(
        config,
        &[Start(Serve), Start(Setup)],
        &[
            (1, exited(Serve, 1), &[Start(Serve)]),
            (2, exited(Serve, 1), &[]),
            (2, Tick, &[]),
            (3, Tick, &[Start(Serve)]),
            (4, exited(Setup, 0), &[Start(Entrypoint)]),
            (50, exited(Serve, 1), &[Start(Serve)]),
            (60, Stop, &[Start(PreStop)]),
            (61, exited(Serve, 1), &[Start(Serve)]),
            (62, exited(PreStop, 0), &[TerminateAll]),
            (62, exited(Serve, 0), &[]),
            (63, AllExited, &[Sync]),
        ],
    );
    assert_eq!(state.serve.unwrap().started, Duration::from_secs(61).into());
}

#[test]
fn restart_of_serve_waits_for_the_backoff() {
    let (mut machine, _) = InitMachine::new(
        InitConfig { serve: true, ..MINIMAL },
        ProcessId { pid: 1, start_ticks: None },
        Duration::ZERO,
    );
    assert_eq!(machine.next_wakeup(Duration::ZERO), None);
    machine.handle_event(exited(Serve, 1), Duration::ZERO);
    machine.handle_event(exited(Serve, 1), Duration::ZERO);
    assert_eq!(machine.next_wakeup(Duration::ZERO), Some(Duration::from_secs(1)));
    assert_eq!(machine.handle_event(Tick, Duration::from_secs(1)), [Start(Serve)]);
    assert_eq!(machine.next_wakeup(Duration::from_secs(1)), None);
}
