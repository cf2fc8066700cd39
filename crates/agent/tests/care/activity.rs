//! What is seen of people at work.

use std::io::Write as _;
use std::process::Stdio;

use odc_control::Request;

use crate::control::{Operator, path, plan, status};
use crate::server::{Running, eventually};

#[test]
fn what_a_session_left_behind_is_still_the_sessions_work() {
    let server = plan().start();
    // The session is over before anybody looks; the loop has process 1 as its parent.
    server.said("sh -c 'exec >/dev/null 2>&1; while :; do :; done' & exit 0");
    let mut operator = Operator::dial(&server);
    let tree = eventually("it is seen", || {
        Some(operator.signals().busy.sessions).filter(|tree| tree.last_seen_seconds_ago.is_some())
    });
    assert_eq!(tree.process.as_deref(), Some("sh"));
    assert_eq!(operator.signals().sessions.open, 0);
}

#[test]
fn the_entrypoints_work_is_told_apart() {
    let server = plan().flag("--").flag("/bin/sh").flag("-c").flag("while :; do :; done").start();
    let mut operator = Operator::dial(&server);
    let busy = eventually("it is seen", || {
        Some(operator.signals().busy).filter(|busy| busy.entrypoint.last_seen_seconds_ago.is_some())
    });
    assert_eq!(busy.sessions.last_seen_seconds_ago, None);
}

#[test]
fn typing_and_printing_are_seen() {
    let server = plan().alone().start();
    let mut operator = Operator::dial(&server);
    let before = operator.signals();
    assert_eq!(
        (before.terminal_input.last_seen_seconds_ago, before.terminal_output.last_seen_seconds_ago),
        (None, None)
    );
    let mut ssh = server.ssh(&["-tt"]);
    let ssh = Running::start(ssh.arg("read line; sleep 1000").stdin(Stdio::piped()));
    eventually("it is open", || (operator.signals().sessions.open == 1).then_some(()));
    ssh.0.stdin.as_ref().unwrap().write_all(b"hello\n").unwrap();
    eventually("both are seen", || {
        let signals = operator.signals();
        signals.terminal_input.last_seen_seconds_ago.and(signals.terminal_output.last_seen_seconds_ago)
    });
}

#[test]
fn a_users_word_outlives_the_agent_that_heard_it() {
    let server = plan().fixed_port().start();
    let keep = format!("{} --state-dir {} 2h training run 17", path(&server, "odc-keep-alive"), path(&server, "state"));
    assert_eq!(server.said(&keep), "The server counts as used for 2 h: training run 17.\n");
    let first = status(&server).unwrap().signals;
    assert_eq!(first.keep_alive.unwrap().reason.as_deref(), Some("training run 17"));
    // The parent of a session's shell is the agent.
    server.run("kill -9 $PPID");
    let second = eventually("another one answers", || {
        status(&server).map(|status| status.signals).filter(|signals| signals.agent_boot != first.agent_boot)
    });
    assert_eq!(second.container_boot, first.container_boot);
    let kept = second.keep_alive.unwrap();
    assert!(kept.remaining_seconds > 7100 && kept.reason.as_deref() == Some("training run 17"), "{kept:?}");

    let off = server.run(&format!("{} --state-dir {} off", path(&server, "odc-keep-alive"), path(&server, "state")));
    assert!(off.status.success());
    assert_eq!(status(&server).unwrap().signals.keep_alive, None);
}

#[test]
fn too_long_a_word_is_refused_with_a_sentence() {
    let server = plan().alone().start();
    let output = server.run(&format!("{} --state-dir {} 25h", path(&server, "odc-keep-alive"), path(&server, "state")));
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(said, "odc-keep-alive: a server can be kept alive for 1 d at most; ask again later\n");
    let nowhere = server.run(&format!("{} --state-dir /nowhere", path(&server, "odc-status")));
    let said = String::from_utf8(nowhere.stderr).unwrap();
    assert_eq!(said, "odc-status: no agent serves here; this command works inside an ODC dev server\n");
}

#[test]
fn commands_and_files_are_seen() {
    let server = plan().alone().start();
    let mut operator = Operator::dial(&server);
    assert_eq!(operator.signals().transfer.last_seen_seconds_ago, None);
    server.said("echo here");
    assert!(operator.signals().transfer.last_seen_seconds_ago.is_some());

    let server = plan().alone().start();
    let mut operator = Operator::dial(&server);
    let (from, to) = (path(&server, "id.pub"), format!("dev@127.0.0.1:{}", path(&server, "home/copy")));
    assert!(server.client("scp").args([&from, &to]).status().unwrap().success());
    assert!(operator.signals().transfer.last_seen_seconds_ago.is_some());
}

#[test]
fn a_heartbeat_counts() {
    let server = plan().alone().start();
    let mut operator = Operator::dial(&server);
    operator.ask(&Request::Heartbeat { source: Some("gateway".into()) });
    assert_eq!(operator.signals().heartbeat.last_seen_seconds_ago, Some(0));
}
