//! `devctl queue`: which of your servers wait, where in the queue they are, and for what.

use std::collections::BTreeMap;

use futures_util::StreamExt as _;
use jiff::Timestamp;
use odc_api::v1alpha1::Phase;

use crate::app::App;
use crate::args::Queue;
use crate::backend::{Change, Scope};
use crate::failure::Result;
use crate::find;
use crate::glance::Glance;
use crate::output::live::Live;
use crate::output::time::{about, since};
use crate::output::{Column, Table};
use crate::view::Server;

pub async fn run(app: &App, args: Queue) -> Result<()> {
    if args.watch {
        return watch(app).await;
    }
    let waiting = sorted(find::all(app).await?);
    app.talk.step("reading servers");
    print(app, &waiting)?;
    if waiting.is_empty() && !app.out.structured() {
        app.talk.say("None of your servers waits.");
    }
    Ok(())
}

fn sorted(servers: impl IntoIterator<Item = Glance>) -> Vec<Glance> {
    let mut waiting: Vec<Glance> = servers.into_iter().filter(|server| server.phase() == Some(Phase::Queued)).collect();
    waiting.sort_by_key(|server| (server.position().unwrap_or(i64::MAX), server.name().to_owned()));
    waiting
}

fn print(app: &App, waiting: &[Glance]) -> Result<()> {
    if waiting.is_empty() && !app.out.structured() {
        return Ok(());
    }
    let views: Vec<Server> = waiting.iter().map(Server::from).collect();
    let names = || views.iter().map(|view| view.name.clone()).collect();
    app.out.show(&views, names, || table(waiting, Timestamp::now()))
}

async fn watch(app: &App) -> Result<()> {
    let mut changes = app.backend.watch(Scope::Own, None);
    let mut known: BTreeMap<String, Glance> = BTreeMap::new();
    let (mut listed, mut live) = (false, Live::default());
    while let Some(change) = changes.next().await {
        match change? {
            Change::Relisted => (known, listed) = (BTreeMap::new(), false),
            Change::Put(server) => {
                known.insert(server.name().to_owned(), *server);
            }
            Change::Gone(server) => {
                known.remove(server.name());
            }
            Change::Listed => listed = true,
            Change::Interrupted(why) => app.talk.verbose(|| format!("The connection is made anew: {why}")),
        }
        if !listed {
            continue;
        }
        let waiting = sorted(known.values().cloned());
        if app.out.structured() {
            print(app, &waiting)?;
        } else {
            let none = "None of your servers waits.\n".to_owned();
            let text = if waiting.is_empty() { none } else { app.out.rendered(&table(&waiting, Timestamp::now())) };
            live.show(&app.out, &text)?;
        }
    }
    Ok(())
}

fn table(waiting: &[Glance], now: Timestamp) -> Table {
    let mut table = Table::new([
        Column::new("NAME"),
        Column::new("PLACE"),
        Column::new("FLAVOR").spare(6),
        Column::new("GPUS").spare(7),
        Column::new("STARTS").spare(1),
        Column::new("WAITING").spare(3),
        Column::new("FOR").spare(4).elastic(),
    ]);
    for server in waiting {
        let admission = server.status.admission.clone().unwrap_or_default();
        let gpus = server.spec.count.map(|count| count * server.nodes()).filter(|count| *count > 0);
        let eta = admission.eta.map(|eta| format!("in {}", about(eta.p50.0.as_second() - now.as_second())));
        table.row([
            server.name().into(),
            admission.position.map(|place| place.to_string()).unwrap_or_default().into(),
            server.flavor().unwrap_or_default().into(),
            gpus.map(|count| count.to_string()).unwrap_or_default().into(),
            eta.unwrap_or_default().into(),
            admission.queued_at.map(|time| since(time.0, now)).unwrap_or_default().into(),
            admission.message.unwrap_or_default().into(),
        ]);
    }
    table
}
