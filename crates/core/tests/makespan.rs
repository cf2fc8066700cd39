//! How well the queue fills a cluster, on one made-up trace that is the same each time: how long everything takes beside
//! what no scheduler could be below, whether anything was given twice, and whether whoever passes delays the first.

#![allow(clippy::unwrap_used, reason = "tests")]

use odc_core::scheduler::{Plan, Policy, Step};
use odc_core::sim::{Dice, Options, Report, read, simulate};
use serde_json::json;

const TEAMS: usize = 12;
const NODES: usize = 16;
/// How many a team asks for, devices and minutes of each.
const CLASSES: [(usize, i64, i64); 3] = [(35, 1, 20), (10, 4, 30), (5, 8, 40)];

/// 600 requests within ten minutes, for as much as five and a half hours of the whole cluster at most. Every third leaves
/// long before its time.
fn trace() -> String {
    let mut dice = Dice(42);
    let mut requests = Vec::new();
    for (class, (count, devices, minutes)) in CLASSES.into_iter().enumerate() {
        for number in 0..count * TEAMS {
            let team = number % TEAMS;
            let lifetime = minutes * 60;
            let actual = if dice.roll(3) == 0 { lifetime / 4 } else { lifetime };
            let request = json!({
                "id": format!("c{class}-{number}"), "user": format!("u{team}-{}", dice.roll(5)), "flavor": "h100",
                "count": devices, "lifetimeSeconds": lifetime, "actualSeconds": actual,
            });
            requests.push(json!({"t": dice.number(600), "request": request}));
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

/// Looks at plans one after the other, with no knowledge of the scheduler's own books.
#[derive(Default)]
struct Head {
    /// Who was first in the queue, and when it was to start.
    before: Option<(String, i64)>,
    passed: usize,
    delayed: Vec<String>,
}

impl Head {
    fn look(&mut self, plan: &Plan) {
        let backfilled = plan.grants.iter().filter(|grant| grant.backfilled).count();
        self.passed += backfilled;
        let first = plan.waits.iter().find(|wait| wait.position == Some(1));
        // Nobody here is extended and no node fails: if it is still the first and nobody came before it by right, only those
        // who passed could have delayed it.
        if let (Some((id, before)), Some(first)) = (&self.before, first)
            && first.id == *id
            && backfilled == plan.grants.len()
            && first.start.is_none_or(|after| after > *before)
        {
            self.delayed.push(format!("{id} was to start at {before}, now at {:?}", first.start));
        }
        self.before = first.and_then(|first| Some((first.id.clone(), first.start?)));
    }
}

fn play() -> (Report, Head) {
    let mut head = Head::default();
    let options = Options { bare: true, ..Options::default() };
    let report = simulate(&read(&trace()).unwrap(), &Policy::default(), options, &mut |step| match step {
        Step::Planned { plan, .. } => head.look(plan),
        Step::Told { .. } => {}
    });
    (report.unwrap(), head)
}

#[test]
fn a_full_cluster_is_used_nearly_as_well_as_it_could_be() {
    let (report, head) = play();
    let totals = &report.totals;
    assert_eq!(report.requests.len(), 600);
    assert!(report.requests.iter().all(|request| request.runs.len() == 1), "{totals:?}");
    assert_eq!((totals.overcommits, totals.promise_violations), (0, 0));
    // In hundredths: at most 1.15 times the bound, and never below it.
    let (took, bound) = (totals.makespan * 100, totals.capacity_bound * 100);
    assert!(took >= bound && took <= totals.capacity_bound * 115, "{took} of {bound}");
    assert!(head.passed > 0, "nobody passed, so nobody could have been delayed");
    assert_eq!(head.delayed, Vec::<String>::new());
}
