//! `devctl avail`: free capacity and expected start times.

mod starts;

use clap::Args;
use jiff::Timestamp;
use kube::ResourceExt as _;
use odc_api::queue;
use odc_api::v1alpha1::{DevServerFlavor, DevServerFlavorStatus, Schedulable};
use serde::Serialize;

use crate::cli::shared::WatchArgs;
use crate::clock;
use crate::context::ClusterContext;
use crate::error::Result;
use crate::live_view::{self, Screen, Sources, View, Watched};
use crate::model::queue::{fetch_or_warn, ok_or_warn};
use crate::output::style::{DIM, GREEN, PLAIN, RED, YELLOW};
use crate::output::{Cell, Column, Table};
use crate::request::find_flavor;
use starts::SizeJson;

#[derive(Args, Debug)]
pub struct AvailArgs {
    /// Only these flavors
    #[arg(value_name = "FLAVOR", add = clap_complete::ArgValueCompleter::new(crate::completion::flavor))]
    pub flavors: Vec<String>,
    /// Include spot flavors, whose nodes can be reclaimed at any time
    #[arg(long)]
    pub spot: bool,
    #[command(flatten)]
    pub watch: WatchArgs,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AvailabilityJson {
    pub flavor: String,
    pub free: Option<i64>,
    pub total: Option<i64>,
    /// The most devices that one server can have on one node now.
    pub largest_block: Option<i64>,
    pub whole_nodes_free: Option<i64>,
    pub queue_length: Option<i64>,
    /// Whether the smallest server would start now.
    pub schedulable: String,
    pub maintenance: Option<String>,
    pub spot: bool,
    /// The expected starts of the common sizes; null if the queue API is unavailable.
    pub starts: Option<Vec<SizeJson>>,
}

/// The start times from the queue API, if it is available.
pub type AvailabilityData = Option<Vec<queue::Availability>>;

pub async fn run(ctx: &ClusterContext, args: AvailArgs) -> Result<()> {
    if args.watch.watch {
        let mut view = AvailView { ctx, args: &args, screen: Screen::default() };
        return live_view::run(ctx, Sources { servers: None, flavors: true }, &mut view).await;
    }
    let (flavors, response) = tokio::try_join!(ctx.client.flavors(), ctx.client.availabilities())?;
    ctx.ui.trace_step("reading flavors and querying the queue");
    let selected = select(&flavors, &args)?;
    let availability = ok_or_warn(ctx, response);
    let hidden = flavors.iter().any(|flavor| flavor.spec.spot) && !args.spot && args.flavors.is_empty();
    let rows = to_json_all(&selected, &availability);
    if !rows.is_empty() || ctx.out.structured() {
        let table = || table(selected.iter().copied(), &availability, clock::now());
        ctx.out.show(&rows, || names(&rows), table)?;
    }
    if selected.is_empty() && !ctx.out.structured() {
        ctx.ui.info("No flavors found. An administrator creates them with `devctl admin flavor apply`.");
    } else if hidden && !ctx.out.structured() {
        ctx.ui.note("spot flavors are hidden; pass `--spot` to include them");
    }
    Ok(())
}

struct AvailView<'a> {
    ctx: &'a ClusterContext,
    args: &'a AvailArgs,
    screen: Screen,
}

impl View for AvailView<'_> {
    type Data = AvailabilityData;

    async fn fetch(&self) -> Result<AvailabilityData> {
        fetch_or_warn(self.ctx, self.ctx.client.availabilities()).await
    }

    fn render(&mut self, watched: &Watched, availability: &AvailabilityData) -> Result<()> {
        let flavors = watched.flavors.as_deref().unwrap_or_default();
        let selected = select(flavors, self.args)?;
        let rows = to_json_all(&selected, availability);
        let out = &self.ctx.out;
        let text = || out.render(&table(selected.iter().copied(), availability, clock::now()));
        self.screen.show(out, &rows, || names(&rows), text)
    }
}

fn select<'a>(flavors: &'a [DevServerFlavor], args: &AvailArgs) -> Result<Vec<&'a DevServerFlavor>> {
    if args.flavors.is_empty() {
        return Ok(flavors.iter().filter(|flavor| args.spot || !flavor.spec.spot).collect());
    }
    args.flavors.iter().map(|name| find_flavor(name, flavors)).collect()
}

fn names(rows: &[AvailabilityJson]) -> Vec<String> {
    rows.iter().map(|row| row.flavor.clone()).collect()
}

fn to_json_all(flavors: &[&DevServerFlavor], availability: &AvailabilityData) -> Vec<AvailabilityJson> {
    flavors.iter().map(|flavor| to_json(flavor, availability)).collect()
}

/// Returns the start times of a flavor.
fn sizes<'a>(flavor: &DevServerFlavor, availability: &'a AvailabilityData) -> Option<&'a [queue::AvailableSize]> {
    let name = flavor.metadata.name.as_deref();
    let entry = availability.iter().flatten().find(|entry| entry.metadata.name.as_deref() == name);
    entry.map(|entry| entry.sizes.as_slice())
}

fn to_json(flavor: &DevServerFlavor, availability: &AvailabilityData) -> AvailabilityJson {
    let status = flavor.status.clone().unwrap_or_default();
    AvailabilityJson {
        flavor: flavor.name_any(),
        free: status.free,
        total: status.total,
        largest_block: status.largest_block,
        whole_nodes_free: status.whole_nodes_free,
        queue_length: status.queue_length,
        schedulable: schedulable(&status).to_owned(),
        maintenance: flavor.spec.maintenance.as_ref().map(|maintenance| maintenance.message.clone()),
        spot: flavor.spec.spot,
        starts: sizes(flavor, availability).map(|sizes| sizes.iter().map(SizeJson::from).collect()),
    }
}

pub fn schedulable(status: &DevServerFlavorStatus) -> &'static str {
    match status.schedulable {
        Some(Schedulable::Yes) => "Yes",
        Some(Schedulable::No) => "No",
        Some(Schedulable::Autoscaled) => "Autoscaled",
        Some(Schedulable::Unknown) | None => "Unknown",
    }
}

pub fn table<'a>(
    flavors: impl Iterator<Item = &'a DevServerFlavor>,
    availability: &AvailabilityData,
    now: Timestamp,
) -> Table {
    let mut table = Table::new([
        Column::new("FLAVOR"),
        Column::new("GPU").drop_priority(4),
        Column::new("FREE"),
        Column::new("TOTAL").drop_priority(6),
        Column::new("MAX PER NODE").drop_priority(5),
        Column::new("FREE NODES").wide(),
        Column::new("QUEUE").drop_priority(1),
        Column::new("STARTS").drop_priority(2),
        Column::new("NOTE").drop_priority(3).truncate(),
    ]);
    for flavor in flavors {
        let status = flavor.status.clone().unwrap_or_default();
        let number = |amount: Option<i64>| amount.map_or_else(|| "?".to_owned(), |amount| amount.to_string());
        let has_gpus = flavor.spec.device.is_some();
        table.row([
            flavor.name_any().into(),
            device(flavor).into(),
            Cell::styled(number(status.free), free_style(flavor, &status)),
            number(status.total).into(),
            if has_gpus { number(status.largest_block) } else { String::new() }.into(),
            if has_gpus { number(status.whole_nodes_free) } else { String::new() }.into(),
            number(status.queue_length).into(),
            sizes(flavor, availability).map(|sizes| starts::format_starts(sizes, now)).unwrap_or_default().into(),
            note(flavor, &status),
        ]);
    }
    table
}

/// Green if a whole node is free, yellow if less is, red if nothing is.
fn free_style(flavor: &DevServerFlavor, status: &DevServerFlavorStatus) -> anstyle::Style {
    match (status.free.unwrap_or(0), status.whole_nodes_free.unwrap_or(0), &flavor.spec.device) {
        _ if flavor.spec.maintenance.is_some() => DIM,
        (0, _, _) => RED,
        (_, 0, Some(_)) => YELLOW,
        _ => GREEN,
    }
}

pub fn device(flavor: &DevServerFlavor) -> String {
    let Some(device) = &flavor.spec.device else { return String::new() };
    let model = device.model.as_ref().map_or_else(|| device.resource.clone(), ToString::to_string);
    device.memory.map_or_else(|| model.clone(), |memory| format!("{model} {memory}"))
}

fn note(flavor: &DevServerFlavor, status: &DevServerFlavorStatus) -> Cell {
    if let Some(maintenance) = &flavor.spec.maintenance {
        return Cell::styled(format!("maintenance: {}", maintenance.message), YELLOW);
    }
    let mut notes = Vec::new();
    if flavor.spec.default {
        notes.push("default");
    }
    if flavor.spec.spot {
        notes.push("spot");
    }
    match status.schedulable {
        Some(Schedulable::Autoscaled) => notes.push("autoscaled"),
        Some(Schedulable::No) if status.free.unwrap_or(0) > 0 => notes.push("fragmented"),
        _ => {}
    }
    Cell::styled(notes.join(", "), PLAIN)
}
