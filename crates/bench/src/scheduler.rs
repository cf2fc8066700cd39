//! Benchmarks of the scheduler without a cluster: cost per decision by cluster size, accuracy of start estimates, and
//! comparison with simpler policies on the same traces.

mod backfill_comparison;
mod eta_calibration;
mod openb;
mod placement;
mod plan_cost;
mod workload;

use std::fmt::Write as _;
use std::path::Path;

use odc_core::scheduler::Policy;
use odc_core::sim::{self, Line, Options};

use crate::Report;

/// Runs plans for callgrind and returns the number of decisions.
pub(crate) fn tune(numbers: &[&str]) -> anyhow::Result<String> {
    let [nodes, plans, pending] = numbers else {
        anyhow::bail!("expected the numbers of nodes, plans and pending servers")
    };
    let (nodes, plans, pending) = (nodes.parse()?, plans.parse()?, pending.parse()?);
    Ok(format!("{}\n", plan_cost::tune(nodes, plans, pending)?))
}

/// Returns the report of `docs/benchmarks`. Runtimes are those of the public trace, if its directory is given.
pub(crate) fn run(openb: Option<&Path>) -> anyhow::Result<Report> {
    let mut report = plan_cost::measure()?;
    let runtimes = openb.map(openb::read).transpose()?;
    let mut simulation = Simulation::default();
    report.text += &backfill_comparison::measure(runtimes.as_ref(), &mut simulation)?;
    report.append(eta_calibration::measure(runtimes.as_ref(), &mut simulation)?);
    report.append(simulation.report()?);
    if let Some(trace) = &runtimes {
        report.append(placement::measure(trace)?);
    }
    Ok(report)
}

/// Runs all traces and counts violations.
#[derive(Default)]
struct Simulation {
    traces: usize,
    overcommits: u64,
    unexplained_delays: u64,
}

impl Simulation {
    fn simulate(&mut self, trace: &[(usize, Line)], policy: &Policy, options: Options) -> anyhow::Result<sim::Report> {
        let report = sim::simulate(trace, policy, options, &mut |_| {})?;
        self.traces += 1;
        self.overcommits += report.totals.overcommits;
        self.unexplained_delays += report.totals.unexplained_delays;
        Ok(report)
    }

    fn report(&self) -> anyhow::Result<Report> {
        let Self { traces, overcommits, unexplained_delays } = self;
        let mut report = Report::default();
        writeln!(report.text, "| all {traces} traces | | goal |\n|---|--:|--:|")?;
        writeln!(report.text, "| overcommits of devices, CPU or memory | {overcommits} | 0 |")?;
        writeln!(report.text, "| delayed starts without a cause | {unexplained_delays} | 0 |\n")?;
        report.goal(*overcommits == 0, || format!("{overcommits} overcommits"));
        report.goal(*unexplained_delays == 0, || format!("{unexplained_delays} delayed starts without a cause"));
        Ok(report)
    }
}
