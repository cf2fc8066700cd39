//! The preStop script, between the operator's wish and the container's end.

use std::fs;

use odc_control::{Outcome, Reply, Request};
use rustix::process::{Pid, Signal, kill_process};

use crate::control::{Operator, path, plan};
use crate::server::{Server, eventually};

/// It says that it runs, and goes on when it may.
const SCRIPT: &str = "echo run >>$HOME/runs; until test -e $HOME/go; do sleep 0.05; done; exit 7";

fn server() -> Server {
    let plan = plan();
    let script = plan.path("keys/pre-stop.sh");
    fs::write(&script, SCRIPT).unwrap();
    let flag = format!("--pre-stop={}", script.display());
    plan.flag(flag).start()
}

/// As the container's runtime does.
fn terminate(server: &Server) {
    let children = format!("/proc/{0}/task/{0}/children", server.pid());
    let init: i32 = fs::read_to_string(children).unwrap().split_whitespace().next().unwrap().parse().unwrap();
    kill_process(Pid::from_raw(init).unwrap(), Signal::TERM).unwrap();
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
    terminate(&server);
    eventually("it ends", || ended(&server).then_some(()));
    assert_eq!(server.text("home/runs"), "run\n");
}

#[test]
fn the_end_waits_for_the_script_that_the_operator_wanted() {
    let server = server();
    let mut operator = Operator::dial(&server);
    operator.say(&Request::Quiesce { within_seconds: 30 });
    server.wait_for_text("home/runs", "run");
    terminate(&server);
    server.wait_for_text("log", "asked to stop");
    // A server that had not waited would be gone by now, and could not answer.
    assert_eq!(server.said("echo here"), "here\n");
    assert!(!ended(&server));
    fs::write(path(&server, "home/go"), "").unwrap();
    eventually("it ends", || ended(&server).then_some(()));
    assert_eq!(server.text("home/runs"), "run\n");
}
