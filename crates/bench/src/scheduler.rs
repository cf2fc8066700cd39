//! The scheduler alone, without a cluster: what a decision costs by the size of the cluster, whether its promises are
//! kept, and how it does beside plainer ones on the same traces. Nothing here needs more than this process.

mod compare;
mod eta;
mod kernel;
mod openb;
mod placement;
mod workload;

use std::fmt::Write as _;
use std::path::Path;

use odc_core::scheduler::Policy;
use odc_core::sim::{self, Line, Options};

use crate::Report;

/// Some plans for so many nodes and nothing else, for callgrind to count: prints how many decisions they were.
pub(crate) fn rehearse(numbers: &[&str]) -> anyhow::Result<String> {
    let [nodes, plans, pending] = numbers else { anyhow::bail!("say how many nodes, plans and servers that wait") };
    let (nodes, plans, pending) = (nodes.parse()?, plans.parse()?, pending.parse()?);
    Ok(format!("{}\n", kernel::rehearse(nodes, plans, pending)?))
}

/// As it stands in `docs/scheduling.md`. Real stays are read from the public trace, if its directory is given.
pub(crate) fn run(openb: Option<&Path>) -> anyhow::Result<Report> {
    let mut report = kernel::measure()?;
    let stays = openb.map(openb::read).transpose()?;
    let mut played = Played::default();
    report.text += &compare::measure(stays.as_ref(), &mut played)?;
    report.append(eta::measure(stays.as_ref(), &mut played)?);
    report.append(played.report()?);
    if let Some(stays) = &stays {
        report.append(placement::measure(stays)?);
    }
    Ok(report)
}

/// What must never happen, counted over all traces that were played.
#[derive(Default)]
struct Played {
    traces: usize,
    overcommits: u64,
    violations: u64,
}

impl Played {
    fn play(&mut self, trace: &[(usize, Line)], policy: &Policy, options: Options) -> anyhow::Result<sim::Report> {
        let played = sim::simulate(trace, policy, options, &mut |_| {})?;
        self.traces += 1;
        self.overcommits += played.totals.overcommits;
        self.violations += played.totals.promise_violations;
        Ok(played)
    }

    fn report(&self) -> anyhow::Result<Report> {
        let Self { traces, overcommits, violations } = self;
        let mut report = Report::default();
        writeln!(report.text, "| in all {traces} traces | | goal |\n|---|--:|--:|")?;
        writeln!(report.text, "| devices, CPU or memory given twice | {overcommits} | 0 |")?;
        writeln!(report.text, "| planned starts that moved for no cause | {violations} | 0 |\n")?;
        report.goal(*overcommits == 0, || format!("something was given twice, {overcommits} times"));
        report.goal(*violations == 0, || format!("{violations} planned starts moved for no cause"));
        Ok(report)
    }
}
