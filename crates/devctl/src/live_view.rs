//! The loop behind `--watch`: watches servers and flavors, refetches what cannot be watched, and renders.
//!
//! The queue cannot be watched: positions and expected starts are computed per request. It is fetched again when a
//! watched object changes, at most every [`MIN_FETCH_INTERVAL`].

use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use odc_api::v1alpha1::DevServerFlavor;
use serde::Serialize;
use tokio::time::Instant;

use crate::cli::Format;
use crate::client::{Scope, WatchEvent};
use crate::context::ClusterContext;
use crate::error::{Kind, Result};
use crate::output::Output;
use crate::output::redraw::LiveRegion;
use crate::watch_cache::WatchCache;

/// How often a terminal is redrawn so that ages stay current.
const REDRAW_INTERVAL: Duration = Duration::from_secs(1);

/// The shortest time between two fetches. The API computes a schedule for every fetch.
const MIN_FETCH_INTERVAL: Duration = Duration::from_secs(5);

/// The objects a view watches.
pub struct Sources {
    pub servers: Option<Scope>,
    pub flavors: bool,
}

/// What the watches have delivered.
#[derive(Default)]
pub struct Watched {
    pub servers: WatchCache,
    pub flavors: Option<Vec<DevServerFlavor>>,
}

impl Watched {
    fn is_complete(&self, sources: &Sources) -> bool {
        (sources.servers.is_none() || self.servers.snapshot().is_some()) && (!sources.flavors || self.flavors.is_some())
    }
}

/// One screen of `--watch`.
pub trait View {
    /// What is fetched beside the watches.
    type Data: Default;

    fn fetch(&self) -> impl Future<Output = Result<Self::Data>>;

    fn render(&mut self, watched: &Watched, data: &Self::Data) -> Result<()>;

    /// The time after which data is fetched again although nothing changed.
    fn max_fetch_interval(&self) -> Option<Duration> {
        None
    }
}

/// Runs a view until a watch fails for good.
pub async fn run(ctx: &ClusterContext, sources: Sources, view: &mut impl View) -> Result<()> {
    let mut servers: BoxStream<'_, Result<WatchEvent>> = match &sources.servers {
        Some(scope) => ctx.client.watch(scope.clone(), None),
        None => stream::pending().boxed(),
    };
    let mut flavors: BoxStream<'_, Result<Vec<DevServerFlavor>>> =
        if sources.flavors { ctx.client.watch_flavors() } else { stream::pending().boxed() };
    let (mut watched, mut data, mut fetch) = (Watched::default(), None, FetchSchedule::default());
    let redraw = ctx.out.can_redraw() && !ctx.out.structured();
    let mut tick = tokio::time::interval(REDRAW_INTERVAL);
    loop {
        tokio::select! {
            event = servers.next() => match event {
                Some(Ok(WatchEvent::Interrupted(cause))) => ctx.ui.verbose(|| format!("reconnecting: {cause}")),
                Some(event) => {
                    watched.servers.apply(event?);
                    fetch.changed = true;
                }
                None => return Ok(()),
            },
            list = flavors.next() => match list {
                Some(list) => {
                    watched.flavors = Some(list?);
                    fetch.changed = true;
                }
                None => return Ok(()),
            },
            () = fetch.wait(view), if watched.is_complete(&sources) => {
                match view.fetch().await {
                    Ok(new) => {
                        data = Some(new);
                        fetch.changed = false;
                    }
                    // As with an interrupted watch, the next attempt may succeed.
                    Err(error) if error.kind == Kind::Failed => {
                        ctx.ui.verbose(|| error.message);
                        data.get_or_insert_default();
                    }
                    Err(error) => return Err(error),
                }
                fetch.last = Some(Instant::now());
            }
            _ = tick.tick(), if redraw => {}
        }
        if let Some(data) = data.as_ref().filter(|_| watched.is_complete(&sources)) {
            view.render(&watched, data)?;
        }
    }
}

/// When to fetch next.
#[derive(Default)]
struct FetchSchedule {
    last: Option<Instant>,
    /// A watched object changed since the last fetch.
    changed: bool,
}

impl FetchSchedule {
    async fn wait(&self, view: &impl View) {
        let next = match self.last {
            None => Some(Instant::now()),
            Some(last) if self.changed => Some(last + MIN_FETCH_INTERVAL),
            Some(last) => view.max_fetch_interval().map(|interval| last + interval),
        };
        match next {
            Some(next) => tokio::time::sleep_until(next).await,
            None => std::future::pending().await,
        }
    }
}

/// Prints the states of a view: redrawn on a terminal, elsewhere each changed state once.
#[derive(Default)]
pub struct Screen {
    region: LiveRegion,
    printed: Option<String>,
}

impl Screen {
    pub fn show<T: Serialize>(
        &mut self,
        out: &Output,
        data: &T,
        names: impl FnOnce() -> Vec<String>,
        text: impl FnOnce() -> String,
    ) -> Result<()> {
        // Compare the data, not the text, which changes as time passes.
        let json = serde_json::to_string(data).ok();
        let changed = self.printed.is_none() || self.printed != json;
        match out.format {
            Format::Json | Format::Yaml if changed => out.document(data)?,
            Format::Name if changed => out.lines(names())?,
            Format::Table | Format::Wide if changed || out.can_redraw() => self.region.show(out, &text())?,
            _ => {}
        }
        self.printed = json;
        Ok(())
    }
}
