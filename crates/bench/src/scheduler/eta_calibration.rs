//! Accuracy of start estimates, on runtimes that were not used for tuning.

use std::fmt::Write as _;
use std::ops::RangeInclusive;

use odc_core::scheduler::Policy;
use odc_core::sim::{EtaCoverage, Options};

use super::Simulation;
use super::openb::Trace;
use super::workload::{Runtime, Shift, Workload, generated_runtimes};
use crate::Report;

/// In percent of the capacity, each with its own seed.
const LOADS: [i64; 10] = [70, 75, 80, 85, 90, 95, 100, 105, 115, 120];
/// For the half of the runtimes that constants are tuned with.
const TUNING: [u64; 10] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10];
/// For the other half. They must not be used for tuning.
const HELD_OUT: [u64; 10] = [11, 23, 37, 41, 59, 61, 73, 89, 97, 103];
const SHIFTS: [(u64, Shift, &str); 2] = [
    (113, Shift::ShorterRuns, "second half: a quarter of the runtime, four times as many requests"),
    (127, Shift::FullLifetime, "second half: all servers run for their lifetime"),
];
const REQUESTS: usize = 2_000;
const WARM_UP: usize = 200;
/// Goals for each held-out seed: the part of requests that start within P50 and within P90.
const P50_COVERAGE_GOAL: RangeInclusive<f64> = 0.40..=0.60;
const P90_COVERAGE_GOAL: RangeInclusive<f64> = 0.85..=0.95;

pub(super) fn measure(real: Option<&Trace>, simulation: &mut Simulation) -> anyhow::Result<Report> {
    let mut report = Report::default();
    writeln!(
        report.text,
        "Estimates of requests that had to wait, 4 nodes of 8 devices, {REQUESTS} requests, the first {WARM_UP} not counted.\n"
    )?;
    let Some(real) = real else {
        Table { source: "generated runtimes", runtimes: &generated_runtimes(), seeds: HELD_OUT, goals: false }.add(
            &SHIFTS,
            simulation,
            &mut report,
        )?;
        return Ok(report);
    };
    let table =
        Table { source: "openb's first half, for tuning", runtimes: &real.earlier, seeds: TUNING, goals: false };
    table.add(&[], simulation, &mut report)?;
    let table = Table { source: "openb's second half, held out", runtimes: &real.later, seeds: HELD_OUT, goals: true };
    table.add(&SHIFTS, simulation, &mut report)?;
    let (short, all) = (real.later.len(), real.later_all.len());
    writeln!(
        report.text,
        "{} of the second half's {all} runtimes, and {} of the first half's {}, are longer than a day and excluded above. \
         With them, without a goal:\n",
        all - short,
        real.earlier_all - real.earlier.len(),
        real.earlier_all,
    )?;
    let source = "openb's second half, including runtimes of more than a day";
    let table = Table { source, runtimes: &real.later_all, seeds: HELD_OUT, goals: false };
    table.add(&[], simulation, &mut report)?;
    Ok(report)
}

/// Ten seeds with a load each.
struct Table<'a> {
    source: &'a str,
    runtimes: &'a [Runtime],
    seeds: [u64; 10],
    /// Whether the goals apply to each seed.
    goals: bool,
}

impl Table<'_> {
    fn add(
        &self,
        shifts: &[(u64, Shift, &str)],
        simulation: &mut Simulation,
        report: &mut Report,
    ) -> anyhow::Result<()> {
        let goal =
            |range: &RangeInclusive<f64>| format!("goal: {:.0}-{:.0} %", range.start() * 100.0, range.end() * 100.0);
        let header = |range| if self.goals { format!(" ({})", goal(range)) } else { String::new() };
        let [p50, p90] = [&P50_COVERAGE_GOAL, &P90_COVERAGE_GOAL].map(header);
        writeln!(
            report.text,
            "| {}: seed | load | estimates | within P50{p50} | within P90{p90} |\n|---|--:|--:|--:|--:|",
            self.source
        )?;
        for (seed, load) in self.seeds.into_iter().zip(LOADS) {
            let coverage = self.coverage(seed, load, None, simulation)?;
            row(report, &seed.to_string(), load, coverage)?;
            for (quantile, part, range) in
                [(50, coverage.p50, P50_COVERAGE_GOAL), (90, coverage.p90, P90_COVERAGE_GOAL)]
                    .into_iter()
                    .filter(|_| self.goals)
            {
                report.goal(part.is_some_and(|part| range.contains(&part)), || {
                    format!("seed {seed}, load {load} %: {} within P{quantile}, {}", share(part), goal(&range))
                });
            }
        }
        for (seed, shift, description) in shifts {
            let coverage = self.coverage(*seed, 100, Some(*shift), simulation)?;
            row(report, &format!("{seed}; {description}; no goal"), 100, coverage)?;
        }
        report.text.push('\n');
        Ok(())
    }

    fn coverage(
        &self,
        seed: u64,
        load: i64,
        shift: Option<Shift>,
        simulation: &mut Simulation,
    ) -> anyhow::Result<EtaCoverage> {
        let workload = Workload { runtimes: self.runtimes, nodes: 4, requests: REQUESTS, load, seed, shift };
        let options = Options { warm_up: WARM_UP, ..Options::default() };
        Ok(simulation.simulate(&workload.trace()?, &Policy::default(), options)?.totals.eta_coverage)
    }
}

fn row(report: &mut Report, name: &str, load: i64, coverage: EtaCoverage) -> std::fmt::Result {
    writeln!(
        report.text,
        "| {name} | {load} % | {} | {} | {} |",
        coverage.estimates,
        share(coverage.p50),
        share(coverage.p90)
    )
}

fn share(part: Option<f64>) -> String {
    part.map_or_else(|| "-".to_owned(), |part| format!("{:.1} %", part * 100.0))
}
