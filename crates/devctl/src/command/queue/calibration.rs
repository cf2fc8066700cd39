//! `devctl queue --calibration`: the share of servers that started by their first estimate.

use odc_api::queue::{EtaCalibration, Queue};
use serde::Serialize;

use crate::cli::Format;
use crate::context::ClusterContext;
use crate::error::{Error, Result};
use crate::output::{Column, Table};

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct CalibrationJson {
    all: Coverage,
    flavors: Vec<Flavor>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Flavor {
    flavor: String,
    #[serde(flatten)]
    coverage: Coverage,
}

/// Percentages are null without data.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Coverage {
    estimates: u64,
    within_p50: u64,
    within_p90: u64,
    /// Should be close to 50.
    percent_p50: Option<u64>,
    /// Should be close to 90.
    percent_p90: Option<u64>,
}

pub(super) async fn run(ctx: &ClusterContext) -> Result<()> {
    let queues = ctx.client.queues().await?.map_err(|reason| {
        Error::failed(format!("queue API unavailable: {}", reason.0)).with_hint("try again, or ask your administrator")
    })?;
    ctx.ui.trace_step("querying the queue");
    let calibration = summarize(&queues);
    match ctx.out.format {
        Format::Json => ctx.out.json(&calibration),
        Format::Yaml => ctx.out.yaml(&calibration),
        Format::Name => ctx.out.lines(calibration.flavors.into_iter().map(|flavor| flavor.flavor).collect()),
        Format::Table | Format::Wide => ctx.out.table(&table(&calibration)),
    }
}

fn summarize(queues: &[Queue]) -> CalibrationJson {
    let sum = queues.iter().fold(EtaCalibration::default(), |sum, queue| EtaCalibration {
        estimates: sum.estimates + queue.calibration.estimates,
        within_p50: sum.within_p50 + queue.calibration.within_p50,
        within_p90: sum.within_p90 + queue.calibration.within_p90,
    });
    let flavor = |queue: &Queue| Flavor {
        flavor: queue.metadata.name.clone().unwrap_or_default(),
        coverage: Coverage::from(queue.calibration),
    };
    CalibrationJson { all: Coverage::from(sum), flavors: queues.iter().map(flavor).collect() }
}

impl From<EtaCalibration> for Coverage {
    fn from(counts: EtaCalibration) -> Self {
        let percent =
            |kept: u64| (counts.estimates > 0).then(|| (kept * 100 + counts.estimates / 2) / counts.estimates.max(1));
        Self {
            estimates: counts.estimates,
            within_p50: counts.within_p50,
            within_p90: counts.within_p90,
            percent_p50: percent(counts.within_p50),
            percent_p90: percent(counts.within_p90),
        }
    }
}

fn table(calibration: &CalibrationJson) -> Table {
    let mut table =
        Table::new([Column::new("FLAVOR"), Column::new("STARTS"), Column::new("BY P50"), Column::new("BY P90")]);
    let mut row = |name: &str, coverage: &Coverage| {
        let share = |count: u64, percent: Option<u64>| {
            percent.map_or_else(|| "no data".to_owned(), |percent| format!("{percent}% ({count})"))
        };
        table.row([
            name.into(),
            coverage.estimates.to_string().into(),
            share(coverage.within_p50, coverage.percent_p50).into(),
            share(coverage.within_p90, coverage.percent_p90).into(),
        ]);
    };
    for flavor in &calibration.flavors {
        row(&flavor.flavor, &flavor.coverage);
    }
    row("all", &calibration.all);
    table
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn percentages_are_of_all_estimates() {
        let queues: Vec<Queue> = serde_json::from_value(json!([
            {"metadata": {"name": "cpu"}},
            {"metadata": {"name": "h100"}, "calibration": {"estimates": 40, "withinP50": 22, "withinP90": 37}},
        ]))
        .unwrap();
        let text = table(&summarize(&queues)).render(false, true, None);
        let plain = anstream::adapter::strip_str(&text).to_string();
        assert_eq!(
            plain,
            "FLAVOR   STARTS   BY P50     BY P90\n\
             cpu      0        no data    no data\n\
             h100     40       55% (22)   93% (37)\n\
             all      40       55% (22)   93% (37)\n"
        );
    }
}
