//! The status as a table. No I/O.

use odc_control::{IdleAction, JupyterState, Signals, Status, duration};

use crate::cli::status::{commands, jupyter_url};
use crate::text_format::size;

type Row = (String, String, String);

pub fn render(status: &Status) -> String {
    let mut rows: Vec<Row> = Vec::new();
    let mut add = |name: &str, value: String| rows.push((name.to_owned(), value, String::new()));
    add("Server", or_dash(&status.server));
    add("Owner", or_dash(&status.owner));
    add("Flavor", or_dash(&status.flavor));
    add("Expires", expiry(status));
    if let Some((extend, delete)) = commands(status) {
        add("  Extend", extend);
        add("  Delete", delete);
    }
    add("Idle", idle(status));
    if let Some(idle_status) = &status.idle_status {
        let age = status.idle_status_seconds_ago.map(|ago| format!(" ({} ago)", duration::format(ago)));
        add("  Last check", format!("{idle_status}{}", age.unwrap_or_default()));
    }
    add("Jupyter", jupyter(status));
    let summary = align(&rows);

    let mut rows = vec![("SIGNAL".to_owned(), "LAST SEEN".to_owned(), "DETAILS".to_owned())];
    rows.extend(signals(&status.signals));
    let notices: String = status.notices.iter().map(|notice| format!("! {notice}\n")).collect();
    let gap = if notices.is_empty() { "" } else { "\n" };
    format!("{notices}{gap}{summary}\n{}", align(&rows))
}

/// Pads the first two columns to their widest cell.
fn align(rows: &[Row]) -> String {
    let width =
        |column: fn(&Row) -> &String| rows.iter().map(|row| column(row).chars().count()).max().unwrap_or_default();
    let (first, second) = (width(|row| &row.0), width(|row| &row.1));
    let line = |(name, value, details): &Row| {
        format!("{}\n", format!("{name:first$}   {value:second$}   {details}").trim_end())
    };
    rows.iter().map(line).collect()
}

fn or_dash(text: &str) -> String {
    if text.is_empty() { "-".to_owned() } else { text.to_owned() }
}

fn expiry(status: &Status) -> String {
    match status.remaining_seconds {
        None => "unknown".to_owned(),
        Some(0) => "now; the server is stopping".to_owned(),
        Some(seconds) => format!("in {}", duration::format(seconds)),
    }
}

fn idle(status: &Status) -> String {
    let Some(policy) = status.idle else { return "unknown".to_owned() };
    let timeout = duration::format(policy.limit_seconds);
    match policy.action {
        IdleAction::Hibernate => format!("hibernates after {timeout} idle"),
        IdleAction::End => format!("stops after {timeout} idle"),
        IdleAction::None => "idle timeout disabled".to_owned(),
    }
}

fn jupyter(status: &Status) -> String {
    match status.jupyter.state {
        JupyterState::Off => "off".to_owned(),
        JupyterState::Starting => "starting".to_owned(),
        JupyterState::Running => jupyter_url(status).unwrap_or_else(|| "running".to_owned()),
        JupyterState::Restarting | JupyterState::Absent => {
            status.jupyter.error.as_deref().unwrap_or("unknown error").to_owned()
        }
    }
}

fn signals(signals: &Signals) -> Vec<Row> {
    let row = |name: &str, last_seen: Option<u64>, details: String| (name.to_owned(), age(last_seen), details);
    let mut rows = vec![
        row("terminal input", signals.terminal_input.last_seen_seconds_ago, String::new()),
        row("terminal output", signals.terminal_output.last_seen_seconds_ago, String::new()),
        row("file transfer, commands", signals.transfer.last_seen_seconds_ago, String::new()),
    ];
    let newest = signals.forwarded.iter().filter_map(|port| port.last_seen_seconds_ago).min();
    let ports: Vec<String> =
        signals.forwarded.iter().take(3).map(|port| format!("{}: {}", port.port, size(port.bytes))).collect();
    rows.push(row("forwarded ports", newest, ports.join(", ")));
    for (name, tree) in [
        ("session processes", &signals.busy.sessions),
        ("entrypoint processes", &signals.busy.entrypoint),
        ("other processes", &signals.busy.others),
    ] {
        let process = tree.process.as_deref().unwrap_or_default().to_owned();
        rows.push(row(name, tree.last_seen_seconds_ago, process));
    }
    if let Some(gpu) = &signals.gpu {
        let percent = gpu.percent.map(|percent| format!("{percent}% busy"));
        let memory = gpu.memory_bytes.map(|bytes| format!("{} in use", size(bytes)));
        let details = [percent, memory, gpu.error.as_ref().map(ToString::to_string)];
        rows.push(row("GPU", gpu.last_seen_seconds_ago, join(details)));
    }
    if let Some(jupyter) = &signals.jupyter {
        let busy = jupyter.busy_kernels.map(|busy| format!("{busy} busy"));
        let open = jupyter.connections.map(|open| format!("{open} open"));
        let details = [busy, open, jupyter.error.as_ref().map(ToString::to_string)];
        rows.push(row("Jupyter kernels", jupyter.last_seen_seconds_ago, join(details)));
    }
    rows.push(row("heartbeat", signals.heartbeat.last_seen_seconds_ago, String::new()));
    rows.push(match &signals.keep_alive {
        None => ("keep-alive".to_owned(), "-".to_owned(), String::new()),
        Some(keep_alive) => {
            let remaining = format!("{} left", duration::format(keep_alive.remaining_seconds));
            ("keep-alive".to_owned(), remaining, keep_alive.reason.as_deref().unwrap_or_default().to_owned())
        }
    });
    let open = match signals.sessions.open {
        0 => String::new(),
        open => format!("{open} open (open sessions alone do not count as activity)"),
    };
    rows.push(row("sessions", signals.sessions.last_seen_seconds_ago, open));
    if signals.oom_kills > 0 {
        let count = signals.oom_kills.to_string();
        rows.push(("OOM kills".to_owned(), count, "processes killed by the kernel, out of memory".to_owned()));
    }
    rows
}

fn age(seconds: Option<u64>) -> String {
    match seconds {
        None => "never".to_owned(),
        Some(0) => "now".to_owned(),
        Some(seconds) => format!("{} ago", duration::format(seconds)),
    }
}

fn join(details: impl IntoIterator<Item = Option<String>>) -> String {
    details.into_iter().flatten().collect::<Vec<_>>().join(", ")
}
