//! `devctl status`: how full the cluster is, and what you hold of it.

use std::collections::BTreeMap;

use futures_util::StreamExt as _;
use kube::ResourceExt as _;
use odc_api::v1alpha1::{DevServerFlavor, Phase};
use serde::Serialize;

use crate::app::App;
use crate::args::{Format, Status};
use crate::backend::{Change, Scope};
use crate::failure::Result;
use crate::find;
use crate::glance::Glance;
use crate::known::Known;
use crate::output::live::Live;
use crate::output::{Column, Table};

#[derive(PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct View {
    context: String,
    namespace: String,
    /// Of all flavors with devices.
    gpus: Amount,
    /// How many servers of everybody wait.
    queue_length: i64,
    /// Your servers, by phase.
    servers: BTreeMap<String, usize>,
    /// Devices your running servers hold.
    gpus_held: u32,
    flavors: Vec<Part>,
}

#[derive(Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Amount {
    total: i64,
    free: i64,
    used: i64,
}

#[derive(PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Part {
    name: String,
    total: i64,
    free: i64,
    used: i64,
    queue_length: i64,
    held: u32,
}

pub async fn run(app: &App, args: Status) -> Result<()> {
    if args.watch {
        return watch(app).await;
    }
    let (flavors, servers) = tokio::try_join!(app.backend.flavors(), find::all(app))?;
    app.talk.step("reading flavors and servers");
    print(app, &view(app, &flavors, &servers))
}

fn print(app: &App, view: &View) -> Result<()> {
    match app.out.format {
        Format::Json => app.out.json(view),
        Format::Yaml => app.out.yaml(view),
        Format::Name => app.out.lines(view.flavors.iter().map(|part| part.name.clone()).collect()),
        Format::Table | Format::Wide => app.out.print(&text(app, view)),
    }
}

async fn watch(app: &App) -> Result<()> {
    let mut of_flavors = app.backend.watch_flavors();
    let mut of_servers = app.backend.watch(Scope::Own, None);
    let (mut flavors, mut known, mut live) = (None, Known::default(), Live::default());
    let mut shown = None;
    loop {
        tokio::select! {
            all = of_flavors.next() => match all {
                Some(all) => flavors = Some(all?),
                None => return Ok(()),
            },
            change = of_servers.next() => match change {
                Some(Ok(Change::Interrupted(why))) => app.talk.verbose(|| format!("The connection is made anew: {why}")),
                Some(change) => known.take(change?),
                None => return Ok(()),
            },
        }
        let (Some(flavors), Some(servers)) = (&flavors, known.complete()) else { continue };
        let new = view(app, flavors, servers.values());
        if shown.as_ref() == Some(&new) {
            continue;
        }
        match app.out.format {
            Format::Json | Format::Yaml => app.out.one_of_many(&new)?,
            Format::Name => print(app, &new)?,
            Format::Table | Format::Wide => live.show(&app.out, &text(app, &new))?,
        }
        shown = Some(new);
    }
}

fn view<'a>(app: &App, flavors: &[DevServerFlavor], servers: impl IntoIterator<Item = &'a Glance>) -> View {
    let servers: Vec<&Glance> = servers.into_iter().collect();
    let holds = |server: &&&Glance| {
        matches!(server.phase(), Some(Phase::Starting | Phase::Running | Phase::Hibernating | Phase::Stopping))
    };
    let held = |flavor: Option<&str>| -> u32 {
        let mine = servers.iter().filter(holds).filter(|server| flavor.is_none() || server.flavor() == flavor);
        mine.map(|server| server.spec.count.unwrap_or(0) * server.nodes()).sum()
    };
    let mut gpus = Amount::default();
    let mut parts = Vec::new();
    for flavor in flavors {
        let status = flavor.status.clone().unwrap_or_default();
        // What is in maintenance is neither free nor used.
        let in_service = |amount: Option<i64>| amount.filter(|_| flavor.spec.maintenance.is_none()).unwrap_or(0);
        let (total, free) = (in_service(status.total), in_service(status.free));
        let name = flavor.name_any();
        if flavor.spec.device.is_some() {
            gpus.total += total;
            gpus.free += free;
        }
        let held = held(Some(&name));
        parts.push(Part {
            name,
            total,
            free,
            used: total - free,
            queue_length: status.queue_length.unwrap_or(0),
            held,
        });
    }
    gpus.used = gpus.total - gpus.free;
    let mut by_phase = BTreeMap::new();
    for server in servers.iter().filter(|server| !server.ended()) {
        *by_phase.entry(server.phase_word().to_owned()).or_insert(0) += 1;
    }
    View {
        context: app.place().context.clone(),
        namespace: app.place().namespace.clone(),
        queue_length: parts.iter().map(|part| part.queue_length).sum(),
        gpus,
        servers: by_phase,
        gpus_held: held(None),
        flavors: parts,
    }
}

fn text(app: &App, view: &View) -> String {
    let mut table = Table::new([
        Column::new("FLAVOR"),
        Column::new("TOTAL"),
        Column::new("FREE"),
        Column::new("USED"),
        Column::new("QUEUE"),
        Column::new("YOURS").spare(1),
    ]);
    for part in &view.flavors {
        let yours = if part.held == 0 { String::new() } else { part.held.to_string() };
        let amounts = [part.total, part.free, part.used, part.queue_length].map(|amount| amount.to_string());
        let [total, free, used, queue] = amounts;
        table.row([part.name.clone().into(), total.into(), free.into(), used.into(), queue.into(), yours.into()]);
    }
    let mine: Vec<String> =
        view.servers.iter().map(|(phase, count)| format!("{count} {}", phase.to_lowercase())).collect();
    let mine = if mine.is_empty() { "none".to_owned() } else { mine.join(", ") };
    let held = match view.gpus_held {
        0 => String::new(),
        1 => ", holding 1 GPU".to_owned(),
        held => format!(", holding {held} GPUs"),
    };
    format!(
        "Cluster  {}: {} of {} GPUs free, {} waiting\nYours    {mine}{held}\n\n{}",
        view.context,
        view.gpus.free,
        view.gpus.total,
        view.queue_length,
        app.out.rendered(&table)
    )
}
