use odc_control::{
    Busy, BusyTree, Forwarded, Gpu, IdleAction, IdlePolicy, Jupyter, JupyterSignal, JupyterState, KeepAlive, LastSeen,
    Line, Sessions, Signals,
};

use super::*;
use crate::fixtures;

fn busy_status() -> Status {
    let seen = |ago| LastSeen { last_seen_seconds_ago: Some(ago) };
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
        idle: Some(IdlePolicy { limit_seconds: 1800, action: IdleAction::Hibernate }),
        idle_status: Some("terminal input 1m ago".into()),
        idle_status_seconds_ago: Some(125),
        notices: vec!["ada-1 expires in 5m".into()],
        jupyter: fixtures::jupyter(),
        signals,
        ..fixtures::status()
    }
}

#[test]
fn table_lists_all_fields() {
    let expect = "\
! ada-1 expires in 5m

Server         ada-1
Owner          ada
Flavor         h100
Expires        in 3h12m
  Extend       devctl extend ada-1 2h
  Delete       devctl delete ada-1
Idle           hibernates after 30m idle
  Last check   terminal input 1m ago (2m5s ago)
Jupyter        http://127.0.0.1:8888/lab?token=abc

SIGNAL                    LAST SEEN    DETAILS
terminal input            3m5s ago
terminal output           now
file transfer, commands   never
forwarded ports           1m1s ago     8888: 1.0 MiB
session processes         12s ago      python3
entrypoint processes      never
other processes           never
GPU                       20s ago      97% busy, 70 GiB in use
Jupyter kernels           7s ago       1 busy, 2 open
heartbeat                 never
keep-alive                1h30m left   training
sessions                  now          2 open (open sessions alone do not count as activity)
OOM kills                 3            processes killed by the kernel, out of memory
";
    assert_eq!(table::render(&busy_status()), expect);
}

#[test]
fn table_marks_unknown_fields() {
    let text = table::render(&fixtures::status());
    for expect in ["Expires    unknown", "Idle       unknown", "Jupyter    off", "never"] {
        assert!(text.contains(expect), "{expect}: {text}");
    }
    assert!(!text.contains("GPU") && !text.starts_with('!'));
    let unnamed = Status { server: Line::default(), ..fixtures::status() };
    assert!(!table::render(&unnamed).contains("devctl"));
    let absent = Jupyter { state: JupyterState::Absent, error: Some("none here".into()), ..fixtures::status().jupyter };
    assert!(table::render(&Status { jupyter: absent, ..fixtures::status() }).contains("none here"));
    let expired = Status { remaining_seconds: Some(0), ..fixtures::status() };
    assert!(table::render(&expired).contains("the server is stopping"));
}

#[test]
fn json_contains_all_fields() {
    let value: Value = serde_json::from_str(&json(&busy_status()).unwrap()).unwrap();
    assert_eq!(value["remainingSeconds"], 11_520);
    assert_eq!(value["extend"], "devctl extend ada-1 2h");
    assert_eq!(value["delete"], "devctl delete ada-1");
    assert_eq!(value["jupyter"]["url"], "http://127.0.0.1:8888/lab?token=abc");
    assert_eq!(value["signals"]["terminalInput"]["lastSeenSecondsAgo"], 185);
    let value: Value = serde_json::from_str(&json(&fixtures::status()).unwrap()).unwrap();
    assert_eq!(value["jupyter"]["url"], Value::Null);
    let unnamed = Status { server: Line::default(), ..fixtures::status() };
    let value: Value = serde_json::from_str(&json(&unnamed).unwrap()).unwrap();
    assert_eq!((&value["extend"], &value["delete"]), (&Value::Null, &Value::Null));
}
