//! Expiry and idle warnings.

use std::fs::File;
use std::io::Write as _;
use std::process::Stdio;

use odc_control::{IdleAction, IdlePolicy, NoticeKind, Reply, Request};

use crate::control::{Operator, builder, path, status};
use crate::server::{Running, Server, wait_until};

const FIFTEEN_MINUTE_FILE: &str = "home/WARN_EXPIRES_IN_15MIN.txt";

fn set_deadline(seconds: u64) -> Request {
    let idle = Some(IdlePolicy { limit_seconds: 1800, action: IdleAction::Hibernate });
    Request::SetDeadline { remaining_seconds: Some(seconds), idle }
}

/// Starts bash on a terminal and writes its output to the file `screen`.
fn bash(server: &Server) -> Running {
    let screen = File::create(server.path("screen")).unwrap();
    let mut ssh = server.ssh(&["-tt"]);
    ssh.arg("exec bash --norc --noprofile -i").env("TERM", "dumb").stdin(Stdio::piped()).stdout(screen);
    let bash = Running::start(&mut ssh);
    // Waits until the shell is ready.
    type_in(&bash, "PS1=fin'e> '\necho re'ad'y\n");
    server.wait_for_text("screen", "ready\r\nfine> ");
    bash
}

fn type_in(bash: &Running, text: &str) {
    bash.0.stdin.as_ref().unwrap().write_all(text.as_bytes()).unwrap();
}

#[test]
fn expiry_warning_is_shown_everywhere_until_extended() {
    let server = builder().serve_only().start();
    let mut operator = Operator::connect(&server);
    let bash = bash(&server);
    assert_eq!(operator.request(&set_deadline(7200)), Reply::Done);
    assert_eq!(operator.request(&set_deadline(900)), Reply::Done);
    server.wait_for_text("screen", "Server ada-1 expires in 15m. Save your work.");
    server.wait_for_text(FIFTEEN_MINUTE_FILE, "devctl extend ada-1");
    type_in(&bash, "\n");
    server.wait_for_text("screen", "[odc] ada-1 expires in 15m; extend with `devctl extend ada-1 2h`");
    let shown = status(&server).unwrap();
    assert_eq!(shown.notices.len(), 1);
    assert_eq!(shown.idle.unwrap().limit_seconds, 1800);

    operator.request(&set_deadline(7200));
    wait_until("it is cleared", || (!server.path(FIFTEEN_MINUTE_FILE).exists()).then_some(()));
    wait_until("the prompt line is cleared", || (!server.path("state/prompt").exists()).then_some(()));
    assert_eq!(status(&server).unwrap().notices, []);
    let table = server.stdout(&format!("{} --state-dir {}", path(&server, "odc-status"), path(&server, "state")));
    assert!(table.contains("Expires    in 1h59m") || table.contains("Expires    in 2h"), "{table}");
}

#[test]
fn unwritable_home_does_not_affect_terminals_and_prompts() {
    let full = "mount -t tmpfs -o size=64k odc $R/home; cat /dev/zero >$R/home/full 2>/dev/null || :";
    let read_only = "mount -t tmpfs -o ro odc $R/home";
    for (home, reason) in [(full, "No space left on device"), (read_only, "Read-only file system")] {
        let server = builder().before(home).start();
        let mut operator = Operator::connect(&server);
        let _bash = bash(&server);
        for (seconds, text) in [(900, "expires in 15m."), (300, "expires in 5m.")] {
            assert_eq!(operator.request(&set_deadline(seconds)), Reply::Done);
            server.wait_for_text("screen", text);
        }
        server.wait_for_text("state/prompt", "ada-1 expires in 5m");
        server.wait_for_text("log", reason);
        let log = server.text("log");
        assert_eq!(log.matches("cannot write warning file").count(), 1, "{log}");
        assert_eq!(status(&server).unwrap().notices.len(), 1);
    }
}

#[test]
fn restarted_agent_continues_the_countdown() {
    let server = builder().fixed_port().start();
    Operator::connect(&server).request(&set_deadline(290));
    server.wait_for_text("home/WARN_EXPIRES_IN_5MIN.txt", "ada-1");
    let first = status(&server).unwrap();
    server.run("kill -9 $PPID");
    let second = wait_until("the agent has restarted", || {
        status(&server).filter(|status| status.signals.agent_boot_id != first.signals.agent_boot_id)
    });
    assert!(second.remaining_seconds.unwrap() <= first.remaining_seconds.unwrap());
    assert!(second.remaining_seconds.unwrap() > 200);
    wait_until("the warning is shown", || status(&server).filter(|status| !status.notices.is_empty()));
    server.wait_for_text("home/WARN_EXPIRES_IN_5MIN.txt", "ada-1");
}

#[test]
fn idle_warning_is_cleared_by_activity() {
    let server = builder().serve_only().start();
    let mut operator = Operator::connect(&server);
    let bash = bash(&server);
    let text = "ada-1 hibernates in 5m because it is idle. Type something, or run odc-keep-alive.";
    operator.request(&Request::Notify { kind: NoticeKind::Idle, text: Some(text.into()) });
    server.wait_for_text("screen", text);
    server.wait_for_text("home/WARN_IDLE.txt", text);
    assert_eq!(server.text("state/prompt"), format!("{text}\n"));
    // The warning itself is not activity.
    assert!(server.path("home/WARN_IDLE.txt").exists());
    type_in(&bash, "\n");
    wait_until("it is cleared", || (!server.path("home/WARN_IDLE.txt").exists()).then_some(()));
    wait_until("the prompt line is cleared", || (!server.path("state/prompt").exists()).then_some(()));
}
