//! How well the queue keeps what it says: of all waits that ended, how many ended by the time that was expected first.

use odc_api::queue::{Calibration, Queue};
use serde::Serialize;

use crate::app::App;
use crate::args::Format;
use crate::failure::{Failure, Result};
use crate::output::{Column, Table};

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct View {
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

/// Shares are null where there is nothing to count.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Coverage {
    promises: u64,
    kept_p50: u64,
    kept_p90: u64,
    /// In whole percent; 50 is right.
    percent_p50: Option<u64>,
    /// In whole percent; 90 is right.
    percent_p90: Option<u64>,
}

pub(super) async fn run(app: &App) -> Result<()> {
    let queues = app.backend.queues().await?.map_err(|silence| {
        Failure::failed(format!("the queue cannot be asked: {}", silence.0))
            .advise("How well it keeps its promises only the queue itself knows: try again, or ask your administrator.")
    })?;
    app.talk.step("asking the queue");
    let view = view(&queues);
    match app.out.format {
        Format::Json => app.out.json(&view),
        Format::Yaml => app.out.yaml(&view),
        Format::Name => app.out.lines(view.flavors.into_iter().map(|flavor| flavor.flavor).collect()),
        Format::Table | Format::Wide => app.out.table(&table(&view)),
    }
}

fn view(queues: &[Queue]) -> View {
    let sum = queues.iter().fold(Calibration::default(), |sum, queue| Calibration {
        promises: sum.promises + queue.calibration.promises,
        kept_p50: sum.kept_p50 + queue.calibration.kept_p50,
        kept_p90: sum.kept_p90 + queue.calibration.kept_p90,
    });
    let flavor = |queue: &Queue| Flavor {
        flavor: queue.metadata.name.clone().unwrap_or_default(),
        coverage: Coverage::from(queue.calibration),
    };
    View { all: Coverage::from(sum), flavors: queues.iter().map(flavor).collect() }
}

impl From<Calibration> for Coverage {
    fn from(of: Calibration) -> Self {
        let percent = |kept: u64| (of.promises > 0).then(|| (kept * 100 + of.promises / 2) / of.promises.max(1));
        Self {
            promises: of.promises,
            kept_p50: of.kept_p50,
            kept_p90: of.kept_p90,
            percent_p50: percent(of.kept_p50),
            percent_p90: percent(of.kept_p90),
        }
    }
}

fn table(view: &View) -> Table {
    let mut table =
        Table::new([Column::new("FLAVOR"), Column::new("WAITS"), Column::new("50 % KEPT"), Column::new("90 % KEPT")]);
    let mut row = |name: &str, kept: &Coverage| {
        let share = |count: u64, percent: Option<u64>| {
            percent.map_or_else(|| "no data yet".to_owned(), |percent| format!("{percent} % ({count})"))
        };
        table.row([
            name.into(),
            kept.promises.to_string().into(),
            share(kept.kept_p50, kept.percent_p50).into(),
            share(kept.kept_p90, kept.percent_p90).into(),
        ]);
    };
    for flavor in &view.flavors {
        row(&flavor.flavor, &flavor.coverage);
    }
    row("all", &view.all);
    table
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn shares_are_of_what_was_promised_and_nothing_where_nothing_was() {
        let queues: Vec<Queue> = serde_json::from_value(json!([
            {"metadata": {"name": "cpu"}},
            {"metadata": {"name": "h100"}, "calibration": {"promises": 40, "keptP50": 22, "keptP90": 37}},
        ]))
        .unwrap();
        let text = table(&view(&queues)).render(false, true, None);
        let plain = anstream::adapter::strip_str(&text).to_string();
        assert_eq!(
            plain,
            "FLAVOR   WAITS   50 % KEPT     90 % KEPT\n\
             cpu      0       no data yet   no data yet\n\
             h100     40      55 % (22)     93 % (37)\n\
             all      40      55 % (22)     93 % (37)\n"
        );
    }
}
