//! The preStop script, between the operator's wish and the container's end.

use std::fs;

use odc_control::{Outcome, Reply, Request};
use rustix::process::{Pid, Signal, kill_process};

use crate::control::{Operator, path, plan};
use crate::server::{Server, eventually};

/// It says that it runs, and goes on when it may.
const SCRIPT: &str = "echo run >>$HOME/runs; until test -e $HOME/go; do sleep 0.05; done; echo went on; exit 7";

fn server() -> Server {
    let plan = plan();
    let script = plan.path("keys/pre-stop.sh");
    fs::write(&script, SCRIPT).unwrap();
    let flag = format!("--pre-stop={}", script.display());
    plan.flag(flag).fixed_port().start()
}

fn ended(server: &Server) -> bool {
    // The last thing it writes; the process itself is waited for by the harness.
    server.text("log").contains("pre-stop ended with exit code 7")
}

#[test]
fn it_runs_once_when_the_operator_asks_before_the_end() {
    let server = server();
    fs::write(server.path("home/go"), "").unwrap();
    fs::create_dir_all(server.path("home/work")).unwrap();
    let mut operator = Operator::dial(&server);
    for _ in 0..2 {
        let Reply::Quiesced(quiesced) = operator.ask(&Request::Quiesce { within_seconds: 30 }) else { panic!() };
        assert_eq!(quiesced.pre_stop, Some(Outcome::Code(7)));
        assert!(quiesced.synced && quiesced.listing.unwrap().contains("  work/\n"));
    }
    server.terminate();
    eventually("it ends", || ended(&server).then_some(()));
    assert_eq!(server.text("home/runs"), "run\n");
}

#[test]
fn the_end_waits_for_the_script_that_the_operator_wanted() {
    let server = server();
    let mut operator = Operator::dial(&server);
    operator.say(&Request::Quiesce { within_seconds: 30 });
    server.wait_for_text("home/runs", "run");
    server.terminate();
    server.wait_for_text("log", "asked to stop");
    // A server that had not waited would be gone by now, and could not answer.
    assert_eq!(server.said("echo here"), "here\n");
    assert!(!ended(&server));
    fs::write(path(&server, "home/go"), "").unwrap();
    eventually("it ends", || ended(&server).then_some(()));
    assert_eq!(server.text("home/runs"), "run\n");
}

#[test]
fn the_stop_after_one_that_was_called_off_runs_it_again() {
    let server = server();
    fs::write(server.path("home/go"), "").unwrap();
    let mut operator = Operator::dial(&server);
    let stop = Request::Quiesce { within_seconds: 30 };
    assert!(matches!(operator.ask(&stop), Reply::Quiesced(_)));
    let goes_on = Request::SetDeadline { remaining_seconds: Some(3600), idle: None };
    assert_eq!(operator.ask(&goes_on), Reply::Done);
    server.terminate();
    eventually("it ends", || ended(&server).then_some(()));
    assert_eq!(server.text("home/runs"), "run\nrun\n");
}

#[test]
fn an_end_that_comes_while_one_that_was_called_off_still_runs_has_its_own() {
    let server = server();
    let mut operator = Operator::dial(&server);
    operator.say(&Request::Quiesce { within_seconds: 30 });
    server.wait_for_text("home/runs", "run");
    // Another connection, because the first waits for its answer.
    let goes_on = Request::SetDeadline { remaining_seconds: Some(3600), idle: None };
    assert_eq!(Operator::dial(&server).ask(&goes_on), Reply::Done);
    server.terminate();
    server.wait_for_text("log", "asked to stop");
    assert_eq!(server.text("home/runs"), "run\n", "not beside the other");
    fs::write(path(&server, "home/go"), "").unwrap();
    eventually("it ends", || ended(&server).then_some(()));
    assert_eq!(server.text("home/runs"), "run\nrun\n");
}

#[test]
fn the_death_of_serve_neither_stops_nor_repeats_it() {
    let server = server();
    let mut operator = Operator::dial(&server);
    operator.say(&Request::Quiesce { within_seconds: 30 });
    server.wait_for_text("home/runs", "run");
    let killed = server.serve_pid().unwrap();
    kill_process(Pid::from_raw(killed.try_into().unwrap()).unwrap(), Signal::KILL).unwrap();
    eventually("people get in", || server.run("true").status.success().then_some(()));
    assert_ne!(server.serve_pid(), Some(killed));
    // It prints, which it could not if its output had gone with serve, and ends as it would have.
    fs::write(path(&server, "home/go"), "").unwrap();
    let mut operator = Operator::dial(&server);
    let Reply::Quiesced(quiesced) = operator.ask(&Request::Quiesce { within_seconds: 30 }) else { panic!() };
    assert_eq!((quiesced.pre_stop, quiesced.pre_stop_log.as_deref()), (Some(Outcome::Code(7)), Some("went on")));
    assert_eq!(server.text("home/runs"), "run\n");
}

#[test]
fn a_claim_of_somebody_who_died_before_the_script_began_counts_for_nothing() {
    let server = server();
    fs::write(server.path("home/go"), "").unwrap();
    let begun = fs::read_to_string(format!("/proc/{}/stat", server.init_pid().unwrap())).unwrap();
    // Field 22; the first two hold no blank here.
    let life = begun.split(' ').nth(21).unwrap();
    // Whoever this was is no more: a number that no process can have.
    let claim = format!(r#"{{"pid":{},"startTicks":1}}"#, i32::MAX);
    fs::write(server.path(&format!("state/pre-stop-{life}-0.started")), claim).unwrap();
    server.terminate();
    eventually("it ends", || ended(&server).then_some(()));
    assert_eq!(server.text("home/runs"), "run\n");
    assert!(server.path(&format!("state/pre-stop-{life}-1.started")).exists(), "it was seen");
}
