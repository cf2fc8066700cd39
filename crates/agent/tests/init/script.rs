//! Setup and preStop: the user's scripts.

use std::time::Duration;

use odc_agent::state::Phase;
use odc_control::Outcome;
use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::server::{Plan, ended, outcome};

#[test]
fn setup_runs_before_the_entrypoint_and_the_server_is_ready_after_it() {
    let setup = "touch $HOME/began; until [ -e $HOME/go ]; do sleep 0.01; done; echo done";
    let mut server = Plan::new().setup(setup).shell("cat $HOME/stdout >$HOME/seen").start();
    server.wait_for_file("began");
    assert_eq!(server.probe(), (Some(1), "setup is still running".to_owned()));
    let state = server.state().unwrap();
    assert_eq!((state.phase, state.entrypoint), (Phase::Setup, None));

    std::fs::write(server.path("go"), "").unwrap();
    let state = server.wait_running();
    assert_eq!(outcome(state.setup.clone()), Outcome::Code(0));
    assert!(state.phase_since >= state.setup.unwrap().started);
    assert_eq!(server.wait_entrypoint(), Outcome::Code(0));
    assert_eq!(server.probe(), (Some(0), "ready".to_owned()));
    assert_eq!(server.stop().0, 0);
}

#[test]
fn its_output_is_in_its_log_and_in_the_containers() {
    let mut server = Plan::new().setup("echo out; echo err >&2; pwd").start();
    server.wait_running();
    let expect = format!("out\nerr\n{}\n", server.home.path().display());
    server.wait_for_text("state/setup.log", &expect);
    server.wait_for_text("stdout", &expect);
    assert_eq!(server.stop().0, 0);
}

#[test]
fn a_failed_setup_is_reported_and_the_server_goes_on() {
    for (setup, expect) in [("exit 3", Outcome::Code(3)), ("kill -KILL $$", Outcome::Signal(9))] {
        let mut server = Plan::new().setup(setup).shell("touch $HOME/entered").start();
        server.wait_for_file("entered");
        assert_eq!(outcome(server.state().unwrap().setup), expect);
        assert_eq!(server.probe(), (Some(0), format!("ready; setup {expect}")));
        server.wait_for_text("stderr", &format!("odc-agent: setup {expect}; the server goes on without it\n"));
        assert_eq!(server.stop().0, 0);
    }
}

#[test]
fn a_script_that_is_not_there_is_reported_and_the_server_goes_on() {
    let mut server = Plan::new().flag("--setup=/no/such/script").flag("--pre-stop=/no/such/script").start();
    let Outcome::NotStarted { code: 127, reason } = outcome(server.wait_running().setup) else { panic!() };
    assert!(reason.contains("/no/such/script"), "{reason}");
    assert_eq!(server.stop().0, 0);
    assert!(matches!(outcome(server.state().unwrap().pre_stop), Outcome::NotStarted { .. }));
}

#[test]
fn a_script_may_choose_its_interpreter() {
    let script = "#!/bin/cat\nnot for a shell: (\n";
    let mut server = Plan::new().setup(script).start();
    assert_eq!(outcome(server.wait_running().setup), Outcome::Code(0));
    server.wait_for_text("state/setup.log", script);
    assert_eq!(server.stop().0, 0);
}

#[test]
fn what_setup_leaves_in_the_background_lives_on_and_still_has_its_log() {
    let setup = "(until [ -e $HOME/go ]; do sleep 0.01; done; echo later) & exit 0";
    let mut server = Plan::new().setup(setup).start();
    server.wait_running();
    std::fs::write(server.path("go"), "").unwrap();
    server.wait_for_text("state/setup.log", "later\n");
    assert_eq!(server.stop().0, 0);
}

#[test]
fn its_log_is_bounded_and_the_containers_has_everything() {
    let mut server = Plan::new().setup("head -c 5242880 /dev/zero; echo end").start();
    server.wait_running();
    server.wait_for_text("stdout", "end\n");
    let log = std::fs::read(server.path("state/setup.log")).unwrap();
    assert!((4 << 20..5 << 20).contains(&log.len()), "{}", log.len());
    assert!(log.ends_with(b"[the rest is in the container's log]\n"));
    assert_eq!(server.stop().0, 0);
}

#[test]
fn a_stop_during_setup_runs_pre_stop_and_starts_no_entrypoint() {
    let plan = Plan::new().setup("touch $HOME/began; exec sleep 1000").pre_stop("echo saved");
    let mut server = plan.shell("touch $HOME/entered").start();
    server.wait_for_file("began");
    assert_eq!(server.stop().0, 0);
    let state = server.state().unwrap();
    assert_eq!(outcome(state.setup), Outcome::Signal(15));
    assert_eq!(outcome(state.pre_stop), Outcome::Code(0));
    assert!(!ended(state.entrypoint.as_ref()) && !server.path("entered").exists());
    assert_eq!(server.text("state/pre-stop.log"), "saved\n");
    assert!(server.text("stdout").contains("saved\n"));
}

#[test]
fn one_on_a_file_system_that_hangs_holds_up_nobody() {
    let plan = Plan::new();
    // A pipe is read when somebody writes to it, which nobody does.
    let script = plan.home().join("hangs.sh");
    mknodat(CWD, &script, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let mut server = plan.flag(format!("--setup={}", script.display())).flag("--grace=20").start();
    server.wait_for("setup begins", |state| state.setup.is_some());
    assert_eq!(server.probe(), (Some(1), "setup is still running".to_owned()));
    let (code, took) = server.stop();
    assert!(code == 0 && took < Duration::from_secs(10), "{code} after {took:?}");
}
