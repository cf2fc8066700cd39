//! `devctl status`: cluster usage and the user's servers.

use std::collections::BTreeMap;

use clap::Args;
use jiff::Timestamp;
use kube::ResourceExt as _;
use odc_api::v1alpha1::{DevServerFlavor, Phase};
use serde::Serialize;

use crate::cli::Format;
use crate::cli::shared::WatchArgs;
use crate::client::Scope;
use crate::clock;
use crate::context::ClusterContext;
use crate::error::Result;
use crate::live_view::{self, Screen, Sources, View, Watched};
use crate::model::queue::{QueueData, merge_live};
use crate::model::server::ServerSummary;
use crate::output::duration::{format_clock, format_estimate};
use crate::output::json::Eta;
use crate::output::{Column, Table};
use crate::resolve;

#[derive(Args, Debug)]
pub struct StatusArgs {
    #[command(flatten)]
    pub watch: WatchArgs,
}

#[derive(PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct StatusJson {
    context: String,
    namespace: String,
    /// Of all flavors with devices.
    gpus: Usage,
    /// Pending servers of all users.
    queue_length: i64,
    /// The user's servers by phase.
    servers: BTreeMap<String, usize>,
    /// Devices of the user's running servers.
    gpus_held: u32,
    /// The user's pending servers by position.
    pending: Vec<PendingJson>,
    flavors: Vec<FlavorUsage>,
}

#[derive(PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct PendingJson {
    name: String,
    position: Option<i64>,
    not_before: Option<Timestamp>,
    eta: Option<Eta>,
}

#[derive(Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Usage {
    total: i64,
    free: i64,
    used: i64,
}

#[derive(PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct FlavorUsage {
    name: String,
    total: i64,
    free: i64,
    used: i64,
    queue_length: i64,
    held: u32,
}

pub async fn run(ctx: &ClusterContext, args: StatusArgs) -> Result<()> {
    if args.watch.watch {
        let mut view = StatusView { ctx, screen: Screen::default() };
        return live_view::run(ctx, Sources { servers: Some(Scope::Own), flavors: true }, &mut view).await;
    }
    let (flavors, servers, data) =
        tokio::try_join!(ctx.client.flavors(), resolve::list_own(ctx), QueueData::fetch_own_and_queues(ctx))?;
    ctx.ui.trace_step("reading flavors and servers");
    let status = summarize(ctx, &flavors, servers, &data);
    match ctx.out.format {
        Format::Json => ctx.out.json(&status),
        Format::Yaml => ctx.out.yaml(&status),
        Format::Name => ctx.out.lines(names(&status)),
        Format::Table | Format::Wide => ctx.out.print(&render(ctx, &status)),
    }
}

struct StatusView<'a> {
    ctx: &'a ClusterContext,
    screen: Screen,
}

impl View for StatusView<'_> {
    type Data = QueueData;

    async fn fetch(&self) -> Result<QueueData> {
        QueueData::fetch_own_and_queues(self.ctx).await
    }

    fn render(&mut self, watched: &Watched, data: &QueueData) -> Result<()> {
        let flavors = watched.flavors.as_deref().unwrap_or_default();
        let servers = watched.servers.snapshot().into_iter().flat_map(|servers| servers.values().cloned()).collect();
        let status = summarize(self.ctx, flavors, servers, data);
        self.screen.show(&self.ctx.out, &status, || names(&status), || render(self.ctx, &status))
    }
}

fn names(status: &StatusJson) -> Vec<String> {
    status.flavors.iter().map(|flavor| flavor.name.clone()).collect()
}

fn summarize(
    ctx: &ClusterContext,
    flavors: &[DevServerFlavor],
    mut servers: Vec<ServerSummary>,
    data: &QueueData,
) -> StatusJson {
    for server in servers.iter_mut().filter(|server| server.phase() == Some(Phase::Queued)) {
        merge_live(server, data.entries.as_deref().unwrap_or_default());
    }
    let holds_devices = |server: &&ServerSummary| {
        matches!(server.phase(), Some(Phase::Starting | Phase::Running | Phase::Hibernating | Phase::Stopping))
    };
    let held = |flavor: Option<&str>| -> u32 {
        let holding =
            servers.iter().filter(holds_devices).filter(|server| flavor.is_none() || server.flavor() == flavor);
        holding.map(|server| server.spec.count.unwrap_or(0) * server.nodes()).sum()
    };
    let mut gpus = Usage::default();
    let mut usage = Vec::new();
    for flavor in flavors {
        let status = flavor.status.clone().unwrap_or_default();
        // Devices in maintenance count neither as free nor as used.
        let in_service = |amount: Option<i64>| amount.filter(|_| flavor.spec.maintenance.is_none()).unwrap_or(0);
        let (total, free) = (in_service(status.total), in_service(status.free));
        let name = flavor.name_any();
        if flavor.spec.device.is_some() {
            gpus.total += total;
            gpus.free += free;
        }
        let held = held(Some(&name));
        usage.push(FlavorUsage {
            name,
            total,
            free,
            used: total - free,
            queue_length: data.queue_length(flavor).or(status.queue_length).unwrap_or(0),
            held,
        });
    }
    gpus.used = gpus.total - gpus.free;
    let mut by_phase = BTreeMap::new();
    for server in servers.iter().filter(|server| !server.is_finished()) {
        *by_phase.entry(server.phase_str().to_owned()).or_insert(0) += 1;
    }
    let target = ctx.target();
    StatusJson {
        context: target.context.clone(),
        namespace: target.namespace.clone(),
        queue_length: usage.iter().map(|flavor| flavor.queue_length).sum(),
        gpus,
        servers: by_phase,
        gpus_held: held(None),
        pending: pending(&servers),
        flavors: usage,
    }
}

fn pending(servers: &[ServerSummary]) -> Vec<PendingJson> {
    let mut pending: Vec<&ServerSummary> =
        servers.iter().filter(|server| server.phase() == Some(Phase::Queued)).collect();
    pending.sort_by_key(|server| (server.position().unwrap_or(i64::MAX), server.name().to_owned()));
    let row = |server: &&ServerSummary| PendingJson {
        name: server.name().to_owned(),
        position: server.position(),
        not_before: server.spec.scheduling.not_before.as_ref().map(|time| time.0),
        eta: server.status.admission.as_ref().and_then(|admission| admission.eta.as_ref()).map(Eta::from),
    };
    pending.iter().map(row).collect()
}

/// `Queued   train: position 3, starts in about 40m`.
fn format_pending(pending: &PendingJson, now: Timestamp) -> String {
    let position = match (pending.not_before.filter(|start| *start > now), pending.position) {
        (Some(start), _) => format!("booked for {}", format_clock(start, now)),
        (None, Some(position)) => format!("position {position}"),
        (None, None) => "no position yet".to_owned(),
    };
    let eta = pending.eta.filter(|_| pending.position.is_some());
    let eta = eta.map(|eta| format!(", starts in {}", format_estimate(eta.p50, now)));
    format!("Queued   {}: {position}{}\n", pending.name, eta.unwrap_or_default())
}

fn render(ctx: &ClusterContext, status: &StatusJson) -> String {
    let mut table = Table::new([
        Column::new("FLAVOR"),
        Column::new("TOTAL"),
        Column::new("FREE"),
        Column::new("USED"),
        Column::new("QUEUE"),
        Column::new("YOURS").drop_priority(1),
    ]);
    for flavor in &status.flavors {
        let yours = if flavor.held == 0 { String::new() } else { flavor.held.to_string() };
        let amounts = [flavor.total, flavor.free, flavor.used, flavor.queue_length].map(|amount| amount.to_string());
        let [total, free, used, queue] = amounts;
        table.row([flavor.name.clone().into(), total.into(), free.into(), used.into(), queue.into(), yours.into()]);
    }
    let own: Vec<String> =
        status.servers.iter().map(|(phase, count)| format!("{count} {}", phase.to_lowercase())).collect();
    let own = if own.is_empty() { "no servers".to_owned() } else { own.join(", ") };
    let held = match status.gpus_held {
        0 => String::new(),
        1 => ", 1 GPU in use".to_owned(),
        held => format!(", {held} GPUs in use"),
    };
    let now = clock::now();
    let pending: String = status.pending.iter().map(|pending| format_pending(pending, now)).collect();
    format!(
        "Cluster  {}: {} of {} GPUs free, {} servers queued\nYours    {own}{held}\n{pending}\n{}",
        status.context,
        status.gpus.free,
        status.gpus.total,
        status.queue_length,
        ctx.out.render(&table)
    )
}
