//! Stopping: sequence of steps, and that it finishes within the grace period.

use std::time::{Duration, Instant};

use odc_agent::init_state::Phase;
use odc_control::Outcome;
use rustix::process::Signal;

use crate::harness::{ServerBuilder, outcome, wait_until, wait_with_traps};

/// For servers with processes that must be killed. With the default grace period, this would take longer than the tests
/// wait.
const GRACE_PERIOD: Duration = Duration::from_secs(4);

/// Logged when remaining processes are killed.
const GRACE_PERIOD_EXCEEDED: &str = "grace period exceeded";

fn builder() -> ServerBuilder {
    ServerBuilder::new().flag(format!("--grace={}", GRACE_PERIOD.as_secs()))
}

/// Ignores SIGTERM.
const IGNORES_SIGTERM: &str = "trap '' TERM; touch $HOME/ready; while :; do sleep 1000; done";

#[test]
fn pre_stop_runs_once_before_other_processes_are_terminated() {
    let entrypoint = wait_with_traps("trap 'echo entrypoint >>$HOME/order; exit 0' TERM;");
    let pre_stop = "touch $HOME/started; until [ -e $HOME/go ]; do sleep 0.01; done; echo pre-stop >>$HOME/order";
    let mut server = ServerBuilder::new().shell(&entrypoint).pre_stop(pre_stop).start();
    server.wait_for_file("ready");
    server.signal(Signal::TERM);
    server.wait_for_file("started");
    assert_eq!(server.probe(), (Some(1), "the server is stopping".to_owned()));
    for _ in 0..5 {
        server.signal(Signal::TERM);
        server.signal_internally("TERM");
    }
    std::fs::write(server.path("go"), "").unwrap();
    assert_eq!(server.wait_code(), 0);
    assert_eq!(server.text("order"), "pre-stop\nentrypoint\n");
    let state = server.state().unwrap();
    assert_eq!(state.phase, Phase::Stopping);
    assert_eq!(outcome(state.pre_stop), Outcome::Code(0));
    assert_eq!(outcome(state.entrypoint), Outcome::Code(0));
}

#[test]
fn every_stop_signal_runs_pre_stop_and_terminates() {
    for signal in [Signal::QUIT, Signal::INT, Signal::WINCH, Signal::USR1, Signal::HUP] {
        let entrypoint = wait_with_traps("trap 'echo TERM >>$HOME/got; exit 0' TERM;");
        let mut server = ServerBuilder::new().shell(&entrypoint).pre_stop("touch $HOME/pre-stop-ran").start();
        server.wait_for_file("ready");
        server.signal(signal);
        assert_eq!(server.wait_code(), 0, "{signal:?}");
        assert!(server.path("pre-stop-ran").exists());
        assert_eq!(server.text("got"), "TERM\n", "{signal:?}");
    }
}

#[test]
fn internal_sigterm_stops_the_server() {
    let mut server = ServerBuilder::new().start();
    server.wait_running();
    server.signal_internally("TERM");
    assert_eq!(server.wait_code(), 0);
}

#[test]
fn stop_does_not_wait_for_the_full_grace_period() {
    let mut server = ServerBuilder::new().shell("sleep 1000 & sleep 1000 & touch $HOME/ready; exec sleep 1000").start();
    server.wait_for_file("ready");
    assert_eq!(server.stop(), 0);
    assert!(!server.text("stderr").contains(GRACE_PERIOD_EXCEEDED));
}

#[test]
fn stopped_process_receives_sigterm() {
    let stopped = "trap 'touch $HOME/terminated; exit 0' TERM; kill -STOP $$; exit 1";
    let mut server = ServerBuilder::new().shell(stopped).start();
    wait_until("it is stopped", || (server.children() == ['T']).then_some(()));
    assert_eq!(server.stop(), 0);
    assert!(server.path("terminated").exists());
    assert!(!server.text("stderr").contains(GRACE_PERIOD_EXCEEDED));
}

#[test]
fn process_that_ignores_sigterm_is_killed_within_the_grace_period() {
    for (flag, expect) in [("--entrypoint-exit=keep", 0), ("--entrypoint-exit=stop", 137)] {
        let mut server = builder().flag(flag).shell(IGNORES_SIGTERM).start();
        server.wait_for_file("ready");
        let started = Instant::now();
        assert_eq!(server.stop(), expect);
        assert!(started.elapsed() > GRACE_PERIOD / 2, "it had time to exit: {:?}", started.elapsed());
        assert_eq!(outcome(server.state().unwrap().entrypoint), Outcome::Signal(9));
        assert!(server.text("stderr").contains(GRACE_PERIOD_EXCEEDED));
    }
}

#[test]
fn hanging_pre_stop_is_killed_within_the_grace_period() {
    let entrypoint = wait_with_traps("trap 'touch $HOME/ended; exit 0' TERM;");
    let mut server = builder().shell(&entrypoint).pre_stop("trap '' TERM; sleep 1000").start();
    server.wait_for_file("ready");
    assert_eq!(server.stop(), 0);
    assert!(server.path("ended").exists());
    assert_eq!(outcome(server.state().unwrap().pre_stop), Outcome::TimedOut);
}

#[test]
fn failed_pre_stop_is_reported() {
    let mut server = ServerBuilder::new().pre_stop("echo sorry; exit 9").start();
    server.wait_running();
    assert_eq!(server.stop(), 0);
    assert_eq!(outcome(server.state().unwrap().pre_stop), Outcome::Code(9));
    assert!(server.text("stderr").contains("pre-stop exited with code 9"));
    assert_eq!(server.text("state/pre-stop.log"), "sorry\n");
}

#[test]
fn processes_from_outside_are_terminated() {
    let mut server = builder().start();
    server.wait_running();
    let mut terminates = server.inside(&["/bin/sh", "-c", "touch $HOME/other-ready; exec sleep 1000"]).spawn().unwrap();
    let mut ignores = server.inside(&["/bin/sh", "-c", IGNORES_SIGTERM]).spawn().unwrap();
    server.wait_for_file("other-ready");
    server.wait_for_file("ready");
    assert_eq!(server.stop(), 0);
    assert!(server.text("stderr").contains(GRACE_PERIOD_EXCEEDED));
    for process in [&mut terminates, &mut ignores] {
        assert!(!process.wait().unwrap().success());
    }
}

#[test]
#[ignore = "requires root, to start a process that the server may not signal"]
fn processes_of_other_users_are_not_awaited() {
    let switch_user = "touch $R/odc-agent; mount --bind $AGENT $R/odc-agent
        shift; exec setpriv --reuid=54321 --regid=54321 --clear-groups $R/odc-agent \"$@\"";
    let mut server = ServerBuilder::new().wrapper(switch_user).shell("exec sleep 1000").start();
    server.wait_running();
    let mut root_process = server.inside(&["/bin/sh", "-c", "touch $HOME/ready; exec sleep 1000"]).spawn().unwrap();
    server.wait_for_file("ready");
    assert_eq!(server.stop(), 0);
    assert!(!server.text("stderr").contains(GRACE_PERIOD_EXCEEDED));
    assert_eq!(outcome(server.state().unwrap().entrypoint), Outcome::Signal(15));
    assert!(!root_process.wait().unwrap().success(), "the kernel killed it with the server");
}

#[test]
fn unread_output_does_not_block_the_stop() {
    let mut server =
        builder().unread_output().setup("touch $HOME/ready; exec cat /dev/zero").shell("exec cat /dev/zero").start();
    server.wait_for_file("ready");
    assert_eq!(server.stop(), 0);
}

#[test]
fn flood_of_orphans_does_not_block_the_stop() {
    let flood = "trap '' TERM; while :; do (: &); touch $HOME/ready; done";
    let mut server = builder().shell(flood).start();
    server.wait_for_file("ready");
    assert_eq!(server.stop(), 0);
    assert!(server.text("stderr").contains(GRACE_PERIOD_EXCEEDED));
}
