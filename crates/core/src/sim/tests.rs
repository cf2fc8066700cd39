//! Reports of small traces.

use serde_json::{Value, json};

use super::{Options, Report, read, simulate};
use crate::scheduler::{Event, Policy, TraceRecord};

/// Returns a trace with one node of eight devices, one flavor, and these lines.
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

fn simulate_lines(lines: &[(i64, Value)], policy: &Policy) -> (Report, Vec<Event>) {
    let lines = read(&trace(lines)).unwrap();
    let mut events = Vec::new();
    let report = simulate(&lines, policy, Options::default(), &mut |record| {
        if let TraceRecord::Event { event, .. } = record {
            events.push(event.clone());
        }
    });
    (report.unwrap(), events)
}

fn run(lines: &[(i64, Value)]) -> Report {
    simulate_lines(lines, &Policy::default()).0
}

#[test]
fn preemption_happens_when_exemption_ends_without_other_events() {
    let mut low = request("low", "ada", 8, 36_000);
    (low["request"]["priority"], low["request"]["preemptible"]) = (json!("Low"), json!(true));
    let mut high = request("high", "bob", 8, 600);
    high["request"]["priority"] = json!("High");
    let policy = Policy::default();
    let report = run(&[(10, low), (70, high)]);
    let preempted_at = 10 + policy.preempt_exempt_time;
    let reclaimed_at = preempted_at + policy.preemption_notice + policy.termination_grace_period;
    assert_eq!(report.requests[1].runs[0].started_at, reclaimed_at);
}

#[test]
fn reason_is_that_of_the_last_plan() {
    let report = run(&[
        (10, request("running", "ada", 8, 9_000)),
        (20, request("pending", "bob", 8, 9_000)),
        (20, request("cancelled", "bob", 8, 9_000)),
        (30, json!({"cancel": "cancelled"})),
        (40, json!({"nodeDown": "n1"})),
    ]);
    let reasons: Vec<_> = report.requests.iter().map(|request| request.reason.as_deref()).collect();
    let down = "Requires 8 gpu on one node. No matching node is schedulable.";
    let full = "Insufficient gpu: requires 8 on one node; none free.";
    assert_eq!(reasons, [None, Some(down), Some(full)]);
}

#[test]
fn fairness_counts_usage_while_servers_are_pending() {
    // Total usage is equal, but one uses everything while the other is pending.
    let report = run(&[(0, request("first", "ada", 8, 1_000)), (0, request("second", "bob", 8, 1_000))]);
    assert!((report.totals.fairness - 0.5).abs() < 0.001, "{}", report.totals.fairness);
    let report = run(&[
        (0, request("first", "ada", 4, 1_000)),
        (0, request("second", "bob", 4, 1_000)),
        (10, request("third", "bob", 4, 1_000)),
    ]);
    assert!(report.totals.fairness > 0.99, "{}", report.totals.fairness);
}

#[test]
fn run_reports_placement() {
    let report = run(&[
        (0, request("first", "ada", 6, 1_000)),
        (10, request("whole", "ada", 8, 1_000)),
        (20, request("short", "bob", 2, 100)),
    ]);
    let runs = serde_json::to_value(&report.requests).unwrap();
    let first = |index: usize| {
        let run = &runs[index]["runs"][0];
        (run["placement"].clone(), run["backfilled"].clone())
    };
    assert_eq!(first(0), (json!("emptyNode"), json!(false)));
    assert_eq!(first(2), (json!("bestFit"), json!(true)));
}

#[test]
fn pending_server_beyond_reservation_depth_has_estimate() {
    let pending = (0..20).map(|number| (number, request(&format!("r{number}"), "ada", 8, 1_000)));
    let policy = Policy { reservation_depth: 3, ..Policy::default() };
    let (report, events) = simulate_lines(&pending.collect::<Vec<_>>(), &policy);
    let estimated: Vec<_> = report.requests.iter().filter_map(|request| Some(request.eta?.p50)).collect();
    assert!(estimated.len() == 19 && estimated.is_sorted(), "{estimated:?}");
    let coverage = report.totals.eta_coverage;
    assert_eq!((coverage.estimates, coverage.without_estimate), (19, 0));
    // Recorded traces contain the outcome of each estimate.
    assert_eq!(events.iter().filter(|event| matches!(event, Event::WaitCompleted { .. })).count(), 19);
}

#[test]
fn estimate_follows_when_start_becomes_known() {
    let report = run(&[
        (0, json!({"nodeDown": "n1"})),
        (10, request("first", "ada", 8, 1_000)),
        (20, request("second", "bob", 8, 1_000)),
        (500, json!({"nodeUp": "n1"})),
    ]);
    let has_estimate: Vec<bool> = report.requests.iter().map(|request| request.eta.is_some()).collect();
    assert_eq!(has_estimate, [false, true]);
    let coverage = report.totals.eta_coverage;
    assert_eq!((coverage.estimates, coverage.without_estimate), (1, 1));
}
