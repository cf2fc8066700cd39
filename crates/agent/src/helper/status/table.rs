//! The status as a table for people. Pure.

use odc_control::{IdleAction, JupyterState, Signals, Status, span};

use crate::helper::status::{end, extend, url};
use crate::serve::listing::render::size;

pub fn table(status: &Status) -> String {
    let mut rows: Vec<(String, String, String)> = Vec::new();
    let mut add = |name: &str, first: String, second: String| rows.push((name.to_owned(), first, second));
    add("Server", dashed(&status.server), String::new());
    add("Owner", dashed(&status.owner), String::new());
    add("Flavor", dashed(&status.flavor), String::new());
    add("Time left", time_left(status), String::new());
    add("  to keep it longer", extend(status), String::new());
    add("  to end it now", end(status), String::new());
    add("Idle", idle(status), String::new());
    if let Some(verdict) = &status.verdict {
        let said = status.verdict_seconds_ago.map(|ago| format!(" ({} ago)", span::text(ago))).unwrap_or_default();
        add("  last judged", format!("{verdict}{said}"), String::new());
    }
    add("Jupyter", jupyter(status), String::new());
    let head = aligned(&rows);

    let mut rows = vec![("SIGNAL".to_owned(), "LAST SEEN".to_owned(), "DETAILS".to_owned())];
    rows.extend(signals(&status.signals));
    let notices: String = status.notices.iter().map(|notice| format!("! {notice}\n")).collect();
    let gap = if notices.is_empty() { "" } else { "\n" };
    format!("{notices}{gap}{head}\n{}", aligned(&rows))
}

/// Two columns as wide as they need, and the rest.
fn aligned(rows: &[(String, String, String)]) -> String {
    let width = |of: fn(&(String, String, String)) -> &String| {
        rows.iter().map(|row| of(row).chars().count()).max().unwrap_or_default()
    };
    let (one, two) = (width(|row| &row.0), width(|row| &row.1));
    let line = |(name, first, second): &(String, String, String)| {
        format!("{}\n", format!("{name:one$}   {first:two$}   {second}").trim_end())
    };
    rows.iter().map(line).collect()
}

fn dashed(text: &str) -> String {
    if text.is_empty() { "-".to_owned() } else { text.to_owned() }
}

fn time_left(status: &Status) -> String {
    match status.remaining_seconds {
        None => "no end known".to_owned(),
        Some(0) => "none; it is being stopped".to_owned(),
        Some(seconds) => span::text(seconds),
    }
}

fn idle(status: &Status) -> String {
    let Some(terms) = status.idle else { return "no limit known".to_owned() };
    let limit = span::text(terms.limit_seconds);
    match terms.action {
        IdleAction::Hibernate => format!("put to sleep after {limit} without use"),
        IdleAction::End => format!("ended after {limit} without use"),
        IdleAction::None => "never stopped for want of use".to_owned(),
    }
}

fn jupyter(status: &Status) -> String {
    let why = || status.jupyter.error.as_deref().unwrap_or("no reason known").to_owned();
    match status.jupyter.state {
        JupyterState::Off => "off".to_owned(),
        JupyterState::Starting => "starting".to_owned(),
        JupyterState::Running => url(status).unwrap_or_else(|| "running".to_owned()),
        JupyterState::Restarting | JupyterState::Absent => why(),
    }
}

fn signals(signals: &Signals) -> Vec<(String, String, String)> {
    let row = |name: &str, seen: Option<u64>, details: String| (name.to_owned(), ago(seen), details);
    let mut rows = vec![
        row("terminal input", signals.terminal_input.last_seen_seconds_ago, String::new()),
        row("terminal output", signals.terminal_output.last_seen_seconds_ago, String::new()),
    ];
    rows.push(row("files and commands", signals.transfer.last_seen_seconds_ago, String::new()));
    let newest = signals.forwarded.iter().filter_map(|port| port.last_seen_seconds_ago).min();
    let ports: Vec<String> =
        signals.forwarded.iter().take(3).map(|port| format!("{}: {}", port.port, size(port.bytes))).collect();
    rows.push(row("forwarded ports", newest, ports.join(", ")));
    for (name, tree) in [
        ("processes of sessions", &signals.busy.sessions),
        ("processes of the entrypoint", &signals.busy.entrypoint),
        ("other processes", &signals.busy.others),
    ] {
        let process = tree.process.as_deref().unwrap_or_default().to_owned();
        rows.push(row(name, tree.last_seen_seconds_ago, process));
    }
    if let Some(gpu) = &signals.gpu {
        let percent = gpu.percent.map(|percent| format!("{percent} % now"));
        let memory = gpu.memory_bytes.map(|bytes| format!("{} in use", size(bytes)));
        let details = [percent, memory, gpu.error.as_ref().map(ToString::to_string)];
        rows.push(row("GPU", gpu.last_seen_seconds_ago, joined(details)));
    }
    if let Some(jupyter) = &signals.jupyter {
        let busy = jupyter.busy_kernels.map(|busy| format!("{busy} busy"));
        let open = jupyter.connections.map(|open| format!("{open} open"));
        let details = [busy, open, jupyter.error.as_ref().map(ToString::to_string)];
        rows.push(row("Jupyter kernels", jupyter.last_seen_seconds_ago, joined(details)));
    }
    rows.push(row("heartbeat", signals.heartbeat.last_seen_seconds_ago, String::new()));
    rows.push(match &signals.keep_alive {
        None => ("keep-alive".to_owned(), "-".to_owned(), String::new()),
        Some(kept) => {
            let left = format!("{} more", span::text(kept.remaining_seconds));
            ("keep-alive".to_owned(), left, kept.reason.as_deref().unwrap_or_default().to_owned())
        }
    });
    let open = match signals.sessions.open {
        0 => String::new(),
        open => format!("{open} open; alone, that is no use"),
    };
    rows.push(row("sessions", signals.sessions.last_seen_seconds_ago, open));
    if signals.oom_kills > 0 {
        rows.push((
            "out of memory".to_owned(),
            format!("{} times", signals.oom_kills),
            "processes were killed".to_owned(),
        ));
    }
    rows
}

fn ago(seconds: Option<u64>) -> String {
    match seconds {
        None => "never".to_owned(),
        Some(0) => "now".to_owned(),
        Some(seconds) => format!("{} ago", span::text(seconds)),
    }
}

fn joined(details: impl IntoIterator<Item = Option<String>>) -> String {
    details.into_iter().flatten().collect::<Vec<_>>().join(", ")
}
