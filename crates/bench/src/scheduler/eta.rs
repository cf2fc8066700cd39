//! Whether promises are kept, on stays nothing was tuned with.

use std::fmt::Write as _;

use odc_core::scheduler::Policy;
use odc_core::sim::{EtaCoverage, Options, simulate};

use super::openb::Trace;
use super::workload::{Shift, Stay, Workload, made_up};

/// In hundredths of what there is, each played with a seed of its own.
const LOADS: [i64; 10] = [70, 75, 80, 85, 90, 95, 100, 105, 115, 120];
/// For the half of the stays that constants are tuned with.
const TUNING: [u64; 10] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10];
/// For the other half. Fixed before they were played; whoever tunes with them takes others.
const HELD_OUT: [u64; 10] = [11, 23, 37, 41, 59, 61, 73, 89, 97, 103];
const SHIFTS: [(u64, Shift, &str); 2] = [
    (113, Shift::LeaveEarly, "from the middle on people leave four times as early, and four times as many come"),
    (127, Shift::StayToTheEnd, "from the middle on people stay to the end"),
];
const REQUESTS: usize = 2_000;
const WARM_UP: usize = 200;

pub(super) fn measure(real: Option<&Trace>) -> anyhow::Result<String> {
    let mut report = format!(
        "Promises to those who had to wait, 4 nodes of 8 devices, {REQUESTS} requests, the first {WARM_UP} not counted.\n\n"
    );
    if let Some(real) = real {
        report += &table("openb's first half, for tuning", &real.earlier, TUNING, &[])?;
        report += &table("openb's second half, held out", &real.later, HELD_OUT, &SHIFTS)?;
    } else {
        report += &table("made-up stays", &made_up(), HELD_OUT, &SHIFTS)?;
    }
    Ok(report)
}

fn table(of: &str, stays: &[Stay], seeds: [u64; 10], shifts: &[(u64, Shift, &str)]) -> anyhow::Result<String> {
    let mut table = format!("| {of}: seed | load | promises | 50 % kept | 90 % kept |\n|---|--:|--:|--:|--:|\n");
    let mut row = |name: &str, load: i64, kept: EtaCoverage| {
        writeln!(table, "| {name} | {load} % | {} | {} | {} |", kept.promises, share(kept.p50), share(kept.p90))
    };
    for (seed, load) in seeds.into_iter().zip(LOADS) {
        row(&seed.to_string(), load, coverage(stays, seed, load, None)?)?;
    }
    for (seed, shift, what) in shifts {
        row(&format!("{seed}; {what}"), 100, coverage(stays, *seed, 100, Some(*shift))?)?;
    }
    table.push('\n');
    Ok(table)
}

fn coverage(stays: &[Stay], seed: u64, load: i64, shift: Option<Shift>) -> anyhow::Result<EtaCoverage> {
    let workload = Workload { stays, nodes: 4, requests: REQUESTS, load, seed, shift };
    let options = Options { warm_up: WARM_UP, ..Options::default() };
    let played = simulate(&workload.trace()?, &Policy::default(), options, &mut |_| {})?;
    anyhow::ensure!(played.totals.overcommits == 0 && played.totals.promise_violations == 0, "{:?}", played.totals);
    Ok(played.totals.eta_coverage)
}

fn share(part: Option<f64>) -> String {
    part.map_or_else(|| "-".to_owned(), |part| format!("{:.1} %", part * 100.0))
}
