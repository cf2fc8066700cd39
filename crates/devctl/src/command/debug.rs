//! `devctl debug`: why a server is as it is, in one look. Everything that is known about it, and what to do.

mod hint;

use futures_util::{AsyncReadExt as _, StreamExt as _, stream};
use jiff::Timestamp;
use serde::Serialize;

use crate::app::App;
use crate::args::{Debug, Format};
use crate::backend::{Happening, LogRequest};
use crate::failure::Result;
use crate::find;
use crate::glance::Glance;
use crate::output::style::{BOLD, DIM, GREEN, RED, YELLOW, painted};
use crate::output::table::wrap;
use crate::output::time::{clock, since};
use crate::output::{Cell, Column, Table};
use crate::view::Detail;

/// How much of a container's log is shown.
const TAIL: i64 = 20;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct View {
    #[serde(flatten)]
    server: Detail,
    events: Vec<Event>,
    logs: Vec<Log>,
    hints: Vec<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Event {
    at: Option<Timestamp>,
    about: String,
    warning: bool,
    reason: String,
    message: String,
    times: i32,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Log {
    pod: String,
    text: Option<String>,
    /// Why there is no text.
    error: Option<String>,
}

pub async fn run(app: &App, args: Debug) -> Result<()> {
    let server = match args.server.name.as_deref() {
        Some(name) => find::named(app, name).await?,
        None => find::only(app, |_| true, "are left").await?,
    };
    let events = match app.backend.happenings(server.name()).await {
        Ok(events) => events,
        Err(failure) => {
            app.talk.say(format!("Events cannot be read: {}", failure.message));
            Vec::new()
        }
    };
    app.talk.step("reading events");
    let logs = if args.logs { logs(app, &server).await } else { Vec::new() };
    let hints = hint::hints(&server, &events, Timestamp::now());
    match app.out.format {
        Format::Json | Format::Yaml | Format::Name => {
            let view =
                View { server: Detail::new(&server, None), events: events.iter().map(event).collect(), logs, hints };
            app.out.show(&view, || vec![server.name().to_owned()], || Table::new([]))
        }
        Format::Table | Format::Wide => {
            let now = Timestamp::now();
            app.out.print(&text(app, &server, &events, &logs, &hints, now))
        }
    }
}

/// The end of what each pod printed; one that cannot be read is said to be so.
async fn logs(app: &App, server: &Glance) -> Vec<Log> {
    let read = |pod: String| async move {
        let request = LogRequest { pod: pod.clone(), tail: Some(TAIL), ..LogRequest::default() };
        let mut text = String::new();
        match app.backend.logs(request).await {
            Ok(mut lines) => match lines.read_to_string(&mut text).await {
                Ok(_) => Log { pod, text: Some(text), error: None },
                Err(error) => Log { pod, text: Some(text), error: Some(error.to_string()) },
            },
            Err(failure) => Log { pod, text: None, error: Some(failure.message) },
        }
    };
    let pods = server.status.pods.iter().map(|pod| read(pod.name.clone()));
    stream::iter(pods).buffered(4).collect().await
}

fn event(happening: &Happening) -> Event {
    let Happening { at, about, warning, reason, message, times } = happening.clone();
    Event { at, about, warning, reason, message, times }
}

fn text(app: &App, server: &Glance, events: &[Happening], logs: &[Log], hints: &[String], now: Timestamp) -> String {
    let mut text = crate::panel::whole(app, server, None, now);
    let mut section = |title: &str, body: String| {
        if !body.is_empty() {
            text.push_str(&format!("\n{}\n{body}", painted(BOLD, title)));
        }
    };
    section("Timeline", timeline(app, server, now));
    section("Conditions", conditions(app, server));
    section("Events", happenings(app, events, now));
    for log in logs {
        let body = match (&log.text, &log.error) {
            (Some(text), None) if text.is_empty() => painted(DIM, "  nothing\n"),
            (Some(text), None) => text.lines().map(|line| format!("  {line}\n")).collect(),
            (_, error) => format!("  {}\n", painted(YELLOW, error.as_deref().unwrap_or("cannot be read"))),
        };
        section(&format!("Log of {}", log.pod), body);
    }
    let width = app.out.width().unwrap_or(usize::MAX).saturating_sub(4);
    let hint = |hint: &String| format!("  {}\n", wrap(hint, width).join("\n    "));
    section("What to do", hints.iter().map(hint).collect());
    text
}

fn timeline(app: &App, server: &Glance, now: Timestamp) -> String {
    let mut table = Table::new([Column::new("WHEN"), Column::new("AGO"), Column::new("PHASE"), Column::new("WHY")]);
    for entry in &server.status.timeline {
        let (at, phase) = (entry.at.0, entry.phase.clone());
        table.row([clock(at, now).into(), since(at, now).into(), phase.into(), entry.reason.clone().into()]);
    }
    if table.is_empty() { String::new() } else { app.out.rendered(&table) }
}

fn conditions(app: &App, server: &Glance) -> String {
    let mut table = Table::new([
        Column::new("CONDITION"),
        Column::new("IS"),
        Column::new("WHY"),
        Column::new("MESSAGE").spare(1).elastic(),
    ]);
    for condition in &server.status.conditions {
        // Idleness and the end to come are no good news when they are true.
        let good = (condition.status == "True") != matches!(condition.kind.as_str(), "Idle" | "Expiring");
        let style = if condition.status == "Unknown" || !good { YELLOW } else { GREEN };
        table.row([
            condition.kind.clone().into(),
            Cell::styled(condition.status.clone(), style),
            condition.reason.clone().into(),
            condition.message.clone().into(),
        ]);
    }
    if table.is_empty() { String::new() } else { app.out.rendered(&table) }
}

fn happenings(app: &App, events: &[Happening], now: Timestamp) -> String {
    let mut table = Table::new([
        Column::new("AGO"),
        Column::new("ABOUT").spare(6),
        Column::new("WHAT"),
        Column::new("MESSAGE").spare(1).elastic(),
    ]);
    for event in events {
        let times = if event.times > 1 { format!(" ({} times)", event.times) } else { String::new() };
        table.row([
            event.at.map(|at| since(at, now)).unwrap_or_default().into(),
            event.about.clone().into(),
            Cell::styled(event.reason.clone(), if event.warning { RED } else { anstyle::Style::new() }),
            format!("{}{times}", event.message).into(),
        ]);
    }
    if table.is_empty() { String::new() } else { app.out.rendered(&table) }
}
