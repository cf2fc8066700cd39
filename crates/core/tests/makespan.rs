//! Makespan of a generated trace compared with its lower bound. Checks that capacity is never overcommitted, and that
//! backfilled servers do not delay the first one.

#![allow(clippy::unwrap_used, reason = "tests")]

use odc_core::scheduler::{Plan, Policy, TraceRecord};
use odc_core::sim::{Options, Report, Rng, read, simulate};
use serde_json::json;

const TEAMS: usize = 12;
const NODES: usize = 16;
/// Requests of each team: their number, devices and minutes.
const CLASSES: [(usize, i64, i64); 3] = [(35, 1, 20), (10, 4, 30), (5, 8, 40)];

/// Returns 600 requests within ten minutes, for at most five and a half hours of the whole cluster. A third of them end
/// early.
fn trace() -> String {
    let mut rng = Rng(42);
    let mut requests = Vec::new();
    for (class, (count, devices, minutes)) in CLASSES.into_iter().enumerate() {
        for number in 0..count * TEAMS {
            let team = number % TEAMS;
            let lifetime = minutes * 60;
            let actual = if rng.below(3) == 0 { lifetime / 4 } else { lifetime };
            let request = json!({
                "id": format!("c{class}-{number}"), "user": format!("u{team}-{}", rng.below(5)), "flavor": "h100",
                "count": devices, "lifetimeSeconds": lifetime, "actualSeconds": actual,
            });
            requests.push(json!({"t": rng.number(600), "request": request}));
        }
    }
    requests.sort_by_key(|line| line["t"].as_i64());
    let node = |node| json!({"name": format!("n{node}"), "devices": {"gpu": 8}, "cpu": 64, "memoryGi": 512});
    let mut lines: Vec<_> = (0..NODES).map(|number| json!({"t": 0, "node": node(number)})).collect();
    let flavor = json!({"name": "h100", "device": "gpu", "cpuPerDevice": 4, "memoryGiPerDevice": 32});
    lines.push(json!({"t": 0, "flavor": flavor}));
    for team in 0..TEAMS {
        lines.push(json!({"t": 0, "team": {"name": format!("t{team}")}}));
        let user = |user| json!({"name": format!("u{team}-{user}"), "team": format!("t{team}")});
        lines.extend((0..5).map(|number| json!({"t": 0, "user": user(number)})));
    }
    lines.into_iter().chain(requests).map(|line| format!("{line}\n")).collect()
}

/// Observes the first server of the queue from plan to plan.
#[derive(Default)]
struct QueueHead {
    /// Its id and planned start in the last plan.
    before: Option<(String, i64)>,
    backfilled: usize,
    delayed: Vec<String>,
}

impl QueueHead {
    fn observe(&mut self, plan: &Plan) {
        let backfilled = plan.assignments.iter().filter(|assignment| assignment.backfilled).count();
        self.backfilled += backfilled;
        let first = plan.pending.iter().find(|pending| pending.position == Some(1));
        // No server is extended and no node fails. If it is still the first and all assignments are backfilled, only these
        // could have delayed it.
        if let (Some((id, before)), Some(first)) = (&self.before, first)
            && first.id == *id
            && backfilled == plan.assignments.len()
            && first.planned_start.is_none_or(|after| after > *before)
        {
            self.delayed.push(format!("{id} was planned for {before}, now {:?}", first.planned_start));
        }
        self.before = first.and_then(|first| Some((first.id.clone(), first.planned_start?)));
    }
}

fn run() -> (Report, QueueHead) {
    let mut head = QueueHead::default();
    let options = Options { bare: true, ..Options::default() };
    let report = simulate(&read(&trace()).unwrap(), &Policy::default(), options, &mut |record| match record {
        TraceRecord::Plan { plan, .. } => head.observe(plan),
        TraceRecord::Event { .. } => {}
    });
    (report.unwrap(), head)
}

#[test]
fn makespan_is_close_to_lower_bound() {
    let (report, head) = run();
    let totals = &report.totals;
    assert_eq!(report.requests.len(), 600);
    assert!(report.requests.iter().all(|request| request.runs.len() == 1), "{totals:?}");
    assert_eq!((totals.overcommits, totals.unexplained_delays), (0, 0));
    // In hundredths: at most 1.15 times the bound, and never below it.
    let (makespan, bound) = (totals.makespan * 100, totals.capacity_bound * 100);
    assert!(makespan >= bound && makespan <= totals.capacity_bound * 115, "{makespan} of {bound}");
    assert!(head.backfilled > 0, "no server was backfilled");
    assert_eq!(head.delayed, Vec::<String>::new());
}
