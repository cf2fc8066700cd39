use odc_control::{
    Busy, BusyTree, Forwarded, Gpu, IdleAction, IdleTerms, Jupyter, JupyterSignal, JupyterState, KeepAlive, Seen,
    Sessions, Signals,
};

use super::*;
use crate::fixtures;

fn busy() -> Status {
    let seen = |ago| Seen { last_seen_seconds_ago: Some(ago) };
    let tree = |ago, name: &str| BusyTree { last_seen_seconds_ago: Some(ago), process: Some(name.into()) };
    let signals = Signals {
        sessions: Sessions { open: 2, last_seen_seconds_ago: Some(0) },
        terminal_input: seen(185),
        terminal_output: seen(0),
        forwarded: vec![Forwarded { port: 8888, bytes: 1 << 20, last_seen_seconds_ago: Some(61) }],
        busy: Busy { sessions: tree(12, "python3"), ..Busy::default() },
        gpu: Some(Gpu {
            percent: Some(97),
            memory_bytes: Some(70 << 30),
            last_seen_seconds_ago: Some(20),
            error: None,
        }),
        jupyter: Some(JupyterSignal {
            busy_kernels: Some(1),
            connections: Some(2),
            last_seen_seconds_ago: Some(7),
            error: None,
        }),
        keep_alive: Some(KeepAlive { remaining_seconds: 5400, reason: Some("training".into()) }),
        oom_kills: 3,
        ..Signals::default()
    };
    Status {
        remaining_seconds: Some(11_520),
        idle: Some(IdleTerms { limit_seconds: 1800, action: IdleAction::Hibernate }),
        verdict: Some("terminal input 1 min ago".into()),
        verdict_seconds_ago: Some(125),
        notices: vec!["ada-1 ends in 5 min".into()],
        jupyter: fixtures::jupyter(),
        signals,
        ..fixtures::status()
    }
}

#[test]
fn a_person_sees_everything_at_a_glance() {
    let expect = "\
! ada-1 ends in 5 min

Server                ada-1
Owner                 ada
Flavor                h100
Time left             3 h 12 min
  to keep it longer   devctl extend ada-1
  to end it now       devctl delete ada-1
Idle                  put to sleep after 30 min without use
  last judged         terminal input 1 min ago (2 min ago)
Jupyter               http://127.0.0.1:8888/lab?token=abc

SIGNAL                        LAST SEEN         DETAILS
terminal input                3 min ago
terminal output               now
files and commands            never
forwarded ports               1 min ago         8888: 1.0 MiB
processes of sessions         12 s ago          python3
processes of the entrypoint   never
other processes               never
GPU                           20 s ago          97 % now, 70 GiB in use
Jupyter kernels               7 s ago           1 busy, 2 open
heartbeat                     never
keep-alive                    1 h 30 min more   training
sessions                      now               2 open; alone, that is no use
out of memory                 3 times           processes were killed
";
    assert_eq!(table::table(&busy()), expect);
}

#[test]
fn nothing_known_is_said_so() {
    let text = table::table(&fixtures::status());
    for expect in ["no end known", "no limit known", "Jupyter               off", "never"] {
        assert!(text.contains(expect), "{expect}: {text}");
    }
    assert!(!text.contains("GPU") && !text.starts_with('!'));
    let absent = Jupyter { state: JupyterState::Absent, error: Some("none here".into()), ..fixtures::status().jupyter };
    assert!(table::table(&Status { jupyter: absent, ..fixtures::status() }).contains("none here"));
    let over = Status { remaining_seconds: Some(0), ..fixtures::status() };
    assert!(table::table(&over).contains("it is being stopped"));
}

#[test]
fn scripts_get_everything_too() {
    let value: Value = serde_json::from_str(&json(&busy()).unwrap()).unwrap();
    assert_eq!(value["remainingSeconds"], 11_520);
    assert_eq!(value["extend"], "devctl extend ada-1");
    assert_eq!(value["end"], "devctl delete ada-1");
    assert_eq!(value["jupyter"]["url"], "http://127.0.0.1:8888/lab?token=abc");
    assert_eq!(value["signals"]["terminalInput"]["lastSeenSecondsAgo"], 185);
    let value: Value = serde_json::from_str(&json(&fixtures::status()).unwrap()).unwrap();
    assert_eq!(value["jupyter"]["url"], Value::Null);
}
