//! `devctl queue`: who waits, where in the queue, for what and until when.

mod calibration;
mod everybody;
mod watch;

use jiff::Timestamp;
use odc_api::queue::{Moved, Queue as FlavorQueue, QueueEntry};
use odc_api::v1alpha1::Phase;
use serde::Serialize;

use crate::app::App;
use crate::args::Queue;
use crate::backend::Scope;
use crate::failure::Result;
use crate::find;
use crate::glance::Glance;
use crate::output::time::{about, clock, since, within};
use crate::output::{Column, Table};
use crate::prospect::{self, freshen, heard, told};
use crate::view::Server;
use everybody::Row;

pub async fn run(app: &App, args: Queue) -> Result<()> {
    if args.calibration {
        return calibration::run(app).await;
    }
    if args.watch {
        return watch::run(app, args.all).await;
    }
    let (told, servers) = tokio::try_join!(Told::ask(app, args.all), find::all(app))?;
    app.talk.step("asking the queue");
    let page = Page::new(&told, &servers, args.all, Timestamp::now());
    page.print(app)?;
    if page.is_empty() && !app.out.structured() {
        app.talk.say(page.nobody);
    }
    Ok(())
}

/// What the queue said; nothing of what it could not be asked.
#[derive(Default)]
struct Told {
    entries: Option<Vec<QueueEntry>>,
    /// Of everybody, where their names may not be known.
    queues: Option<Vec<FlavorQueue>>,
}

impl Told {
    async fn ask(app: &App, all: bool) -> Result<Self> {
        if !all {
            return Ok(Self { entries: told(app, app.backend.entries(Scope::Own)).await?, queues: None });
        }
        let (everybody, own, queues) = tokio::try_join!(
            app.backend.entries(Scope::Everybody),
            app.backend.entries(Scope::Own),
            app.backend.queues()
        )?;
        // Whoever may not see everybody's servers sees them without names.
        match everybody {
            Ok(entries) => Ok(Self { entries: Some(entries), queues: None }),
            Err(_) => Ok(Self { entries: heard(app, own), queues: heard(app, queues) }),
        }
    }
}

/// What is shown, in every form.
struct Page {
    data: Data,
    table: Table,
    /// What is said where nobody waits.
    nobody: &'static str,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Data {
    Own(Vec<Server>),
    Everybody(Vec<Row>),
}

impl Page {
    fn new(told: &Told, servers: &[Glance], all: bool, now: Timestamp) -> Self {
        if all {
            let rows = everybody::rows(told, servers);
            return Self { table: everybody::table(&rows, now), data: Data::Everybody(rows), nobody: "Nobody waits." };
        }
        let waiting = own(told, servers);
        let data = Data::Own(waiting.iter().map(Server::from).collect());
        Self { data, table: table(&waiting, now), nobody: "None of your servers waits." }
    }

    fn is_empty(&self) -> bool {
        match &self.data {
            Data::Own(servers) => servers.is_empty(),
            Data::Everybody(rows) => rows.is_empty(),
        }
    }

    fn print(&self, app: &App) -> Result<()> {
        if self.is_empty() && !app.out.structured() {
            return Ok(());
        }
        let names = || match &self.data {
            Data::Own(servers) => servers.iter().map(|server| server.name.clone()).collect(),
            Data::Everybody(rows) => rows.iter().filter_map(|row| row.name.clone()).collect(),
        };
        app.out.show(&self.data, names, || self.table.clone())
    }
}

/// A person's servers that wait, as the queue sees them now. First those that compete, then bookings.
fn own(told: &Told, servers: &[Glance]) -> Vec<Glance> {
    let waits = |server: &&Glance| server.phase() == Some(Phase::Queued);
    let mut waiting: Vec<Glance> = servers.iter().filter(waits).cloned().collect();
    for server in &mut waiting {
        freshen(server, told.entries.as_deref().unwrap_or_default());
    }
    waiting.sort_by_key(|server| (server.position().unwrap_or(i64::MAX), server.name().to_owned()));
    waiting
}

fn table(waiting: &[Glance], now: Timestamp) -> Table {
    let mut table = Table::new([
        Column::new("NAME"),
        Column::new("PLACE"),
        Column::new("FLAVOR").spare(6),
        Column::new("GPUS").spare(7),
        Column::new("STARTS").spare(1),
        Column::new("9 OF 10").spare(5),
        Column::new("WAITING").spare(3),
        Column::new("FOR").spare(4).elastic(),
    ]);
    for server in waiting {
        let admission = server.status.admission.clone().unwrap_or_default();
        let gpus = server.spec.count.map(|count| count * server.nodes()).filter(|count| *count > 0);
        let booked = server.booked(now);
        let place =
            if booked.is_some() { Some("booked".to_owned()) } else { admission.position.map(|at| at.to_string()) };
        let eta = admission.eta.as_ref().map(|eta| (eta.p50.0.as_second(), eta.p90.0.as_second()));
        let [starts, most] = starts(booked, eta, now);
        table.row([
            server.name().into(),
            place.unwrap_or_default().into(),
            server.flavor().unwrap_or_default().into(),
            gpus.map(|count| count.to_string()).unwrap_or_default().into(),
            starts.into(),
            most.into(),
            admission.queued_at.map(|time| since(time.0, now)).unwrap_or_default().into(),
            why(admission.message.as_deref(), admission.moved.as_ref(), now).into(),
        ]);
    }
    table
}

/// What it waits for, and why it waits longer than was said.
fn why(message: Option<&str>, moved: Option<&Moved>, now: Timestamp) -> String {
    let moved = moved.map(|moved| prospect::moved(moved, now));
    message.map(str::to_owned).into_iter().chain(moved).collect::<Vec<_>>().join(" ")
}

/// When half and when nine of ten such waits end, or the time that was booked.
fn starts(booked: Option<Timestamp>, eta: Option<(i64, i64)>, now: Timestamp) -> [String; 2] {
    match (booked, eta) {
        (Some(at), _) => [clock(at, now), String::new()],
        (None, None) => [String::new(), String::new()],
        (None, Some((half, most))) => {
            let left = |second: i64| second - now.as_second();
            [format!("in {}", about(left(half))), format!("within {}", within(left(most)))]
        }
    }
}
