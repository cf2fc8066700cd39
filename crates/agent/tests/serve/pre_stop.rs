//! The preStop script with quiesce requests and a stop of the container.

use std::fs;

use odc_control::{Outcome, Reply, Request};
use rustix::process::{Pid, Signal, kill_process};

use crate::control::{Operator, builder, path};
use crate::server::{Server, wait_until};

/// Records that it runs, and waits for a file.
const SCRIPT: &str = "echo run >>$HOME/runs; until test -e $HOME/go; do sleep 0.05; done; echo continued; exit 7";

fn server() -> Server {
    let builder = builder();
    let script = builder.path("keys/pre-stop.sh");
    fs::write(&script, SCRIPT).unwrap();
    let flag = format!("--pre-stop={}", script.display());
    builder.flag(flag).fixed_port().start()
}

fn pre_stop_exited(server: &Server) -> bool {
    // The last line that `init` logs before it exits.
    server.text("log").contains("pre-stop exited with code 7")
}

#[test]
fn script_runs_once_for_quiesce_and_stop() {
    let server = server();
    fs::write(server.path("home/go"), "").unwrap();
    fs::create_dir_all(server.path("home/work")).unwrap();
    let mut operator = Operator::connect(&server);
    for _ in 0..2 {
        let Reply::Quiesced(quiesced) = operator.request(&Request::Quiesce { within_seconds: 30 }) else { panic!() };
        assert_eq!(quiesced.pre_stop, Some(Outcome::Code(7)));
        let listing = quiesced.home.unwrap().listing.decompress().unwrap();
        assert!(quiesced.synced && listing.entries.iter().any(|entry| entry.path == "work/"));
    }
    server.terminate();
    wait_until("it exits", || pre_stop_exited(&server).then_some(()));
    assert_eq!(server.text("home/runs"), "run\n");
}

#[test]
fn stop_waits_for_the_script_of_quiesce() {
    let server = server();
    let mut operator = Operator::connect(&server);
    operator.send(&Request::Quiesce { within_seconds: 30 });
    server.wait_for_text("home/runs", "run");
    server.terminate();
    server.wait_for_text("log", "stop requested");
    // If it had not waited, the server could not answer.
    assert_eq!(server.stdout("echo here"), "here\n");
    assert!(!pre_stop_exited(&server));
    fs::write(path(&server, "home/go"), "").unwrap();
    wait_until("it exits", || pre_stop_exited(&server).then_some(()));
    assert_eq!(server.text("home/runs"), "run\n");
}

#[test]
fn stop_after_cancelled_quiesce_runs_the_script_again() {
    let server = server();
    fs::write(server.path("home/go"), "").unwrap();
    let mut operator = Operator::connect(&server);
    let stop = Request::Quiesce { within_seconds: 30 };
    assert!(matches!(operator.request(&stop), Reply::Quiesced(_)));
    let cancel = Request::SetDeadline { remaining_seconds: Some(3600), idle: None };
    assert_eq!(operator.request(&cancel), Reply::Done);
    server.terminate();
    wait_until("it exits", || pre_stop_exited(&server).then_some(()));
    assert_eq!(server.text("home/runs"), "run\nrun\n");
}

#[test]
fn stop_during_cancelled_run_runs_the_script_again() {
    let server = server();
    let mut operator = Operator::connect(&server);
    operator.send(&Request::Quiesce { within_seconds: 30 });
    server.wait_for_text("home/runs", "run");
    // A second connection, because the first waits for its reply.
    let cancel = Request::SetDeadline { remaining_seconds: Some(3600), idle: None };
    assert_eq!(Operator::connect(&server).request(&cancel), Reply::Done);
    server.terminate();
    server.wait_for_text("log", "stop requested");
    assert_eq!(server.text("home/runs"), "run\n", "the runs do not overlap");
    fs::write(path(&server, "home/go"), "").unwrap();
    wait_until("it exits", || pre_stop_exited(&server).then_some(()));
    assert_eq!(server.text("home/runs"), "run\nrun\n");
}

#[test]
fn restart_of_serve_neither_stops_nor_repeats_the_script() {
    let server = server();
    let mut operator = Operator::connect(&server);
    operator.send(&Request::Quiesce { within_seconds: 30 });
    server.wait_for_text("home/runs", "run");
    let killed = server.serve_pid().unwrap();
    kill_process(Pid::from_raw(killed.try_into().unwrap()).unwrap(), Signal::KILL).unwrap();
    wait_until("a login succeeds", || server.run("true").status.success().then_some(()));
    assert_ne!(server.serve_pid(), Some(killed));
    // Its output does not depend on the killed `serve`, and its outcome is recorded.
    fs::write(path(&server, "home/go"), "").unwrap();
    let mut operator = Operator::connect(&server);
    let Reply::Quiesced(quiesced) = operator.request(&Request::Quiesce { within_seconds: 30 }) else { panic!() };
    assert_eq!((quiesced.pre_stop, quiesced.pre_stop_log.as_deref()), (Some(Outcome::Code(7)), Some("continued")));
    assert_eq!(server.text("home/runs"), "run\n");
}

#[test]
fn claim_of_dead_process_is_ignored() {
    let server = server();
    fs::write(server.path("home/go"), "").unwrap();
    let stat = fs::read_to_string(format!("/proc/{}/stat", server.init_pid().unwrap())).unwrap();
    // Field 22, the start time; the name contains no blank here.
    let boot_id = stat.split(' ').nth(21).unwrap();
    // No process can have this PID.
    let claim = format!(r#"{{"pid":{},"startTicks":1}}"#, i32::MAX);
    fs::write(server.path(&format!("state/pre-stop-{boot_id}-0.claimant")), claim).unwrap();
    server.terminate();
    wait_until("it exits", || pre_stop_exited(&server).then_some(()));
    assert_eq!(server.text("home/runs"), "run\n");
    assert!(server.path(&format!("state/pre-stop-{boot_id}-1.claimant")).exists(), "the stale claim was evaluated");
}
