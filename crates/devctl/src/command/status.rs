//! `devctl status`: how full the cluster is, and what you hold of it.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::StreamExt as _;
use jiff::Timestamp;
use kube::ResourceExt as _;
use odc_api::queue::{Queue, QueueEntry};
use odc_api::v1alpha1::{DevServerFlavor, Phase};
use serde::Serialize;
use tokio::time::Instant;

use crate::app::App;
use crate::args::{Format, Status};
use crate::backend::{Change, Scope};
use crate::failure::{Kind, Result};
use crate::find;
use crate::glance::Glance;
use crate::known::Known;
use crate::output::live::Live;
use crate::output::time::{about, clock};
use crate::output::{Column, Table};
use crate::prospect::{freshen, told};
use crate::view::Eta;

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
    /// Those of yours that wait, in the order of the queue.
    waiting: Vec<Waiting>,
    flavors: Vec<Part>,
}

#[derive(PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Waiting {
    name: String,
    position: Option<i64>,
    not_before: Option<Timestamp>,
    eta: Option<Eta>,
}

/// What the queue says now; nothing of what it cannot be asked.
struct Told {
    queues: Option<Vec<Queue>>,
    entries: Option<Vec<QueueEntry>>,
}

async fn ask(app: &App) -> Result<Told> {
    let (queues, entries) =
        tokio::try_join!(told(app, app.backend.queues()), told(app, app.backend.entries(Scope::Own)))?;
    Ok(Told { queues, entries })
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

/// The queue is asked no more often than this.
const LEAST: Duration = Duration::from_secs(5);

pub async fn run(app: &App, args: Status) -> Result<()> {
    if args.watch {
        return watch(app).await;
    }
    let (flavors, servers, told) = tokio::try_join!(app.backend.flavors(), find::all(app), ask(app))?;
    app.talk.step("reading flavors and servers");
    print(app, &view(app, &flavors, servers, &told))
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
    let (mut said, mut asked, mut due) = (Told { queues: None, entries: None }, None::<Instant>, true);
    let mut shown = None;
    loop {
        let next = asked.map_or_else(Instant::now, |asked| asked + LEAST);
        tokio::select! {
            all = of_flavors.next() => match all {
                Some(all) => (flavors, due) = (Some(all?), true),
                None => return Ok(()),
            },
            change = of_servers.next() => match change {
                Some(Ok(Change::Interrupted(why))) => app.talk.verbose(|| format!("The connection is made anew: {why}")),
                Some(change) => {
                    known.take(change?);
                    due = true;
                }
                None => return Ok(()),
            },
            () = tokio::time::sleep_until(next), if due => {
                match ask(app).await {
                    Ok(new) => (said, due) = (new, false),
                    // As with a watch that breaks: the next question may be answered.
                    Err(failure) if failure.kind == Kind::Failed => app.talk.verbose(|| failure.message),
                    Err(failure) => return Err(failure),
                }
                asked = Some(Instant::now());
            }
        }
        let (Some(flavors), Some(servers), Some(_)) = (&flavors, known.complete(), asked) else { continue };
        let new = view(app, flavors, servers.values().cloned().collect(), &said);
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

fn view(app: &App, flavors: &[DevServerFlavor], mut servers: Vec<Glance>, told: &Told) -> View {
    for server in servers.iter_mut().filter(|server| server.phase() == Some(Phase::Queued)) {
        freshen(server, told.entries.as_deref().unwrap_or_default());
    }
    let holds = |server: &&Glance| {
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
            queue_length: queue_length(told, flavor).or(status.queue_length).unwrap_or(0),
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
        waiting: waiting(&servers),
        flavors: parts,
    }
}

/// How many wait for a flavor, if the queue said so.
fn queue_length(told: &Told, flavor: &DevServerFlavor) -> Option<i64> {
    let queue = told.queues.iter().flatten().find(|queue| queue.metadata.name == flavor.metadata.name)?;
    i64::try_from(queue.waiting.len()).ok()
}

fn waiting(servers: &[Glance]) -> Vec<Waiting> {
    let mut waiting: Vec<&Glance> = servers.iter().filter(|server| server.phase() == Some(Phase::Queued)).collect();
    waiting.sort_by_key(|server| (server.position().unwrap_or(i64::MAX), server.name().to_owned()));
    let row = |server: &&Glance| Waiting {
        name: server.name().to_owned(),
        position: server.position(),
        not_before: server.spec.scheduling.not_before.as_ref().map(|time| time.0),
        eta: server.status.admission.as_ref().and_then(|admission| admission.eta.as_ref()).map(Eta::from),
    };
    waiting.iter().map(row).collect()
}

/// Such as `Waiting  train: place 3, in about 40 m`.
fn waits(waiting: &Waiting, now: Timestamp) -> String {
    let when = match (waiting.not_before.filter(|at| *at > now), waiting.position) {
        (Some(at), _) => format!("booked for {}", clock(at, now)),
        (None, Some(place)) => format!("place {place}"),
        (None, None) => "in the queue".to_owned(),
    };
    let eta = waiting.eta.filter(|_| waiting.position.is_some());
    let eta = eta.map(|eta| format!(", starts in {}", about(eta.p50.as_second() - now.as_second())));
    format!("Waiting  {}: {when}{}\n", waiting.name, eta.unwrap_or_default())
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
    let now = Timestamp::now();
    let waiting: String = view.waiting.iter().map(|waiting| waits(waiting, now)).collect();
    format!(
        "Cluster  {}: {} of {} GPUs free, {} waiting\nYours    {mine}{held}\n{waiting}\n{}",
        view.context,
        view.gpus.free,
        view.gpus.total,
        view.queue_length,
        app.out.rendered(&table)
    )
}
