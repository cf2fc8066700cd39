//! `devctl avail`: what is free right now, and when servers of each size would start.

mod starts;
mod watch;

use jiff::Timestamp;
use kube::ResourceExt as _;
use odc_api::queue;
use odc_api::v1alpha1::{DevServerFlavor, DevServerFlavorStatus, Schedulable};
use serde::Serialize;

use crate::app::App;
use crate::args::Avail;
use crate::failure::Result;
use crate::output::style::{DIM, GREEN, PLAIN, RED, YELLOW};
use crate::output::{Cell, Column, Table};
use crate::prospect::heard;
use crate::reserve::flavor_named;
use starts::Size;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Availability {
    pub flavor: String,
    pub free: Option<i64>,
    pub total: Option<i64>,
    /// The most that one server can have on one node now.
    pub largest_block: Option<i64>,
    pub whole_nodes_free: Option<i64>,
    pub queue_length: Option<i64>,
    /// Whether the smallest server would start now.
    pub schedulable: String,
    pub maintenance: Option<String>,
    pub spot: bool,
    /// When servers of the usual sizes would start; null if the queue cannot be asked.
    pub starts: Option<Vec<Size>>,
}

/// What the queue said of each flavor; nothing if it cannot be asked.
pub type Told = Option<Vec<queue::Availability>>;

pub async fn run(app: &App, args: Avail) -> Result<()> {
    if args.watch {
        return watch::run(app, &args).await;
    }
    let (flavors, answer) = tokio::try_join!(app.backend.flavors(), app.backend.availabilities())?;
    app.talk.step("reading flavors and asking the queue");
    let shown = chosen(&flavors, &args)?;
    let told = heard(app, answer);
    let hidden = flavors.iter().any(|flavor| flavor.spec.spot) && !args.spot && args.flavors.is_empty();
    print(app, &shown, &told)?;
    if shown.is_empty() && !app.out.structured() {
        app.talk.say("There are no flavors. An administrator makes them: devctl admin flavor apply.");
    } else if hidden && !app.out.structured() {
        app.talk.say("Spot flavors are not shown: --spot shows them.");
    }
    Ok(())
}

fn chosen<'a>(flavors: &'a [DevServerFlavor], args: &Avail) -> Result<Vec<&'a DevServerFlavor>> {
    if args.flavors.is_empty() {
        return Ok(flavors.iter().filter(|flavor| args.spot || !flavor.spec.spot).collect());
    }
    args.flavors.iter().map(|name| flavor_named(name, flavors)).collect()
}

fn print(app: &App, flavors: &[&DevServerFlavor], told: &Told) -> Result<()> {
    let views = views(flavors, told);
    if views.is_empty() && !app.out.structured() {
        return Ok(());
    }
    let names = || views.iter().map(|view| view.flavor.clone()).collect();
    app.out.show(&views, names, || table(flavors.iter().copied(), told, Timestamp::now()))
}

fn views(flavors: &[&DevServerFlavor], told: &Told) -> Vec<Availability> {
    flavors.iter().map(|flavor| view(flavor, told)).collect()
}

/// What the queue said of this flavor.
fn of<'a>(flavor: &DevServerFlavor, told: &'a Told) -> Option<&'a [queue::Size]> {
    let name = flavor.metadata.name.as_deref();
    let found = told.iter().flatten().find(|told| told.metadata.name.as_deref() == name);
    found.map(|found| found.sizes.as_slice())
}

fn view(flavor: &DevServerFlavor, told: &Told) -> Availability {
    let status = flavor.status.clone().unwrap_or_default();
    Availability {
        flavor: flavor.name_any(),
        free: status.free,
        total: status.total,
        largest_block: status.largest_block,
        whole_nodes_free: status.whole_nodes_free,
        queue_length: status.queue_length,
        schedulable: schedulable(&status).to_owned(),
        maintenance: flavor.spec.maintenance.as_ref().map(|pause| pause.message.clone()),
        spot: flavor.spec.spot,
        starts: of(flavor, told).map(|sizes| sizes.iter().map(Size::from).collect()),
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

pub fn table<'a>(flavors: impl Iterator<Item = &'a DevServerFlavor>, told: &Told, now: Timestamp) -> Table {
    let mut table = Table::new([
        Column::new("FLAVOR"),
        Column::new("GPU").spare(4),
        Column::new("FREE"),
        Column::new("TOTAL").spare(6),
        Column::new("ON ONE NODE").spare(5),
        Column::new("WHOLE NODES").wide(),
        Column::new("QUEUE").spare(1),
        Column::new("STARTS").spare(2),
        Column::new("NOTE").spare(3).elastic(),
    ]);
    for flavor in flavors {
        let status = flavor.status.clone().unwrap_or_default();
        let number = |amount: Option<i64>| amount.map_or_else(|| "?".to_owned(), |amount| amount.to_string());
        let gpus = flavor.spec.device.is_some();
        table.row([
            flavor.name_any().into(),
            device(flavor).into(),
            Cell::styled(number(status.free), colour(flavor, &status)),
            number(status.total).into(),
            if gpus { number(status.largest_block) } else { String::new() }.into(),
            if gpus { number(status.whole_nodes_free) } else { String::new() }.into(),
            number(status.queue_length).into(),
            of(flavor, told).map(|sizes| starts::words(sizes, now)).unwrap_or_default().into(),
            note(flavor, &status),
        ]);
    }
    table
}

/// Green: a whole node is free. Yellow: something is. Red: nothing.
fn colour(flavor: &DevServerFlavor, status: &DevServerFlavorStatus) -> anstyle::Style {
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
    if let Some(pause) = &flavor.spec.maintenance {
        return Cell::styled(format!("MAINTENANCE: {}", pause.message), YELLOW);
    }
    let mut notes = Vec::new();
    if flavor.spec.default {
        notes.push("default");
    }
    if flavor.spec.spot {
        notes.push("spot: can be taken away");
    }
    match status.schedulable {
        Some(Schedulable::Autoscaled) => notes.push("a node is added when needed"),
        Some(Schedulable::No) if status.free.unwrap_or(0) > 0 => notes.push("free ones are too scattered"),
        _ => {}
    }
    Cell::styled(notes.join(", "), PLAIN)
}
