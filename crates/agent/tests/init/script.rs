//! The setup and preStop scripts.

use odc_agent::init_state::Phase;
use odc_control::Outcome;
use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::harness::{ServerBuilder, has_exited, outcome};

#[test]
fn setup_runs_before_the_entrypoint_and_readiness() {
    let setup = "touch $HOME/started; until [ -e $HOME/go ]; do sleep 0.01; done; echo done";
    let mut server = ServerBuilder::new().setup(setup).shell("cat $HOME/stdout >$HOME/seen").start();
    server.wait_for_file("started");
    assert_eq!(server.probe(), (Some(1), "setup is running".to_owned()));
    let state = server.state().unwrap();
    assert_eq!((state.phase, state.entrypoint), (Phase::Setup, None));

    std::fs::write(server.path("go"), "").unwrap();
    let state = server.wait_running();
    assert_eq!(outcome(state.setup.clone()), Outcome::Code(0));
    assert!(state.phase_since >= state.setup.unwrap().started);
    assert_eq!(server.wait_entrypoint(), Outcome::Code(0));
    assert_eq!(server.probe(), (Some(0), "ready".to_owned()));
    assert_eq!(server.stop(), 0);
}

#[test]
fn output_goes_to_the_log_file_and_to_the_container_log() {
    let mut server = ServerBuilder::new().setup("echo out; echo err >&2; pwd").start();
    server.wait_running();
    let expect = format!("out\nerr\n{}\n", server.home.path().display());
    server.wait_for_text("state/setup.log", &expect);
    server.wait_for_text("stdout", &expect);
    assert_eq!(server.stop(), 0);
}

#[test]
fn failed_setup_is_reported_and_does_not_stop_the_server() {
    for (setup, expect) in [("exit 3", Outcome::Code(3)), ("kill -KILL $$", Outcome::Signal(9))] {
        let mut server = ServerBuilder::new().setup(setup).shell("touch $HOME/entrypoint-ran").start();
        server.wait_for_file("entrypoint-ran");
        assert_eq!(outcome(server.state().unwrap().setup), expect);
        assert_eq!(server.probe(), (Some(0), format!("ready; setup {expect}")));
        server.wait_for_text("stderr", &format!("odc-agent: setup failed ({expect}); continuing\n"));
        assert_eq!(server.stop(), 0);
    }
}

#[test]
fn missing_script_is_reported_and_does_not_stop_the_server() {
    let mut server = ServerBuilder::new().flag("--setup=/no/such/script").flag("--pre-stop=/no/such/script").start();
    let Outcome::NotStarted { code: 127, reason } = outcome(server.wait_running().setup) else { panic!() };
    assert!(reason.contains("/no/such/script"), "{reason}");
    assert_eq!(server.stop(), 0);
    assert!(matches!(outcome(server.state().unwrap().pre_stop), Outcome::NotStarted { .. }));
}

#[test]
fn interpreter_line_is_respected() {
    let script = "#!/bin/cat\nnot for a shell: (\n";
    let mut server = ServerBuilder::new().setup(script).start();
    assert_eq!(outcome(server.wait_running().setup), Outcome::Code(0));
    server.wait_for_text("state/setup.log", script);
    assert_eq!(server.stop(), 0);
}

#[test]
fn background_process_of_setup_continues_to_log() {
    let setup = "(until [ -e $HOME/go ]; do sleep 0.01; done; echo later) & exit 0";
    let mut server = ServerBuilder::new().setup(setup).start();
    server.wait_running();
    std::fs::write(server.path("go"), "").unwrap();
    server.wait_for_text("state/setup.log", "later\n");
    assert_eq!(server.stop(), 0);
}

#[test]
fn log_file_is_truncated_and_the_container_log_complete() {
    let mut server = ServerBuilder::new().setup("head -c 5242880 /dev/zero; echo end").start();
    server.wait_running();
    server.wait_for_text("stdout", "end\n");
    let log = std::fs::read(server.path("state/setup.log")).unwrap();
    assert!((4 << 20..5 << 20).contains(&log.len()), "{}", log.len());
    assert!(log.ends_with(b"[truncated; see the container's log]\n"));
    assert_eq!(server.stop(), 0);
}

#[test]
fn stop_during_setup_runs_pre_stop_and_no_entrypoint() {
    let builder = ServerBuilder::new().setup("touch $HOME/started; exec sleep 1000").pre_stop("echo saved");
    let mut server = builder.shell("touch $HOME/entrypoint-ran").start();
    server.wait_for_file("started");
    assert_eq!(server.stop(), 0);
    let state = server.state().unwrap();
    assert_eq!(outcome(state.setup), Outcome::Signal(15));
    assert_eq!(outcome(state.pre_stop), Outcome::Code(0));
    assert!(!has_exited(state.entrypoint.as_ref()) && !server.path("entrypoint-ran").exists());
    assert_eq!(server.text("state/pre-stop.log"), "saved\n");
    assert!(server.text("stdout").contains("saved\n"));
}

#[test]
fn hanging_script_file_does_not_block_the_server() {
    let builder = ServerBuilder::new();
    // Opening a FIFO without a writer blocks.
    let script = builder.home().join("hangs.sh");
    mknodat(CWD, &script, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let mut server = builder.flag(format!("--setup={}", script.display())).start();
    server.wait_for("setup starts", |state| state.setup.is_some());
    assert_eq!(server.probe(), (Some(1), "setup is running".to_owned()));
    assert_eq!(server.stop(), 0);
    assert!(!server.text("stderr").contains("grace period exceeded"));
}
