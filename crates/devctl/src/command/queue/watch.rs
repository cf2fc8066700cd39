//! The queue as it changes. It cannot be watched itself: its places and times are worked out anew with every request, and
//! most of that changes nothing anybody sees. So it is asked again when something changed that can be watched: one's own
//! servers, whose statuses follow the queue, or with everybody's the flavors, which count who waits.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use jiff::Timestamp;
use odc_api::v1alpha1::DevServerFlavor;
use tokio::time::Instant;

use super::{Page, Told};
use crate::app::App;
use crate::args::Format;
use crate::backend::{Change, Scope};
use crate::failure::{Kind, Result};
use crate::glance::Glance;
use crate::output::live::Live;

/// The queue is asked no more often than this,
const LEAST: Duration = Duration::from_secs(5);
/// and, while somebody waits, no less: expected starts move without anything that is watched.
const MOST: Duration = Duration::from_secs(30);

pub(super) async fn run(app: &App, all: bool) -> Result<()> {
    let mut changes = app.backend.watch(Scope::Own, None);
    let mut flavors: BoxStream<'_, Result<Vec<DevServerFlavor>>> =
        if all { app.backend.watch_flavors() } else { futures_util::stream::pending().boxed() };
    let mut known: BTreeMap<String, Glance> = BTreeMap::new();
    let (mut listed, mut told, mut screen) = (false, Told::default(), Screen::default());
    // When it was asked last, whether it is to be asked again for a change, and whether nobody waits.
    let (mut asked, mut due, mut empty): (Option<Instant>, bool, bool) = (None, true, true);
    loop {
        let next = match asked {
            None => Some(Instant::now()),
            Some(asked) if due => Some(asked + LEAST),
            Some(asked) => (!empty).then_some(asked + MOST),
        };
        tokio::select! {
            change = changes.next() => {
                let Some(change) = change else { return Ok(()) };
                match change? {
                    Change::Relisted => (known, listed) = (BTreeMap::new(), false),
                    Change::Put(server) => {
                        known.insert(server.name().to_owned(), *server);
                    }
                    Change::Gone(server) => {
                        known.remove(server.name());
                    }
                    Change::Listed => listed = true,
                    Change::Interrupted(why) => {
                        app.talk.verbose(|| format!("The connection is made anew: {why}"));
                        continue;
                    }
                }
                due = true;
            }
            Some(flavors) = flavors.next() => {
                flavors?;
                due = true;
            }
            () = until(next), if listed => {
                match Told::ask(app, all).await {
                    Ok(new) => (told, due) = (new, false),
                    // As with a watch that breaks: the next question may be answered.
                    Err(failure) if failure.kind == Kind::Failed => app.talk.verbose(|| failure.message),
                    Err(failure) => return Err(failure),
                }
                asked = Some(Instant::now());
            }
        }
        // What was never asked for is not shown as if nobody waited.
        if !listed || asked.is_none() {
            continue;
        }
        let servers: Vec<Glance> = known.values().cloned().collect();
        let page = Page::new(&told, &servers, all, Timestamp::now());
        empty = page.is_empty();
        screen.show(app, &page)?;
    }
}

async fn until(next: Option<Instant>) {
    match next {
        Some(next) => tokio::time::sleep_until(next).await,
        None => std::future::pending().await,
    }
}

/// What was shown last.
#[derive(Default)]
struct Screen {
    live: Live,
    printed: Option<String>,
}

impl Screen {
    fn show(&mut self, app: &App, page: &Page) -> Result<()> {
        // Where nothing is drawn over, only what changed is news, not that time has passed.
        let data = serde_json::to_string(&page.data).ok();
        let news = self.printed.is_none() || self.printed != data;
        match app.out.format {
            Format::Json | Format::Yaml if news => app.out.one_of_many(&page.data)?,
            Format::Name if news => page.print(app)?,
            Format::Table | Format::Wide if news || app.out.repaints() => {
                let text = if page.is_empty() { format!("{}\n", page.nobody) } else { app.out.rendered(&page.table) };
                self.live.show(&app.out, &text)?;
            }
            _ => {}
        }
        self.printed = data;
        Ok(())
    }
}
