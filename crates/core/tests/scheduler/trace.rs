//! Traces in virtual time.

use odc_core::scheduler::{Policy, Right, Step};
use odc_core::sim::{self, Dice, Options, Outcome, Report, convert};
use serde_json::json;

use super::harness::Effort;

fn play(text: &str, policy: &Policy) -> (Report, Vec<String>, String) {
    let lines = sim::read(text).unwrap();
    let (mut decided, mut recorded) = (Vec::new(), String::new());
    let report = sim::simulate(&lines, policy, Options::default(), &mut |step| match step {
        Step::Told { now, event } => recorded += &format!("{}\n", json!({"t": now, "event": event})),
        Step::Planned { now, plan } => {
            decided.extend(plan.decided(now));
            recorded += &format!("{}\n", json!({"t": now, "plan": {"now": now}}));
        }
    });
    (report.unwrap(), decided, recorded)
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
fn a_small_one_starts_before_a_large_one_it_does_not_delay() {
    let text = with(
        r#"{"t":10,"request":{"id":"first","user":"ada","flavor":"h100","count":6,"lifetimeSeconds":3600,"actualSeconds":1800}}
{"t":20,"request":{"id":"whole","user":"bob","flavor":"h100","count":8,"lifetimeSeconds":3600}}
{"t":30,"request":{"id":"short","user":"bob","flavor":"h100","count":2,"lifetimeSeconds":600,"actualSeconds":300}}
{"t":40,"request":{"id":"long","user":"bob","flavor":"h100","count":2,"lifetimeSeconds":7200}}
"#,
    );
    let (report, ..) = play(&text, &Policy::default());
    let request = |id: &str| report.requests.iter().find(|request| request.id == id).unwrap().clone();
    let started = |id: &str| request(id).runs.first().unwrap().started_at;
    assert_eq!(started("short"), 30);
    assert_eq!(started("whole"), 10 + 1_800);
    assert_eq!(started("long"), 10 + 1_800 + 3_600);
    assert_eq!(request("whole").eta.unwrap().latest, Some(10 + 3_600));
    let overtaken = request("whole").overtaken_by;
    assert_eq!(overtaken.iter().map(|by| (by.id.as_str(), by.right)).collect::<Vec<_>>(), [("short", Right::Backfill)]);
    assert_eq!(request("first").outcome, Outcome::Finished);
    assert_eq!((report.totals.overcommits, report.totals.promise_violations), (0, 0));
}

#[test]
fn without_backfill_everybody_waits_for_the_first() {
    let text = with(
        r#"{"t":10,"request":{"id":"first","user":"ada","flavor":"h100","count":6,"lifetimeSeconds":3600}}
{"t":20,"request":{"id":"whole","user":"bob","flavor":"h100","count":8,"lifetimeSeconds":3600}}
{"t":30,"request":{"id":"short","user":"bob","flavor":"h100","count":2,"lifetimeSeconds":600}}
"#,
    );
    let policy = Policy { backfill: odc_core::scheduler::Backfill::None, ..Policy::default() };
    let (report, ..) = play(&text, &policy);
    let starts: Vec<i64> = report.requests.iter().map(|request| request.runs[0].started_at).collect();
    assert_eq!(starts, [10, 3_610, 7_210]);
}

#[test]
fn a_booking_starts_at_its_time_though_others_came_before() {
    let text = with(
        r#"{"t":10,"request":{"id":"booked","user":"ada","flavor":"h100","count":8,"lifetimeSeconds":600,"notBefore":5000}}
{"t":20,"request":{"id":"long","user":"bob","flavor":"h100","count":8,"lifetimeSeconds":9000,"priority":"High"}}
{"t":30,"request":{"id":"short","user":"bob","flavor":"h100","count":8,"lifetimeSeconds":4000}}
"#,
    );
    let (report, ..) = play(&text, &Policy::default());
    let starts: Vec<i64> = report.requests.iter().map(|request| request.runs[0].started_at).collect();
    assert_eq!(starts, [5_000, 5_600, 30]);
}

#[test]
fn lent_quota_comes_back_with_notice_and_the_place_is_kept() {
    let text = format!(
        "{CLUSTER}{}",
        r#"{"t":0,"team":{"name":"audio","quota":{"devices":4},"borrow":{"devices":4}}}
{"t":0,"user":{"name":"eve","team":"audio"}}
{"t":10,"request":{"id":"own","user":"eve","flavor":"h100","count":4,"lifetimeSeconds":9000}}
{"t":20,"request":{"id":"lent","user":"eve","flavor":"h100","count":4,"lifetimeSeconds":9000,"actualSeconds":3000,"preemptible":true}}
{"t":1000,"request":{"id":"owner","user":"ada","flavor":"h100","count":4,"lifetimeSeconds":1000}}
"#
    );
    let policy = Policy::default();
    let (report, ..) = play(&text, &policy);
    let request = |id: &str| report.requests.iter().find(|request| request.id == id).unwrap().clone();
    let lent = request("lent");
    assert_eq!((lent.preemptions, lent.runs.len()), (1, 2), "{lent:?}");
    assert_eq!(lent.runs[0].started_at, 20);
    let asked_back = 1_000 + policy.notice + policy.grace;
    assert!(1_000 - 20 >= policy.least_run);
    assert_eq!(lent.runs[0].ended_at, Some(asked_back));
    assert_eq!(request("owner").runs[0].started_at, asked_back);
    // It goes on when the owner is done, and stays for what it had left.
    assert_eq!(lent.runs[1].started_at, asked_back + 1_000);
    assert_eq!(lent.outcome, Outcome::Finished);
    assert_eq!(request("own").preemptions, 0);
}

#[test]
fn who_was_on_a_node_that_failed_runs_again_and_keeps_the_place() {
    let text = with(
        r#"{"t":5,"node":{"name":"n2","devices":{"gpu":8},"cpu":64,"memoryGi":512,"zone":"a"}}
{"t":10,"request":{"id":"gang","user":"bob","flavor":"h100","count":8,"nodes":2,"lifetimeSeconds":3600}}
{"t":20,"request":{"id":"later","user":"bob","flavor":"h100","count":8,"lifetimeSeconds":100}}
{"t":600,"nodeDown":"n1"}
{"t":2000,"nodeUp":"n1"}
"#,
    );
    let (report, ..) = play(&text, &Policy::default());
    let gang = &report.requests[0];
    assert_eq!((gang.runs[0].ended_at, gang.runs[1].started_at), (Some(600), 2_000));
    assert_eq!(gang.runs[1].nodes, ["n1", "n2"]);
    // What the gang cannot use alone is used meanwhile.
    assert_eq!(report.requests[1].runs[0].started_at, 600);
}

#[test]
fn what_was_recorded_is_decided_the_same_again() {
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
    let (report, decided, recorded) = play(&text, &Policy::default());
    assert!(decided.len() > 60, "{decided:?}");
    assert_eq!((report.totals.overcommits, report.totals.promise_violations), (0, 0));
    let (_, again, _) = play(&text, &Policy::default());
    assert_eq!(again, decided);
    let (_, replayed, _) = play(&recorded, &Policy::default());
    assert_eq!(replayed, decided);
}

#[test]
fn a_line_that_cannot_be_read_is_named_with_what_to_do() {
    let said = |text: &str| sim::read(text).unwrap_err().to_string();
    assert_eq!(said("\n{"), "line 2 is not JSON");
    assert_eq!(said(r#"{"cancel":"a"}"#), "line 1 needs a `t` in seconds, a whole number");
    assert!(said(r#"{"t":1,"nodes":{}}"#).contains("node, flavor, team"));
    assert_eq!(
        said("{\"t\":2,\"cancel\":\"a\"}\n{\"t\":1,\"cancel\":\"a\"}"),
        "line 2 is of time 1, before the line above it, of 2; sort the trace by `t`"
    );
    let lines = sim::read(r#"{"t":1,"cancel":"a"}"#).unwrap();
    let error = sim::simulate(&lines, &Policy::default(), Options::default(), &mut |_| {}).unwrap_err();
    assert_eq!(error.to_string(), "line 1: request a is not known; it must come on a line before");
}

#[test]
fn traces_of_others_can_be_played() {
    let machine = convert::Machine { nodes: None, devices_per_node: None };
    let swf = "; MaxNodes: 2\n; MaxProcs: 8\n1 100 -1 50 4 -1 -1 4 100 -1 1 7 2 -1 1 1 -1 -1\n\
               2 110 -1 60 8 -1 -1 8 -1 -1 1 8 2 -1 1 1 -1 -1\n3 120 -1 0 1 -1 -1 1 9 -1 0 8 2 -1 1 1 -1 -1\n";
    let lines = convert::swf(swf, &machine).unwrap();
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let (report, ..) = play(&text, &Policy::default());
    assert_eq!(report.requests.len(), 2);
    assert_eq!(report.requests[0].runs[0].started_at, 100);
    // Eight processors on nodes of four are a gang of two, which waits for the first to leave.
    assert_eq!((report.requests[1].runs[0].started_at, report.requests[1].runs[0].nodes.len()), (150, 2));
    assert!(convert::swf("1 2 3\n", &convert::Machine { nodes: Some(1), devices_per_node: Some(1) }).is_err());
    assert!(matches!(convert::swf("", &machine), Err(convert::Error::Machine)));

    let machine = convert::Machine { nodes: Some(1), devices_per_node: Some(4) };
    let csv = "t,user,team,count,lifetime,actual\n0,ada,one,4,100,50\n10,bob,two,2,100,\n";
    let text: String = convert::csv(csv, &machine).unwrap().iter().map(|line| format!("{line}\n")).collect();
    let (report, ..) = play(&text, &Policy::default());
    assert_eq!(report.requests[1].runs[0].started_at, 50);
    assert!(matches!(convert::csv("t,user\n", &machine), Err(convert::Error::Column { column: "count" })));
}

/// Four teams that lend and borrow, gangs, bookings, all priorities, people who leave early, extend or give up, and nodes
/// that come and go, under more load than there is room for.
fn heavy(seed: u64, requests: usize) -> String {
    let mut dice = Dice(seed);
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
        t += dice.number(240);
        let (id, life) = (format!("r{number}"), 600 + dice.number(6_000));
        let gang = if dice.roll(8) == 0 { 2 } else { 1 };
        let mut request = json!({
            "id": id, "user": format!("u{}", dice.roll(12)), "flavor": "h100", "count": 1 + dice.number(8), "nodes": gang,
            "lifetimeSeconds": life, "actualSeconds": life / (1 + dice.number(4)),
            "priority": *dice.pick(&["Low", "Normal", "Normal", "High"]).unwrap(), "preemptible": dice.roll(3) == 0,
        });
        if dice.roll(15) == 0 {
            request["notBefore"] = json!(t + dice.number(9_000));
        }
        lines.push((t, json!({"request": request})));
        if dice.roll(10) == 0 {
            lines.push((t + dice.number(6_000), json!({"extend": {"id": id, "bySeconds": 900}})));
        }
        if dice.roll(20) == 0 {
            lines.push((t + dice.number(6_000), json!({"cancel": id})));
        }
        if dice.roll(50) == 0 {
            let (down, up) = *dice.pick(&[("nodeDown", "nodeUp"), ("cordon", "uncordon")]).unwrap();
            let (node, from) = (format!("n{}", dice.roll(6)), t + dice.number(600));
            lines.push((from, json!({down: node})));
            lines.push((from + 600 + dice.number(3_000), json!({up: node})));
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
fn heavy_traces_break_no_promise_and_give_nothing_twice() {
    let (seeds, requests) = match Effort::asked() {
        Effort::Quick => (1, 200),
        Effort::Whole => (8, 300),
        Effort::Full => (20, 1_500),
    };
    for seed in 1..=seeds {
        let (report, ..) = play(&heavy(seed, requests), &Policy::default());
        let totals = &report.totals;
        assert_eq!((totals.overcommits, totals.promise_violations), (0, 0), "seed {seed}");
        // It is heavy enough for people to be preempted.
        assert!(report.requests.iter().any(|request| request.preemptions > 0), "seed {seed}: {totals:?}");
    }
}
