//! Tests of simulating, recording, replaying and importing traces.

use odc_core::scheduler::{Policy, Precedence, TraceRecord};
use odc_core::sim::{self, Options, Report, RequestOutcome, Rng, trace_import};
use serde_json::json;

use super::harness::Effort;

fn simulate(text: &str, policy: &Policy) -> (Report, Vec<String>, String) {
    let lines = sim::read(text).unwrap();
    let (mut decisions, mut recorded) = (Vec::new(), String::new());
    let report = sim::simulate(&lines, policy, Options::default(), &mut |record| match record {
        TraceRecord::Event { now, event } => recorded += &format!("{}\n", json!({"t": now, "event": event})),
        TraceRecord::Plan { now, plan } => {
            decisions.extend(plan.decision_lines(now));
            recorded += &format!("{}\n", json!({"t": now, "plan": {"now": now}}));
        }
    });
    (report.unwrap(), decisions, recorded)
}

const CLUSTER: &str = r#"
{"t":0,"node":{"name":"n1","devices":{"gpu":8},"cpu":64,"memoryGi":512,"zone":"a"}}
{"t":0,"flavor":{"name":"h100","device":"gpu","cpuPerDevice":4,"memoryGiPerDevice":32}}
{"t":0,"team":{"name":"vision","weight":2,"quota":{"devices":8},"borrow":{}}}
{"t":0,"user":{"name":"ada","team":"vision"}}
"#;

fn with(lines: &str) -> String {
    format!("{CLUSTER}{lines}")
}

#[test]
fn small_request_is_backfilled_before_large_one() {
    let text = with(
        r#"{"t":10,"request":{"id":"first","user":"ada","flavor":"h100","count":6,"lifetimeSeconds":3600,"actualSeconds":1800}}
{"t":20,"request":{"id":"whole","user":"bob","flavor":"h100","count":8,"lifetimeSeconds":3600}}
{"t":30,"request":{"id":"short","user":"bob","flavor":"h100","count":2,"lifetimeSeconds":600,"actualSeconds":300}}
{"t":40,"request":{"id":"long","user":"bob","flavor":"h100","count":2,"lifetimeSeconds":7200}}
"#,
    );
    let (report, ..) = simulate(&text, &Policy::default());
    let request = |id: &str| report.requests.iter().find(|request| request.id == id).unwrap().clone();
    let started = |id: &str| request(id).runs.first().unwrap().started_at;
    assert_eq!(started("short"), 30);
    assert_eq!(started("whole"), 10 + 1_800);
    assert_eq!(started("long"), 10 + 1_800 + 3_600);
    assert_eq!(request("whole").eta.unwrap().latest, Some(10 + 3_600));
    let overtaken = request("whole").overtaken_by;
    assert_eq!(
        overtaken.iter().map(|by| (by.id.as_str(), by.precedence)).collect::<Vec<_>>(),
        [("short", Precedence::Backfill)]
    );
    assert_eq!(request("first").outcome, RequestOutcome::Finished);
    assert_eq!((report.totals.overcommits, report.totals.unexplained_delays), (0, 0));
}

#[test]
fn without_backfill_requests_start_in_order() {
    let text = with(
        r#"{"t":10,"request":{"id":"first","user":"ada","flavor":"h100","count":6,"lifetimeSeconds":3600}}
{"t":20,"request":{"id":"whole","user":"bob","flavor":"h100","count":8,"lifetimeSeconds":3600}}
{"t":30,"request":{"id":"short","user":"bob","flavor":"h100","count":2,"lifetimeSeconds":600}}
"#,
    );
    let policy = Policy { backfill: odc_core::scheduler::Backfill::Disabled, ..Policy::default() };
    let (report, ..) = simulate(&text, &policy);
    let starts: Vec<i64> = report.requests.iter().map(|request| request.runs[0].started_at).collect();
    assert_eq!(starts, [10, 3_610, 7_210]);
}

#[test]
fn booking_starts_at_its_start_time() {
    let text = with(
        r#"{"t":10,"request":{"id":"booked","user":"ada","flavor":"h100","count":8,"lifetimeSeconds":600,"notBefore":5000}}
{"t":20,"request":{"id":"long","user":"bob","flavor":"h100","count":8,"lifetimeSeconds":9000,"priority":"High"}}
{"t":30,"request":{"id":"short","user":"bob","flavor":"h100","count":8,"lifetimeSeconds":4000}}
"#,
    );
    let (report, ..) = simulate(&text, &Policy::default());
    let starts: Vec<i64> = report.requests.iter().map(|request| request.runs[0].started_at).collect();
    assert_eq!(starts, [5_000, 5_600, 30]);
}

#[test]
fn borrowed_quota_is_reclaimed_after_notice() {
    let text = format!(
        "{CLUSTER}{}",
        r#"{"t":0,"team":{"name":"audio","quota":{"devices":4},"borrow":{"devices":4}}}
{"t":0,"user":{"name":"eve","team":"audio"}}
{"t":10,"request":{"id":"own","user":"eve","flavor":"h100","count":4,"lifetimeSeconds":9000}}
{"t":20,"request":{"id":"borrower","user":"eve","flavor":"h100","count":4,"lifetimeSeconds":9000,"actualSeconds":3000,"preemptible":true}}
{"t":1000,"request":{"id":"owner","user":"ada","flavor":"h100","count":4,"lifetimeSeconds":1000}}
"#
    );
    let policy = Policy::default();
    let (report, ..) = simulate(&text, &policy);
    let request = |id: &str| report.requests.iter().find(|request| request.id == id).unwrap().clone();
    let borrower = request("borrower");
    assert_eq!((borrower.preemptions, borrower.runs.len()), (1, 2), "{borrower:?}");
    assert_eq!(borrower.runs[0].started_at, 20);
    let reclaimed_at = 1_000 + policy.preemption_notice + policy.termination_grace_period;
    assert!(1_000 - 20 >= policy.preempt_exempt_time);
    assert_eq!(borrower.runs[0].ended_at, Some(reclaimed_at));
    assert_eq!(request("owner").runs[0].started_at, reclaimed_at);
    // It continues after the owner has ended, for its remaining time.
    assert_eq!(borrower.runs[1].started_at, reclaimed_at + 1_000);
    assert_eq!(borrower.outcome, RequestOutcome::Finished);
    assert_eq!(request("own").preemptions, 0);
}

#[test]
fn server_on_failed_node_is_requeued_with_its_position() {
    let text = with(
        r#"{"t":5,"node":{"name":"n2","devices":{"gpu":8},"cpu":64,"memoryGi":512,"zone":"a"}}
{"t":10,"request":{"id":"gang","user":"bob","flavor":"h100","count":8,"nodes":2,"lifetimeSeconds":3600}}
{"t":20,"request":{"id":"later","user":"bob","flavor":"h100","count":8,"lifetimeSeconds":100}}
{"t":600,"nodeDown":"n1"}
{"t":2000,"nodeUp":"n1"}
"#,
    );
    let (report, ..) = simulate(&text, &Policy::default());
    let gang = &report.requests[0];
    assert_eq!((gang.runs[0].ended_at, gang.runs[1].started_at), (Some(600), 2_000));
    assert_eq!(gang.runs[1].nodes, ["n1", "n2"]);
    // The other node is used while the gang is pending.
    assert_eq!(report.requests[1].runs[0].started_at, 600);
}

#[test]
fn recorded_trace_replays_to_the_same_decisions() {
    let mut text = with("");
    for number in 0..60_i64 {
        let (count, life) = (1 + number * 7 % 8, 300 + number * 977 % 5_000);
        let request = json!({
            "id": format!("r{number}"), "user": if number % 3 == 0 { "ada" } else { "bob" }, "flavor": "h100",
            "count": count, "lifetimeSeconds": life, "actualSeconds": life * (number % 5 + 1) / 5,
            "preemptible": number % 4 == 0, "priority": if number % 7 == 0 { "High" } else { "Normal" },
        });
        text += &format!("{}\n", json!({"t": number * 90, "request": request}));
    }
    text += "{\"t\":6000,\"extend\":{\"id\":\"r59\",\"bySeconds\":900}}\n{\"t\":6000,\"cancel\":\"r58\"}\n";
    let (report, decisions, recorded) = simulate(&text, &Policy::default());
    assert!(decisions.len() > 60, "{decisions:?}");
    assert_eq!((report.totals.overcommits, report.totals.unexplained_delays), (0, 0));
    let (_, again, _) = simulate(&text, &Policy::default());
    assert_eq!(again, decisions);
    let (_, replayed, _) = simulate(&recorded, &Policy::default());
    assert_eq!(replayed, decisions);
}

#[test]
fn invalid_line_is_reported() {
    let error = |text: &str| sim::read(text).unwrap_err().to_string();
    assert_eq!(error("\n{"), "line 2: invalid JSON");
    assert_eq!(error(r#"{"cancel":"a"}"#), "line 1: `t` must be an integer, in seconds");
    assert!(error(r#"{"t":1,"nodes":{}}"#).contains("node, flavor, team"));
    assert_eq!(
        error("{\"t\":2,\"cancel\":\"a\"}\n{\"t\":1,\"cancel\":\"a\"}"),
        "line 2: time 1 is before 2 of the previous line; sort the trace by `t`"
    );
    let lines = sim::read(r#"{"t":1,"cancel":"a"}"#).unwrap();
    let failure = sim::simulate(&lines, &Policy::default(), Options::default(), &mut |_| {}).unwrap_err();
    assert_eq!(failure.to_string(), "line 1: request a is not defined on an earlier line");
}

#[test]
fn other_trace_formats_are_converted() {
    let machine = trace_import::Machine { nodes: None, devices_per_node: None };
    let swf = "; MaxNodes: 2\n; MaxProcs: 8\n1 100 -1 50 4 -1 -1 4 100 -1 1 7 2 -1 1 1 -1 -1\n\
               2 110 -1 60 8 -1 -1 8 -1 -1 1 8 2 -1 1 1 -1 -1\n3 120 -1 0 1 -1 -1 1 9 -1 0 8 2 -1 1 1 -1 -1\n";
    let lines = trace_import::swf(swf, &machine).unwrap();
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let (report, ..) = simulate(&text, &Policy::default());
    assert_eq!(report.requests.len(), 2);
    assert_eq!(report.requests[0].runs[0].started_at, 100);
    // Eight processors on nodes of four are a gang of two, which waits for the end of the first.
    assert_eq!((report.requests[1].runs[0].started_at, report.requests[1].runs[0].nodes.len()), (150, 2));
    assert!(
        trace_import::swf("1 2 3\n", &trace_import::Machine { nodes: Some(1), devices_per_node: Some(1) }).is_err()
    );
    assert!(matches!(trace_import::swf("", &machine), Err(trace_import::Error::Machine)));

    let machine = trace_import::Machine { nodes: Some(1), devices_per_node: Some(4) };
    let csv = "t,user,team,count,lifetime,actual\n0,ada,one,4,100,50\n10,bob,two,2,100,\n";
    let text: String = trace_import::csv(csv, &machine).unwrap().iter().map(|line| format!("{line}\n")).collect();
    let (report, ..) = simulate(&text, &Policy::default());
    assert_eq!(report.requests[1].runs[0].started_at, 50);
    assert!(matches!(trace_import::csv("t,user\n", &machine), Err(trace_import::Error::Column { column: "count" })));
}

/// Returns an overloaded trace with borrowing teams, gangs, bookings, all priorities, early ends, extensions, cancellations
/// and node failures.
fn heavy_trace(seed: u64, requests: usize) -> String {
    let mut rng = Rng(seed);
    let mut lines: Vec<(i64, serde_json::Value)> = Vec::new();
    for node in 0..6 {
        let zone = if node < 3 { "a" } else { "b" };
        let node = json!({"name": format!("n{node}"), "devices": {"gpu": 8}, "cpu": 64, "memoryGi": 512, "zone": zone});
        lines.push((0, json!({"node": node})));
    }
    let flavor = json!({"name": "h100", "device": "gpu", "cpuPerDevice": 4, "memoryGiPerDevice": 32});
    lines.push((0, json!({"flavor": flavor})));
    for (team, borrow) in [json!({}), json!({"devices": 8}), json!({"devices": 4}), json!(null)].into_iter().enumerate()
    {
        let team = json!({"name": format!("team-{team}"), "quota": {"devices": 10 + 2 * team}, "borrow": borrow});
        lines.push((0, json!({"team": team})));
    }
    for user in 0..12 {
        lines.push((0, json!({"user": {"name": format!("u{user}"), "team": format!("team-{}", user % 4)}})));
    }
    let mut t = 0;
    for number in 0..requests {
        t += rng.number(240);
        let (id, lifetime) = (format!("r{number}"), 600 + rng.number(6_000));
        let gang = if rng.below(8) == 0 { 2 } else { 1 };
        let mut request = json!({
            "id": id, "user": format!("u{}", rng.below(12)), "flavor": "h100", "count": 1 + rng.number(8), "nodes": gang,
            "lifetimeSeconds": lifetime, "actualSeconds": lifetime / (1 + rng.number(4)),
            "priority": *rng.choose(&["Low", "Normal", "Normal", "High"]).unwrap(), "preemptible": rng.below(3) == 0,
        });
        if rng.below(15) == 0 {
            request["notBefore"] = json!(t + rng.number(9_000));
        }
        lines.push((t, json!({"request": request})));
        if rng.below(10) == 0 {
            lines.push((t + rng.number(6_000), json!({"extend": {"id": id, "bySeconds": 900}})));
        }
        if rng.below(20) == 0 {
            lines.push((t + rng.number(6_000), json!({"cancel": id})));
        }
        if rng.below(50) == 0 {
            let (down, up) = *rng.choose(&[("nodeDown", "nodeUp"), ("cordon", "uncordon")]).unwrap();
            let (node, from) = (format!("n{}", rng.below(6)), t + rng.number(600));
            lines.push((from, json!({down: node})));
            lines.push((from + 600 + rng.number(3_000), json!({up: node})));
        }
    }
    lines.sort_by_key(|(t, _)| *t);
    let line = |(t, mut line): (i64, serde_json::Value)| {
        line["t"] = json!(t);
        format!("{line}\n")
    };
    lines.into_iter().map(line).collect()
}

#[test]
fn heavy_trace_has_no_overcommits_or_unexplained_delays() {
    let (seeds, requests) = match Effort::from_env() {
        Effort::Quick => (1, 200),
        Effort::Default => (8, 300),
        Effort::Full => (20, 1_500),
    };
    for seed in 1..=seeds {
        let (report, ..) = simulate(&heavy_trace(seed, requests), &Policy::default());
        let totals = &report.totals;
        assert_eq!((totals.overcommits, totals.unexplained_delays), (0, 0), "seed {seed}");
        // The load is high enough for preemptions.
        assert!(report.requests.iter().any(|request| request.preemptions > 0), "seed {seed}: {totals:?}");
    }
}
