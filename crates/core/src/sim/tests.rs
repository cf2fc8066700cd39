//! What a report says about a trace.

use serde_json::{Value, json};

use super::{Options, Report, read, simulate};
use crate::scheduler::{Event, Policy, Step};

/// One node of eight devices, and one flavor.
fn trace(lines: &[(i64, Value)]) -> String {
    let node = json!({"name": "n1", "devices": {"gpu": 8}, "cpu": 64, "memoryGi": 512});
    let flavor = json!({"name": "h100", "device": "gpu", "cpuPerDevice": 4, "memoryGiPerDevice": 32});
    let cluster = [(0, json!({"node": node})), (0, json!({"flavor": flavor}))];
    let line = |(t, line): &(i64, Value)| {
        let mut line = line.clone();
        line["t"] = json!(t);
        format!("{line}\n")
    };
    cluster.iter().chain(lines).map(line).collect()
}

fn request(id: &str, user: &str, count: i64, lifetime: i64) -> Value {
    json!({"request": {"id": id, "user": user, "flavor": "h100", "count": count, "lifetimeSeconds": lifetime}})
}

fn played(lines: &[(i64, Value)], policy: &Policy) -> (Report, Vec<Event>) {
    let lines = read(&trace(lines)).unwrap();
    let mut told = Vec::new();
    let report = simulate(&lines, policy, Options::default(), &mut |step| {
        if let Step::Told { event, .. } = step {
            told.push(event.clone());
        }
    });
    (report.unwrap(), told)
}

fn play(lines: &[(i64, Value)]) -> Report {
    played(lines, &Policy::default()).0
}

#[test]
fn somebody_is_asked_to_leave_as_soon_as_that_may_be_though_nothing_else_happens() {
    let mut low = request("low", "ada", 8, 36_000);
    (low["request"]["priority"], low["request"]["preemptible"]) = (json!("Low"), json!(true));
    let mut high = request("high", "bob", 8, 600);
    high["request"]["priority"] = json!("High");
    let policy = Policy::default();
    let report = play(&[(10, low), (70, high)]);
    let asked = 10 + policy.least_run;
    assert_eq!(report.requests[1].runs[0].started_at, asked + policy.notice + policy.grace);
}

#[test]
fn the_reason_is_the_latest_one() {
    let report = play(&[
        (10, request("runs", "ada", 8, 9_000)),
        (20, request("waits", "bob", 8, 9_000)),
        (20, request("leaves", "bob", 8, 9_000)),
        (30, json!({"cancel": "leaves"})),
        (40, json!({"nodeDown": "n1"})),
    ]);
    let reasons: Vec<_> = report.requests.iter().map(|request| request.reason.as_deref()).collect();
    let needs = "Needs 8 gpu on one node;";
    let down = format!("{needs} no node that it could use takes pods at the moment.");
    let full = format!("{needs} none is free.");
    assert_eq!(reasons, [None, Some(down.as_str()), Some(full.as_str())]);
}

#[test]
fn what_counts_as_fair_is_what_everybody_got_while_somebody_waited() {
    // In all both use the same; but one has everything while the other waits.
    let report = play(&[(0, request("first", "ada", 8, 1_000)), (0, request("second", "bob", 8, 1_000))]);
    assert!((report.totals.fairness - 0.5).abs() < 0.001, "{}", report.totals.fairness);
    let report = play(&[
        (0, request("first", "ada", 4, 1_000)),
        (0, request("second", "bob", 4, 1_000)),
        (10, request("third", "bob", 4, 1_000)),
    ]);
    assert!(report.totals.fairness > 0.99, "{}", report.totals.fairness);
}

#[test]
fn a_run_says_why_it_was_put_where_it_was() {
    let report = play(&[
        (0, request("first", "ada", 6, 1_000)),
        (10, request("whole", "ada", 8, 1_000)),
        (20, request("short", "bob", 2, 100)),
    ]);
    let runs = serde_json::to_value(&report.requests).unwrap();
    let first = |at: usize| (runs[at]["runs"][0]["choice"].clone(), runs[at]["runs"][0]["backfilled"].clone());
    assert_eq!(first(0), (json!("wholeNode"), json!(false)));
    assert_eq!(first(2), (json!("fullest"), json!(true)));
}

#[test]
fn whoever_waits_is_promised_a_start_however_far_back() {
    let waiting = (0..20).map(|number| (number, request(&format!("r{number}"), "ada", 8, 1_000)));
    let (report, told) = played(&waiting.collect::<Vec<_>>(), &Policy { depth: 3, ..Policy::default() });
    let promised: Vec<_> = report.requests.iter().filter_map(|request| Some(request.eta?.p50)).collect();
    assert!(promised.len() == 19 && promised.is_sorted(), "{promised:?}");
    let coverage = report.totals.eta_coverage;
    assert_eq!((coverage.promises, coverage.unpromised), (19, 0));
    // What came of it is told, so that a recording has it.
    assert_eq!(told.iter().filter(|event| matches!(event, Event::Waited { .. })).count(), 19);
}

#[test]
fn who_cannot_be_promised_anything_at_first_is_when_something_is_known() {
    let report = play(&[
        (0, json!({"nodeDown": "n1"})),
        (10, request("first", "ada", 8, 1_000)),
        (20, request("second", "bob", 8, 1_000)),
        (500, json!({"nodeUp": "n1"})),
    ]);
    let promised: Vec<bool> = report.requests.iter().map(|request| request.eta.is_some()).collect();
    assert_eq!(promised, [false, true]);
    assert_eq!((report.totals.eta_coverage.promises, report.totals.eta_coverage.unpromised), (1, 1));
}
