//! The orderly end: what runs, in which order, and that it is over before Kubernetes would kill.

use std::time::Duration;

use odc_agent::state::Phase;
use odc_control::Outcome;
use rustix::process::{Signal, geteuid};

use crate::server::{Plan, eventually, outcome};

const GRACE: Duration = Duration::from_secs(4);

fn plan() -> Plan {
    Plan::new().flag(format!("--grace={}", GRACE.as_secs()))
}

/// Ends only when killed.
const STUBBORN: &str = "trap '' TERM; touch $HOME/ready; while :; do sleep 1000; done";

#[test]
fn pre_stop_runs_once_while_all_else_still_runs() {
    let entrypoint =
        "trap 'echo entrypoint >>$HOME/order; exit 0' TERM; sleep 1000 & touch $HOME/ready; while :; do wait; done";
    let pre_stop = "touch $HOME/began; until [ -e $HOME/go ]; do sleep 0.01; done; echo pre-stop >>$HOME/order";
    let mut server = Plan::new().shell(entrypoint).pre_stop(pre_stop).start();
    server.wait_for_file("ready");
    server.signal(Signal::TERM);
    server.wait_for_file("began");
    assert_eq!(server.probe(), (Some(1), "the server is stopping".to_owned()));
    for _ in 0..5 {
        server.signal(Signal::TERM);
        server.signal_from_inside("TERM");
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
fn whatever_signal_the_image_is_stopped_with_the_stop_is_orderly() {
    for signal in [Signal::QUIT, Signal::INT, Signal::WINCH, Signal::USR1, Signal::HUP] {
        let entrypoint =
            "trap 'echo TERM >>$HOME/got; exit 0' TERM; sleep 1000 & touch $HOME/ready; while :; do wait; done";
        let mut server = Plan::new().shell(entrypoint).pre_stop("touch $HOME/pre-stop-ran").start();
        server.wait_for_file("ready");
        server.signal(signal);
        assert_eq!(server.wait_code(), 0, "{signal:?}");
        assert!(server.path("pre-stop-ran").exists());
        assert_eq!(server.text("got"), "TERM\n", "{signal:?}");
    }
}

#[test]
fn a_request_from_inside_stops_the_server_too() {
    let mut server = Plan::new().start();
    server.wait_running();
    server.signal_from_inside("TERM");
    assert_eq!(server.wait_code(), 0);
}

#[test]
fn a_server_whose_processes_end_when_asked_does_not_use_up_its_grace() {
    let mut server = Plan::new().shell("sleep 1000 & sleep 1000 & touch $HOME/ready; exec sleep 1000").start();
    server.wait_for_file("ready");
    let (code, took) = server.stop();
    assert_eq!(code, 0);
    assert!(took < Duration::from_secs(10), "{took:?}");
}

#[test]
fn a_stopped_process_hears_the_request_as_well() {
    let stopped = "trap 'touch $HOME/heard; exit 0' TERM; kill -STOP $$; exit 1";
    let mut server = Plan::new().shell(stopped).start();
    eventually("it is stopped", || (server.children() == ['T']).then_some(()));
    let (code, took) = server.stop();
    assert_eq!(code, 0);
    assert!(server.path("heard").exists());
    assert!(took < Duration::from_secs(10), "{took:?}");
}

#[test]
fn a_stubborn_process_is_killed_before_the_grace_ends() {
    for (flag, expect) in [("--entrypoint-exit=keep", 0), ("--entrypoint-exit=end", 137)] {
        let mut server = plan().flag(flag).shell(STUBBORN).start();
        server.wait_for_file("ready");
        let (code, took) = server.stop();
        assert_eq!(code, expect);
        assert!(took < GRACE, "{took:?}");
        assert!(took > GRACE / 2, "it was given time: {took:?}");
        assert_eq!(outcome(server.state().unwrap().entrypoint), Outcome::Signal(9));
        assert!(server.text("stderr").contains("did not end in time"));
    }
}

#[test]
fn a_hanging_pre_stop_is_given_up_and_leaves_time_for_the_rest() {
    let entrypoint = "trap 'touch $HOME/ended; exit 0' TERM; sleep 1000 & touch $HOME/ready; while :; do wait; done";
    let mut server = plan().shell(entrypoint).pre_stop("trap '' TERM; sleep 1000").start();
    server.wait_for_file("ready");
    let (code, took) = server.stop();
    assert_eq!(code, 0);
    assert!(took < GRACE, "{took:?}");
    assert!(server.path("ended").exists());
    assert_eq!(outcome(server.state().unwrap().pre_stop), Outcome::TimedOut);
}

#[test]
fn a_failed_pre_stop_changes_nothing_else() {
    let mut server = Plan::new().pre_stop("echo sorry; exit 9").start();
    server.wait_running();
    assert_eq!(server.stop().0, 0);
    assert_eq!(outcome(server.state().unwrap().pre_stop), Outcome::Code(9));
    assert!(server.text("stderr").contains("pre-stop ended with exit code 9"));
    assert_eq!(server.text("state/pre-stop.log"), "sorry\n");
}

#[test]
fn processes_brought_in_from_outside_are_ended_too() {
    let mut server = plan().start();
    server.wait_running();
    let mut polite = server.inside(&["/bin/sh", "-c", "touch $HOME/polite; exec sleep 1000"]).spawn().unwrap();
    let mut stubborn = server.inside(&["/bin/sh", "-c", STUBBORN]).spawn().unwrap();
    server.wait_for_file("polite");
    server.wait_for_file("ready");
    let (code, took) = server.stop();
    assert_eq!(code, 0);
    assert!(took < GRACE, "{took:?}");
    for process in [&mut polite, &mut stubborn] {
        assert!(!process.wait().unwrap().success());
    }
}

#[test]
fn somebody_elses_process_that_cannot_be_asked_is_not_waited_for() {
    // Only root can start a process that the server may not signal.
    if !geteuid().is_root() {
        return;
    }
    let become_user = "touch $R/odc-agent; mount --bind $AGENT $R/odc-agent
        shift; exec setpriv --reuid=54321 --regid=54321 --clear-groups $R/odc-agent \"$@\"";
    let mut server = plan().wrapper(become_user).shell("exec sleep 1000").start();
    server.wait_running();
    let mut roots = server.inside(&["/bin/sh", "-c", "touch $HOME/ready; exec sleep 1000"]).spawn().unwrap();
    server.wait_for_file("ready");
    let (code, took) = server.stop();
    assert_eq!(code, 0);
    assert!(took < GRACE / 2, "{took:?}");
    assert_eq!(outcome(server.state().unwrap().entrypoint), Outcome::Signal(15));
    assert!(!roots.wait().unwrap().success(), "the kernel ended it with the server");
}

#[test]
fn a_log_that_nobody_reads_does_not_hold_it_up() {
    let mut server = plan().unread().setup("touch $HOME/ready; exec cat /dev/zero").shell("exec cat /dev/zero").start();
    server.wait_for_file("ready");
    let (code, took) = server.stop();
    assert_eq!(code, 0);
    assert!(took < GRACE, "{took:?}");
}

#[test]
fn a_flood_of_orphans_does_not_hold_it_up() {
    let flood = "trap '' TERM; while :; do (: &); touch $HOME/ready; done";
    let mut server = plan().shell(flood).start();
    server.wait_for_file("ready");
    let (code, took) = server.stop();
    assert_eq!(code, 0);
    assert!(took < GRACE, "{took:?}");
}
