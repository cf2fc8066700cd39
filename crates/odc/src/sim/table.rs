//! A report for people.

use std::collections::BTreeMap;
use std::io::{self, Write};

use odc_core::sim::{Outcome, Waits};

use super::Played;

/// A name and how its value is found.
type Row<'a> = (&'a str, &'a dyn Fn(&Played) -> String);

/// How many requests are shown of those that a change would have moved.
const SHOWN: usize = 20;

pub(super) fn write(out: &mut impl Write, played: &Played, changed: Option<&Played>) -> io::Result<()> {
    let columns: Vec<&Played> = [Some(played), changed].into_iter().flatten().collect();
    if changed.is_some() {
        writeln!(out, "{:<28}{:>16}{:>16}", "", "as it was", "what if")?;
    }
    let rows: [Row<'_>; 12] = [
        ("requests", &|played| played.report.requests.len().to_string()),
        ("that never ran", &|played| never_ran(played).to_string()),
        ("utilisation", &|played| percent(Some(played.report.totals.utilisation))),
        ("fragmentation", &|played| percent(Some(played.report.totals.fragmentation))),
        ("makespan", &|played| span(played.report.totals.makespan)),
        ("  no scheduler is below", &|played| span(played.report.totals.capacity_bound)),
        ("fairness", &|played| format!("{:.3}", played.report.totals.fairness)),
        ("promises of 50 % kept", &|played| percent(played.report.totals.eta_coverage.p50)),
        ("promises of 90 % kept", &|played| percent(played.report.totals.eta_coverage.p90)),
        ("waited without a promise", &|played| played.report.totals.eta_coverage.unpromised.to_string()),
        ("preemptions", &|played| played.report.totals.preemptions.to_string()),
        ("over-commits, broken plans", &|played| {
            let totals = &played.report.totals;
            format!("{}, {}", totals.overcommits, totals.promise_violations)
        }),
    ];
    for (name, value) in rows {
        write!(out, "{name:<28}")?;
        for column in &columns {
            write!(out, "{:>16}", value(column))?;
        }
        writeln!(out)?;
    }
    for (at, column) in columns.iter().enumerate() {
        let of = if at == 0 { "" } else { " (what if)" };
        writeln!(
            out,
            "\n{:<28}{:>8}{:>10}{:>10}{:>10}{:>10}",
            format!("waits{of}"),
            "count",
            "mean",
            "p50",
            "p90",
            "max"
        )?;
        for (class, Waits { count, mean, p50, p90, max }) in &column.report.totals.waits {
            let (mean, p50, p90, max) = (span(*mean), span(*p50), span(*p90), span(*max));
            writeln!(out, "{class:<28}{count:>8}{mean:>10}{p50:>10}{p90:>10}{max:>10}")?;
        }
    }
    if let Some(changed) = changed {
        moved(out, played, changed)?;
    }
    write!(
        out,
        "\ndecisions {}",
        columns.iter().map(|column| column.decision_hash.as_str()).collect::<Vec<_>>().join("\n          ")
    )
}

fn never_ran(played: &Played) -> usize {
    let never = |request: &&odc_core::sim::Request| request.runs.is_empty() && request.outcome == Outcome::Waiting;
    played.report.requests.iter().filter(never).count()
}

/// Who would have started at another time, those first for whom it matters most.
fn moved(out: &mut impl Write, played: &Played, changed: &Played) -> io::Result<()> {
    let starts = |played: &Played| -> BTreeMap<String, Option<i64>> {
        let of = played.report.requests.iter();
        of.map(|request| (request.id.clone(), request.runs.first().map(|run| run.started_at))).collect()
    };
    let (before, after) = (starts(played), starts(changed));
    let mut moved: Vec<_> = before
        .iter()
        .filter_map(|(id, before)| Some((id, *before, *after.get(id)?)).filter(|(_, before, after)| before != after))
        .collect();
    moved.sort_by_key(|(_, before, after)| match (before, after) {
        (Some(before), Some(after)) => -(after - before).abs(),
        _ => i64::MIN,
    });
    writeln!(out, "\n{} requests would have started at another time", moved.len())?;
    for (id, before, after) in moved.iter().take(SHOWN) {
        let time = |at: &Option<i64>| at.map_or_else(|| "never".to_owned(), |at| format!("at {at} s"));
        writeln!(out, "  {id:<26}{:>14} → {}", time(before), time(after))?;
    }
    Ok(())
}

fn percent(part: Option<f64>) -> String {
    part.map_or_else(|| "-".to_owned(), |part| format!("{:.1} %", part * 100.0))
}

/// `1 h 20 m`, as short as it can be said.
fn span(seconds: i64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, minutes) => format!("{minutes} m"),
        (0, hours, minutes) => format!("{hours} h {minutes} m"),
        (days, hours, _) => format!("{days} d {hours} h"),
    }
}
