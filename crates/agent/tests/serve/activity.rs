//! Activity signals.

use std::io::Write as _;
use std::process::Stdio;

use odc_control::Request;

use crate::control::{Operator, builder, path, status};
use crate::server::{Running, wait_until};

#[test]
fn background_process_of_closed_session_counts_as_session() {
    let server = builder().start();
    // The session is closed before the sample; the loop is a child of PID 1.
    server.stdout("sh -c 'exec >/dev/null 2>&1; while :; do :; done' & exit 0");
    let mut operator = Operator::connect(&server);
    let tree = wait_until("it is reported", || {
        Some(operator.signals().busy.sessions).filter(|tree| tree.last_seen_seconds_ago.is_some())
    });
    assert_eq!(tree.process.as_deref(), Some("sh"));
    assert_eq!(operator.signals().sessions.open, 0);
}

#[test]
fn entrypoint_processes_are_reported_separately() {
    let server = builder().flag("--").flag("/bin/sh").flag("-c").flag("while :; do :; done").start();
    let mut operator = Operator::connect(&server);
    let busy = wait_until("it is reported", || {
        Some(operator.signals().busy).filter(|busy| busy.entrypoint.last_seen_seconds_ago.is_some())
    });
    assert_eq!(busy.sessions.last_seen_seconds_ago, None);
}

#[test]
fn terminal_input_and_output_are_reported() {
    let server = builder().serve_only().start();
    let mut operator = Operator::connect(&server);
    let before = operator.signals();
    assert_eq!(
        (before.terminal_input.last_seen_seconds_ago, before.terminal_output.last_seen_seconds_ago),
        (None, None)
    );
    let mut ssh = server.ssh(&["-tt"]);
    let ssh = Running::start(ssh.arg("read line; sleep 1000").stdin(Stdio::piped()));
    wait_until("it is open", || (operator.signals().sessions.open == 1).then_some(()));
    ssh.0.stdin.as_ref().unwrap().write_all(b"hello\n").unwrap();
    wait_until("both are reported", || {
        let signals = operator.signals();
        signals.terminal_input.last_seen_seconds_ago.and(signals.terminal_output.last_seen_seconds_ago)
    });
}

#[test]
fn keep_alive_survives_a_restart_of_the_agent() {
    let server = builder().fixed_port().start();
    let command =
        format!("{} --state-dir {} 2h training run 17", path(&server, "odc-keep-alive"), path(&server, "state"));
    assert_eq!(server.stdout(&command), "Keep-alive set for 2h (training run 17)\n");
    let first = status(&server).unwrap().signals;
    assert_eq!(first.keep_alive.unwrap().reason.as_deref(), Some("training run 17"));
    // The agent is the parent of a session's shell.
    server.run("kill -9 $PPID");
    let second = wait_until("the agent has restarted", || {
        status(&server).map(|status| status.signals).filter(|signals| signals.agent_boot_id != first.agent_boot_id)
    });
    assert_eq!(second.container_boot_id, first.container_boot_id);
    let keep_alive = second.keep_alive.unwrap();
    assert!(keep_alive.remaining_seconds > 7100, "{keep_alive:?}");
    assert_eq!(keep_alive.reason.as_deref(), Some("training run 17"));

    let off = server.run(&format!("{} --state-dir {} off", path(&server, "odc-keep-alive"), path(&server, "state")));
    assert!(off.status.success());
    assert_eq!(status(&server).unwrap().signals.keep_alive, None);
}

#[test]
fn cli_errors_are_explained() {
    let server = builder().serve_only().start();
    let output = server.run(&format!("{} --state-dir {} 25h", path(&server, "odc-keep-alive"), path(&server, "state")));
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(stderr, "error: keep-alive is limited to 24h\n");
    let missing = server.run(&format!("{} --state-dir /nowhere", path(&server, "odc-status")));
    let stderr = String::from_utf8(missing.stderr).unwrap();
    assert_eq!(stderr, "error: cannot connect to the ODC agent; this command only works inside a dev server\n");
}

#[test]
fn commands_and_file_transfers_are_reported() {
    let server = builder().serve_only().start();
    let mut operator = Operator::connect(&server);
    assert_eq!(operator.signals().transfer.last_seen_seconds_ago, None);
    server.stdout("echo here");
    assert!(operator.signals().transfer.last_seen_seconds_ago.is_some());

    let server = builder().serve_only().start();
    let mut operator = Operator::connect(&server);
    let (from, to) = (path(&server, "id.pub"), format!("dev@127.0.0.1:{}", path(&server, "home/copy")));
    assert!(server.client("scp").args([&from, &to]).status().unwrap().success());
    assert!(operator.signals().transfer.last_seen_seconds_ago.is_some());
}

#[test]
fn heartbeat_is_reported() {
    let server = builder().serve_only().start();
    let mut operator = Operator::connect(&server);
    assert_eq!(operator.signals().heartbeat.last_seen_seconds_ago, None);
    operator.request(&Request::Heartbeat);
    assert!(operator.signals().heartbeat.last_seen_seconds_ago.is_some());
}
