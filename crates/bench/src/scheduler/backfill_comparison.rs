//! The same traces without backfill, with EASY and with conservative backfill.

use std::fmt::Write as _;

use odc_core::scheduler::{Backfill, Policy};
use odc_core::sim::Options;

use super::Simulation;
use super::openb::Trace;
use super::workload::{Workload, generated_runtimes};

pub(super) fn measure(real: Option<&Trace>, all: &mut Simulation) -> anyhow::Result<String> {
    let generated = generated_runtimes();
    let (runtimes, source) = real.map_or((&generated, "generated"), |real| (&real.later, "openb's"));
    let mut report = format!(
        "4 nodes of 8 devices, 2,000 requests with {source} runtimes, mean of three seeds.\n\n\
         | load | backfill | utilization | fragmentation | mean wait | p90 of all | makespan ÷ bound |\n\
         |--:|---|--:|--:|--:|--:|--:|\n"
    );
    for load in [90, 110] {
        for (name, backfill) in [
            ("disabled (FIFO)", Backfill::Disabled),
            ("EASY", Backfill::Easy),
            ("conservative", Backfill::Conservative),
        ] {
            let policy = Policy { backfill, ..Policy::default() };
            let mut sums = [0.0_f64; 5];
            for seed in [11, 22, 33] {
                let workload = Workload { runtimes, nodes: 4, requests: 2_000, load, seed, shift: None };
                let options = Options { bare: true, ..Options::default() };
                let played = all.simulate(&workload.trace()?, &policy, options)?;
                let totals = &played.totals;
                let mut waits: Vec<i64> = played
                    .requests
                    .iter()
                    .filter_map(|request| Some(request.runs.first()?.started_at - request.queued_at))
                    .collect();
                waits.sort_unstable();
                let mean = waits.iter().sum::<i64>() / i64::try_from(waits.len())?.max(1);
                let p90 = waits.get(waits.len() * 9 / 10).copied().unwrap_or_default();
                let makespan = totals.makespan as f64 / totals.capacity_bound.max(1) as f64;
                let values = [totals.utilization, totals.fragmentation, mean as f64, p90 as f64, makespan];
                sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value / 3.0);
            }
            let [used, fragmented, mean, p90, makespan] = sums;
            let (used, fragmented, mean, p90) = (used * 100.0, fragmented * 100.0, mean / 60.0, p90 / 60.0);
            writeln!(
                report,
                "| {load} % | {name} | {used:.1} % | {fragmented:.1} % | {mean:.1} min | {p90:.1} min | {makespan:.2} |"
            )?;
        }
    }
    report.push('\n');
    Ok(report)
}
