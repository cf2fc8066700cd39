//! `devctl debug`: all details of a server, with events, logs and hints.

mod hints;

use clap::Args;
use futures_util::{AsyncReadExt as _, StreamExt as _, stream};
use jiff::Timestamp;
use serde::Serialize;

use super::show::details;
use crate::cli::Format;
use crate::cli::shared::ServerArg;
use crate::client::{Event, LogRequest};
use crate::clock;
use crate::context::ClusterContext;
use crate::error::Result;
use crate::model::server::ServerSummary;
use crate::output::duration::{format_clock, format_since};
use crate::output::json::ServerDetailJson;
use crate::output::style::{BOLD, DIM, GREEN, PLAIN, RED, YELLOW, paint};
use crate::output::table::wrap;
use crate::output::{Cell, Column, Table};
use crate::resolve;

/// Lines of each log.
const LOG_TAIL_LINES: i64 = 20;
const MAX_CONCURRENT_LOGS: usize = 4;
const INDENT: &str = "  ";

#[derive(Args, Debug)]
pub struct DebugArgs {
    #[command(flatten)]
    pub server: ServerArg,
    /// Include the end of the container logs
    #[arg(long)]
    pub logs: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct DebugJson {
    #[serde(flatten)]
    server: ServerDetailJson,
    events: Vec<EventJson>,
    logs: Vec<LogJson>,
    hints: Vec<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct EventJson {
    at: Option<Timestamp>,
    object: String,
    warning: bool,
    reason: String,
    message: String,
    count: i32,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct LogJson {
    pod: String,
    text: Option<String>,
    /// Why the log could not be read.
    error: Option<String>,
}

pub async fn run(ctx: &ClusterContext, args: DebugArgs) -> Result<()> {
    let server = match args.server.name.as_deref() {
        Some(name) => resolve::by_prefix(ctx, name).await?,
        None => resolve::the_only(ctx, |_| true, "servers").await?,
    };
    let events = match ctx.client.events(server.name()).await {
        Ok(events) => events,
        Err(error) => {
            ctx.ui.warn(format!("could not read events: {}", error.message));
            Vec::new()
        }
    };
    ctx.ui.trace_step("reading events");
    let logs = if args.logs { fetch_logs(ctx, &server).await } else { Vec::new() };
    let now = clock::now();
    let hints = hints::hints(&server, &events, now);
    match ctx.out.format {
        Format::Json | Format::Yaml | Format::Name => {
            let events = events.iter().map(EventJson::from).collect();
            let value = DebugJson { server: ServerDetailJson::new(&server, None), events, logs, hints };
            ctx.out.show(&value, || vec![server.name().to_owned()], || Table::new([]))
        }
        Format::Table | Format::Wide => ctx.out.print(&render(ctx, &server, &events, &logs, &hints, now)),
    }
}

/// Reads the end of the log of each pod.
async fn fetch_logs(ctx: &ClusterContext, server: &ServerSummary) -> Vec<LogJson> {
    let read = |pod: String| async move {
        let request = LogRequest { pod: pod.clone(), tail: Some(LOG_TAIL_LINES), ..LogRequest::default() };
        let mut text = String::new();
        match ctx.client.logs(request).await {
            Ok(mut stream) => match stream.read_to_string(&mut text).await {
                Ok(_) => LogJson { pod, text: Some(text), error: None },
                Err(error) => LogJson { pod, text: Some(text), error: Some(error.to_string()) },
            },
            Err(error) => LogJson { pod, text: None, error: Some(error.message) },
        }
    };
    let pods = server.status.pods.iter().map(|pod| read(pod.name.clone()));
    stream::iter(pods).buffered(MAX_CONCURRENT_LOGS).collect().await
}

impl From<&Event> for EventJson {
    fn from(event: &Event) -> Self {
        let Event { at, object, warning, reason, message, count } = event.clone();
        Self { at, object, warning, reason, message, count }
    }
}

fn render(
    ctx: &ClusterContext,
    server: &ServerSummary,
    events: &[Event],
    logs: &[LogJson],
    hints: &[String],
    now: Timestamp,
) -> String {
    let mut text = details::render_for_debug(ctx, server, now);
    let mut section = |title: &str, body: String| {
        if !body.is_empty() {
            text.push_str(&format!("\n{}\n{body}", paint(BOLD, title)));
        }
    };
    let table = |table: &Table| if table.is_empty() { String::new() } else { ctx.out.render(table) };
    section("Timeline", table(&timeline_table(server, now)));
    section("Conditions", table(&conditions_table(server)));
    section("Events", table(&events_table(events, now)));
    for log in logs {
        let body = match (&log.text, &log.error) {
            (Some(text), None) if text.is_empty() => paint(DIM, "  (empty)\n"),
            (Some(text), None) => text.lines().map(|line| format!("{INDENT}{line}\n")).collect(),
            (_, error) => format!("{INDENT}{}\n", paint(YELLOW, error.as_deref().unwrap_or("could not be read"))),
        };
        section(&format!("Log of {}", log.pod), body);
    }
    let width = ctx.out.width().unwrap_or(usize::MAX).saturating_sub(2 * INDENT.len());
    let hint = |hint: &String| format!("{INDENT}{}\n", wrap(hint, width).join("\n    "));
    section("Hints", hints.iter().map(hint).collect());
    text
}

fn timeline_table(server: &ServerSummary, now: Timestamp) -> Table {
    let mut table = Table::new([Column::new("TIME"), Column::new("AGE"), Column::new("PHASE"), Column::new("REASON")]);
    for entry in &server.status.timeline {
        table.row([
            format_clock(entry.at.0, now).into(),
            format_since(entry.at.0, now).into(),
            entry.phase.clone().into(),
            entry.reason.clone().into(),
        ]);
    }
    table
}

fn conditions_table(server: &ServerSummary) -> Table {
    let mut table = Table::new([
        Column::new("CONDITION"),
        Column::new("STATUS"),
        Column::new("REASON"),
        Column::new("MESSAGE").drop_priority(1).truncate(),
    ]);
    for condition in &server.status.conditions {
        // Idle and Expiring are the conditions for which True is bad.
        let is_good = (condition.status == "True") != matches!(condition.kind.as_str(), "Idle" | "Expiring");
        let style = if condition.status == "Unknown" || !is_good { YELLOW } else { GREEN };
        table.row([
            condition.kind.clone().into(),
            Cell::styled(condition.status.clone(), style),
            condition.reason.clone().into(),
            condition.message.clone().into(),
        ]);
    }
    table
}

fn events_table(events: &[Event], now: Timestamp) -> Table {
    let mut table = Table::new([
        Column::new("LAST SEEN"),
        Column::new("REASON"),
        Column::new("OBJECT").drop_priority(6),
        Column::new("MESSAGE").drop_priority(1).truncate(),
    ]);
    for event in events {
        let count = if event.count > 1 { format!(" (x{})", event.count) } else { String::new() };
        table.row([
            event.at.map(|at| format_since(at, now)).unwrap_or_default().into(),
            Cell::styled(event.reason.clone(), if event.warning { RED } else { PLAIN }),
            event.object.clone().into(),
            format!("{}{count}", event.message).into(),
        ]);
    }
    table
}
