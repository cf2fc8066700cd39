//! Whether promises are kept, on stays nothing was tuned with.

use std::fmt::Write as _;

use odc_core::scheduler::Policy;
use odc_core::sim::{EtaCoverage, Options, simulate};

use super::openb::Trace;
use super::workload::{Stay, Workload, made_up};

/// Fixed before anything was measured, with the loads they are played at.
const SEEDS: [(u64, i64); 10] = [
    (101, 70),
    (202, 75),
    (303, 80),
    (404, 85),
    (505, 90),
    (606, 95),
    (707, 100),
    (808, 105),
    (909, 115),
    (1_010, 120),
];
const REQUESTS: usize = 2_000;
const WARM_UP: usize = 200;

pub(super) fn measure(real: Option<&Trace>) -> anyhow::Result<String> {
    let invented = made_up();
    let (stays, of) = real.map_or((&invented, "made-up stays"), |real| (&real.later, "stays of openb's second half"));
    let mut report = format!(
        "Promises to those who had to wait, {of}, 4 nodes of 8 devices, {REQUESTS} requests, the first {WARM_UP} not \
         counted.\n\n| seed | load | promises | 50 % kept | 90 % kept |\n|--:|--:|--:|--:|--:|\n"
    );
    for (seed, load) in SEEDS {
        let kept = coverage(stays, seed, load, None)?;
        writeln!(report, "| {seed} | {load} % | {} | {} | {} |", kept.promises, share(kept.p50), share(kept.p90))?;
    }
    let kept = coverage(stays, 4_242, 100, Some(REQUESTS / 2))?;
    writeln!(
        report,
        "| 4242, people leave four times as early from the middle on | 100 % | {} | {} | {} |\n",
        kept.promises,
        share(kept.p50),
        share(kept.p90)
    )?;
    Ok(report)
}

fn coverage(stays: &[Stay], seed: u64, load: i64, shift: Option<usize>) -> anyhow::Result<EtaCoverage> {
    let workload = Workload { stays, nodes: 4, requests: REQUESTS, load, seed, shift };
    let options = Options { warm_up: WARM_UP, ..Options::default() };
    let played = simulate(&workload.trace()?, &Policy::default(), options, &mut |_| {})?;
    anyhow::ensure!(played.totals.overcommits == 0 && played.totals.promise_violations == 0, "{:?}", played.totals);
    Ok(played.totals.eta_coverage)
}

fn share(part: Option<f64>) -> String {
    part.map_or_else(|| "-".to_owned(), |part| format!("{:.1} %", part * 100.0))
}
