//! Formats a report as a table.

use std::collections::BTreeMap;
use std::io::{self, Write};

use odc_core::sim::{RequestOutcome, Waits};

use super::Simulation;

/// The name of a row and its value.
type Row<'a> = (&'a str, &'a dyn Fn(&Simulation) -> String);

/// Maximum number of changed requests in the output.
const MAX_CHANGED_REQUESTS: usize = 20;

pub(super) fn write(out: &mut impl Write, simulation: &Simulation, changed: Option<&Simulation>) -> io::Result<()> {
    let columns: Vec<&Simulation> = [Some(simulation), changed].into_iter().flatten().collect();
    if changed.is_some() {
        writeln!(out, "{:<34}{:>16}{:>16}", "", "trace", "what if")?;
    }
    let rows: [Row<'_>; 12] = [
        ("requests", &|simulation| simulation.report.requests.len().to_string()),
        ("  never started", &|simulation| never_started(simulation).to_string()),
        ("utilization", &|simulation| percent(Some(simulation.report.totals.utilization))),
        ("fragmentation", &|simulation| percent(Some(simulation.report.totals.fragmentation))),
        ("makespan", &|simulation| duration(simulation.report.totals.makespan)),
        ("  lower bound", &|simulation| duration(simulation.report.totals.capacity_bound)),
        ("fairness", &|simulation| format!("{:.3}", simulation.report.totals.fairness)),
        ("started within P50", &|simulation| percent(simulation.report.totals.eta_coverage.p50)),
        ("started within P90", &|simulation| percent(simulation.report.totals.eta_coverage.p90)),
        ("waited without estimate", &|simulation| simulation.report.totals.eta_coverage.without_estimate.to_string()),
        ("preemptions", &|simulation| simulation.report.totals.preemptions.to_string()),
        ("overcommits, unexplained delays", &|simulation| {
            let totals = &simulation.report.totals;
            format!("{}, {}", totals.overcommits, totals.unexplained_delays)
        }),
    ];
    for (name, value) in rows {
        write!(out, "{name:<34}")?;
        for column in &columns {
            write!(out, "{:>16}", value(column))?;
        }
        writeln!(out)?;
    }
    for (index, column) in columns.iter().enumerate() {
        let suffix = if index == 0 { "" } else { " (what if)" };
        writeln!(
            out,
            "\n{:<34}{:>8}{:>10}{:>10}{:>10}{:>10}",
            format!("waits{suffix}"),
            "count",
            "mean",
            "p50",
            "p90",
            "max"
        )?;
        for (class, Waits { count, mean, p50, p90, max }) in &column.report.totals.waits {
            let (mean, p50, p90, max) = (duration(*mean), duration(*p50), duration(*p90), duration(*max));
            writeln!(out, "{class:<34}{count:>8}{mean:>10}{p50:>10}{p90:>10}{max:>10}")?;
        }
    }
    if let Some(changed) = changed {
        changed_starts(out, simulation, changed)?;
    }
    write!(
        out,
        "\ndecisions {}",
        columns.iter().map(|column| column.decision_hash.as_str()).collect::<Vec<_>>().join("\n          ")
    )
}

fn never_started(simulation: &Simulation) -> usize {
    let is_pending =
        |request: &&odc_core::sim::Request| request.runs.is_empty() && request.outcome == RequestOutcome::Pending;
    simulation.report.requests.iter().filter(is_pending).count()
}

/// Lists requests with another start, largest difference first.
fn changed_starts(out: &mut impl Write, simulation: &Simulation, changed: &Simulation) -> io::Result<()> {
    let starts = |simulation: &Simulation| -> BTreeMap<String, Option<i64>> {
        let requests = simulation.report.requests.iter();
        requests.map(|request| (request.id.clone(), request.runs.first().map(|run| run.started_at))).collect()
    };
    let (before, after) = (starts(simulation), starts(changed));
    let mut differences: Vec<_> = before
        .iter()
        .filter_map(|(id, before)| Some((id, *before, *after.get(id)?)).filter(|(_, before, after)| before != after))
        .collect();
    differences.sort_by_key(|(_, before, after)| match (before, after) {
        (Some(before), Some(after)) => -(after - before).abs(),
        _ => i64::MIN,
    });
    writeln!(out, "\n{} requests start at another time", differences.len())?;
    for (id, before, after) in differences.iter().take(MAX_CHANGED_REQUESTS) {
        let time = |start: &Option<i64>| start.map_or_else(|| "never".to_owned(), |start| format!("at {start}s"));
        writeln!(out, "  {id:<26}{:>14} → {}", time(before), time(after))?;
    }
    Ok(())
}

fn percent(part: Option<f64>) -> String {
    part.map_or_else(|| "-".to_owned(), |part| format!("{:.1} %", part * 100.0))
}

/// Formats `45s`, `5m`, `1h`, `1h20m`, `2d` or `2d3h`.
fn duration(seconds: i64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, minutes) => format!("{minutes}m"),
        (0, hours, 0) => format!("{hours}h"),
        (0, hours, minutes) => format!("{hours}h{minutes}m"),
        (days, 0, _) => format!("{days}d"),
        (days, hours, _) => format!("{days}d{hours}h"),
    }
}
