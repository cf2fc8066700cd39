//! `devctl queue`: pending servers with their position and expected start.

mod all;
mod calibration;

use std::time::Duration;

use clap::Args;
use jiff::Timestamp;
use odc_api::v1alpha1::Phase;
use serde::Serialize;

use crate::cli::shared::WatchArgs;
use crate::client::Scope;
use crate::clock;
use crate::context::ClusterContext;
use crate::error::Result;
use crate::live_view::{self, Screen, Sources, View, Watched};
use crate::model::queue::{QueueData, format_delay, merge_live};
use crate::model::server::{DelayedStart, ServerSummary};
use crate::output::duration::{format_bound, format_clock, format_estimate, format_since};
use crate::output::json::ServerJson;
use crate::output::{Column, Table};
use crate::resolve;
use all::QueueRow;

/// While servers are pending, the queue is fetched at least this often: expected starts change without watch events.
const MAX_FETCH_INTERVAL: Duration = Duration::from_secs(30);

#[derive(Args, Debug)]
pub struct QueueArgs {
    /// Show all pending servers; owners are visible to administrators only
    #[arg(short, long)]
    pub all: bool,
    /// Show the accuracy of expected start times
    #[arg(long, conflicts_with_all = ["all", "watch"])]
    pub calibration: bool,
    #[command(flatten)]
    pub watch: WatchArgs,
}

pub async fn run(ctx: &ClusterContext, args: QueueArgs) -> Result<()> {
    if args.calibration {
        return calibration::run(ctx).await;
    }
    if args.watch.watch {
        // The status of own servers follows the queue; with --all, the queue lengths of the flavors do.
        let sources = Sources { servers: Some(Scope::Own), flavors: args.all };
        let mut view = QueueView { ctx, all: args.all, is_empty: true, screen: Screen::default() };
        return live_view::run(ctx, sources, &mut view).await;
    }
    let (data, servers) = tokio::try_join!(fetch(ctx, args.all), resolve::list_own(ctx))?;
    ctx.ui.trace_step("querying the queue");
    let page = Page::new(&data, &servers, args.all, clock::now());
    page.print(ctx)?;
    if page.is_empty() && !ctx.out.structured() {
        ctx.ui.info(page.empty_message);
    }
    Ok(())
}

async fn fetch(ctx: &ClusterContext, all: bool) -> Result<QueueData> {
    if all { QueueData::fetch_all(ctx).await } else { QueueData::fetch_own(ctx).await }
}

struct QueueView<'a> {
    ctx: &'a ClusterContext,
    all: bool,
    is_empty: bool,
    screen: Screen,
}

impl View for QueueView<'_> {
    type Data = QueueData;

    async fn fetch(&self) -> Result<QueueData> {
        fetch(self.ctx, self.all).await
    }

    fn render(&mut self, watched: &Watched, data: &QueueData) -> Result<()> {
        let servers: Vec<ServerSummary> =
            watched.servers.snapshot().into_iter().flat_map(|servers| servers.values().cloned()).collect();
        let page = Page::new(data, &servers, self.all, clock::now());
        self.is_empty = page.is_empty();
        let out = &self.ctx.out;
        let text = || if page.is_empty() { format!("{}\n", page.empty_message) } else { out.render(&page.table) };
        self.screen.show(out, &page.data, || page.names(), text)
    }

    fn max_fetch_interval(&self) -> Option<Duration> {
        (!self.is_empty).then_some(MAX_FETCH_INTERVAL)
    }
}

/// The output in all formats.
struct Page {
    data: PageData,
    table: Table,
    empty_message: &'static str,
}

#[derive(Serialize)]
#[serde(untagged)]
enum PageData {
    Own(Vec<ServerJson>),
    All(Vec<QueueRow>),
}

impl Page {
    fn new(data: &QueueData, servers: &[ServerSummary], all: bool, now: Timestamp) -> Self {
        if all {
            let rows = all::rows(data, servers);
            return Self {
                table: all::table(&rows, now),
                data: PageData::All(rows),
                empty_message: "The queue is empty",
            };
        }
        let pending = own_pending(data, servers);
        let data = PageData::Own(pending.iter().map(ServerJson::from).collect());
        Self { data, table: table(&pending, now), empty_message: "You have no servers in the queue" }
    }

    fn is_empty(&self) -> bool {
        match &self.data {
            PageData::Own(servers) => servers.is_empty(),
            PageData::All(rows) => rows.is_empty(),
        }
    }

    fn names(&self) -> Vec<String> {
        match &self.data {
            PageData::Own(servers) => servers.iter().map(|server| server.name.clone()).collect(),
            PageData::All(rows) => rows.iter().filter_map(|row| row.name.clone()).collect(),
        }
    }

    fn print(&self, ctx: &ClusterContext) -> Result<()> {
        if self.is_empty() && !ctx.out.structured() {
            return Ok(());
        }
        ctx.out.show(&self.data, || self.names(), || self.table.clone())
    }
}

/// Returns the user's queued servers with live positions, bookings last.
fn own_pending(data: &QueueData, servers: &[ServerSummary]) -> Vec<ServerSummary> {
    let is_queued = |server: &&ServerSummary| server.phase() == Some(Phase::Queued);
    let mut pending: Vec<ServerSummary> = servers.iter().filter(is_queued).cloned().collect();
    for server in &mut pending {
        merge_live(server, data.entries.as_deref().unwrap_or_default());
    }
    pending.sort_by_key(|server| (server.position().unwrap_or(i64::MAX), server.name().to_owned()));
    pending
}

fn table(pending: &[ServerSummary], now: Timestamp) -> Table {
    let mut table = Table::new([
        Column::new("NAME"),
        Column::new("POSITION"),
        Column::new("FLAVOR").drop_priority(6),
        Column::new("GPUS").drop_priority(7),
        Column::new("STARTS").drop_priority(1),
        Column::new("P90 START").drop_priority(5),
        Column::new("WAITING").drop_priority(3),
        Column::new("REASON").drop_priority(4).truncate(),
    ]);
    for server in pending {
        let admission = server.status.admission.clone().unwrap_or_default();
        let gpus = server.spec.count.map(|count| count * server.nodes()).filter(|count| *count > 0);
        let booked = server.booked_start(now);
        let position = if booked.is_some() {
            Some("booked".to_owned())
        } else {
            admission.position.map(|position| position.to_string())
        };
        let eta = admission.eta.as_ref().map(|eta| (eta.p50.0, eta.p90.0));
        let [start, p90] = format_start(booked, eta, now);
        table.row([
            server.name().into(),
            position.unwrap_or_default().into(),
            server.flavor().unwrap_or_default().into(),
            gpus.map(|count| count.to_string()).unwrap_or_default().into(),
            start.into(),
            p90.into(),
            admission.queued_at.map(|time| format_since(time.0, now)).unwrap_or_default().into(),
            format_reason(admission.message.as_deref(), admission.delayed.as_ref(), now).into(),
        ]);
    }
    table
}

/// Returns why a server is queued and why its start was delayed.
fn format_reason(message: Option<&str>, delay: Option<&DelayedStart>, now: Timestamp) -> String {
    let delay = delay.map(|delay| format_delay(delay, now));
    message.map(str::to_owned).into_iter().chain(delay).collect::<Vec<_>>().join(" ")
}

/// Returns the text of the 50th and 90th percentile, or the start time of a booking.
fn format_start(booked: Option<Timestamp>, eta: Option<(Timestamp, Timestamp)>, now: Timestamp) -> [String; 2] {
    match (booked, eta) {
        (Some(start), _) => [format_clock(start, now), String::new()],
        (None, None) => [String::new(), String::new()],
        (None, Some((p50, p90))) => {
            [format!("in {}", format_estimate(p50, now)), format!("within {}", format_bound(p90, now))]
        }
    }
}
