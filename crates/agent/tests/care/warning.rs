//! Warnings on their way to people.

use std::fs::File;
use std::io::Write as _;
use std::process::Stdio;

use odc_control::{About, IdleAction, IdleTerms, Reply, Request};

use crate::control::{Operator, path, plan, status};
use crate::server::{Running, Server, eventually};

const FIFTEEN: &str = "home/WARN_EXPIRES_IN_15MIN.txt";

fn deadline(seconds: u64) -> Request {
    let idle = Some(IdleTerms { limit_seconds: 1800, action: IdleAction::Hibernate });
    Request::SetDeadline { remaining_seconds: Some(seconds), idle }
}

/// A bash at a terminal, whose screen goes to the file `screen`.
fn bash(server: &Server) -> Running {
    let screen = File::create(server.path("screen")).unwrap();
    let mut ssh = server.ssh(&["-tt"]);
    ssh.arg("exec bash --norc --noprofile -i").env("TERM", "dumb").stdin(Stdio::piped()).stdout(screen);
    let bash = Running::start(&mut ssh);
    // Until it has nothing more to say by itself.
    type_in(&bash, "PS1=fin'e> '\necho re'ad'y\n");
    server.wait_for_text("screen", "ready\r\nfine> ");
    bash
}

fn type_in(bash: &Running, text: &str) {
    bash.0.stdin.as_ref().unwrap().write_all(text.as_bytes()).unwrap();
}

#[test]
fn an_end_that_comes_near_is_told_everywhere_until_it_is_moved() {
    let server = plan().alone().start();
    let mut operator = Operator::dial(&server);
    let bash = bash(&server);
    assert_eq!(operator.ask(&deadline(7200)), Reply::Done);
    assert_eq!(operator.ask(&deadline(900)), Reply::Done);
    server.wait_for_text("screen", "The server ada-1 ends in 15 min. Save your work.");
    server.wait_for_text(FIFTEEN, "devctl extend ada-1");
    type_in(&bash, "\n");
    server.wait_for_text("screen", "[odc] ada-1 ends in 15 min; to keep it longer: devctl extend ada-1");
    let shown = status(&server).unwrap();
    assert_eq!(shown.notices.len(), 1);
    assert_eq!(shown.idle.unwrap().limit_seconds, 1800);

    operator.ask(&deadline(7200));
    eventually("it is cleared", || (!server.path(FIFTEEN).exists()).then_some(()));
    eventually("prompts are quiet", || (!server.path("state/prompt").exists()).then_some(()));
    assert_eq!(status(&server).unwrap().notices, []);
    let table = server.said(&format!("{} --state-dir {}", path(&server, "odc-status"), path(&server, "state")));
    assert!(table.contains("Time left             1 h 59 min") || table.contains("2 h"), "{table}");
}

#[test]
fn a_home_that_takes_no_files_takes_nothing_from_terminals_and_prompts() {
    let full = "mount -t tmpfs -o size=64k odc $R/home; cat /dev/zero >$R/home/full 2>/dev/null || :";
    let read_only = "mount -t tmpfs -o ro odc $R/home";
    for (home, reason) in [(full, "No space left on device"), (read_only, "Read-only file system")] {
        let server = plan().before(home).start();
        let mut operator = Operator::dial(&server);
        let _bash = bash(&server);
        for (seconds, said) in [(900, "ends in 15 min."), (300, "ends in 5 min.")] {
            assert_eq!(operator.ask(&deadline(seconds)), Reply::Done);
            server.wait_for_text("screen", said);
        }
        server.wait_for_text("state/prompt", "ada-1 ends in 5 min");
        server.wait_for_text("log", reason);
        let log = server.text("log");
        assert_eq!(log.matches("warnings cannot be left as files").count(), 1, "{log}");
        assert_eq!(status(&server).unwrap().notices.len(), 1);
    }
}

#[test]
fn a_new_agent_counts_on_and_tells_nobody_twice() {
    let server = plan().fixed_port().start();
    Operator::dial(&server).ask(&deadline(290));
    server.wait_for_text("home/WARN_EXPIRES_IN_5MIN.txt", "ada-1");
    let first = status(&server).unwrap();
    server.run("kill -9 $PPID");
    let second = eventually("another one answers", || {
        status(&server).filter(|status| status.signals.agent_boot != first.signals.agent_boot)
    });
    assert!(second.remaining_seconds.unwrap() <= first.remaining_seconds.unwrap());
    assert!(second.remaining_seconds.unwrap() > 200);
    eventually("it holds", || status(&server).filter(|status| !status.notices.is_empty()));
    server.wait_for_text("home/WARN_EXPIRES_IN_5MIN.txt", "ada-1");
}

#[test]
fn an_idle_warning_is_taken_back_by_use() {
    let server = plan().alone().start();
    let mut operator = Operator::dial(&server);
    let bash = bash(&server);
    let text = "ada-1 will be put to sleep in 5 min, because nobody uses it. Type something, or run odc-keep-alive.";
    operator.ask(&Request::Notify { about: About::Idle, text: Some(text.into()) });
    server.wait_for_text("screen", text);
    server.wait_for_text("home/WARN_IDLE.txt", text);
    assert_eq!(server.text("state/prompt"), format!("{text}\n"));
    // That it was told is no use.
    assert!(server.path("home/WARN_IDLE.txt").exists());
    type_in(&bash, "\n");
    eventually("it is taken back", || (!server.path("home/WARN_IDLE.txt").exists()).then_some(()));
    eventually("prompts are quiet", || (!server.path("state/prompt").exists()).then_some(()));
}
