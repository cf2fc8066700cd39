//! Whether promises are kept, on stays nothing was tuned with.

use std::fmt::Write as _;
use std::ops::RangeInclusive;

use odc_core::scheduler::Policy;
use odc_core::sim::{EtaCoverage, Options};

use super::Played;
use super::openb::Trace;
use super::workload::{Shift, Stay, Workload, made_up};
use crate::Report;

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
/// Goals for each held-out seed: the part of the 50 % and of the 90 % promises that is kept.
const P50: RangeInclusive<f64> = 0.40..=0.60;
const P90: RangeInclusive<f64> = 0.85..=0.95;

pub(super) fn measure(real: Option<&Trace>, played: &mut Played) -> anyhow::Result<Report> {
    let mut report = Report::default();
    writeln!(
        report.text,
        "Promises to those who had to wait, 4 nodes of 8 devices, {REQUESTS} requests, the first {WARM_UP} not counted.\n"
    )?;
    let Some(real) = real else {
        Table { of: "made-up stays", stays: &made_up(), seeds: HELD_OUT, goals: false }.add(
            &SHIFTS,
            played,
            &mut report,
        )?;
        return Ok(report);
    };
    let table = Table { of: "openb's first half, for tuning", stays: &real.earlier, seeds: TUNING, goals: false };
    table.add(&[], played, &mut report)?;
    let table = Table { of: "openb's second half, held out", stays: &real.later, seeds: HELD_OUT, goals: true };
    table.add(&SHIFTS, played, &mut report)?;
    let (short, all) = (real.later.len(), real.later_all.len());
    writeln!(
        report.text,
        "{} of the second half's {all} stays, and {} of the first half's {}, are of more than a day and left out above. \
         With them, which is no goal:\n",
        all - short,
        real.earlier_all - real.earlier.len(),
        real.earlier_all,
    )?;
    let of = "openb's second half, stays of more than a day too";
    let table = Table { of, stays: &real.later_all, seeds: HELD_OUT, goals: false };
    table.add(&[], played, &mut report)?;
    Ok(report)
}

/// Ten seeds with a load each.
struct Table<'a> {
    of: &'a str,
    stays: &'a [Stay],
    seeds: [u64; 10],
    /// Whether each seed has to keep as many promises as is promised.
    goals: bool,
}

impl Table<'_> {
    fn add(&self, shifts: &[(u64, Shift, &str)], played: &mut Played, report: &mut Report) -> anyhow::Result<()> {
        let goal = |of: &RangeInclusive<f64>| format!("goal: {:.0}-{:.0} %", of.start() * 100.0, of.end() * 100.0);
        let [p50, p90] = [&P50, &P90].map(|of| if self.goals { format!(" ({})", goal(of)) } else { String::new() });
        writeln!(
            report.text,
            "| {}: seed | load | promises | 50 % kept{p50} | 90 % kept{p90} |\n|---|--:|--:|--:|--:|",
            self.of
        )?;
        for (seed, load) in self.seeds.into_iter().zip(LOADS) {
            let kept = self.coverage(seed, load, None, played)?;
            row(report, &seed.to_string(), load, kept)?;
            for (what, part, range) in [(50, kept.p50, P50), (90, kept.p90, P90)].into_iter().filter(|_| self.goals) {
                report.goal(part.is_some_and(|part| range.contains(&part)), || {
                    format!(
                        "seed {seed}, load {load} %: {} of the {what} % promises kept, {}",
                        share(part),
                        goal(&range)
                    )
                });
            }
        }
        for (seed, shift, what) in shifts {
            let kept = self.coverage(*seed, 100, Some(*shift), played)?;
            row(report, &format!("{seed}; {what}; no goal"), 100, kept)?;
        }
        report.text.push('\n');
        Ok(())
    }

    fn coverage(&self, seed: u64, load: i64, shift: Option<Shift>, played: &mut Played) -> anyhow::Result<EtaCoverage> {
        let workload = Workload { stays: self.stays, nodes: 4, requests: REQUESTS, load, seed, shift };
        let options = Options { warm_up: WARM_UP, ..Options::default() };
        Ok(played.play(&workload.trace()?, &Policy::default(), options)?.totals.eta_coverage)
    }
}

fn row(report: &mut Report, name: &str, load: i64, kept: EtaCoverage) -> std::fmt::Result {
    writeln!(report.text, "| {name} | {load} % | {} | {} | {} |", kept.promises, share(kept.p50), share(kept.p90))
}

fn share(part: Option<f64>) -> String {
    part.map_or_else(|| "-".to_owned(), |part| format!("{:.1} %", part * 100.0))
}
