//! The details of a server for `show`, `debug` and after it became ready.

use jiff::Timestamp;
use odc_api::quantity::Quantity;
use odc_api::v1alpha1::Phase;

use crate::context::ClusterContext;
use crate::model::activity::Activity;
use crate::model::server::{Pod, Port, ServerSummary};
use crate::output::duration::{format, format_clock, format_duration, format_since, format_until_expiry};
use crate::output::json::ServerJson;
use crate::output::key_values::KeyValues;
use crate::output::style::{self, BOLD, RED, YELLOW, paint};
use crate::wait::{format_booking, format_queue};

/// What is known besides the object.
#[derive(Clone, Copy, Default)]
pub struct Observed<'a> {
    pub activity: Option<&'a Activity>,
    /// The size of the disk of the home.
    pub home_size: Option<Quantity>,
}

/// Renders a server that just became ready: how to connect, when it expires, its home.
pub fn render_ready(ctx: &ClusterContext, server: &ServerSummary, observed: Observed<'_>, now: Timestamp) -> String {
    let mut rows = KeyValues::default();
    connect_rows(&mut rows, ctx, server, observed.activity);
    rows.add("Home", format_home(server, observed.home_size));
    rows.add("Extend", format!("devctl extend {} 2h", server.name()));
    let expires = server
        .status
        .expires_at
        .as_ref()
        .map(|end| format!(", expires at {} ({})", format_clock(end.0, now), format_until_expiry(end.0, now)));
    format!(
        "\nServer {} is ready: {}{}\n\n{}\n",
        paint(BOLD, server.name()),
        format_machine(server),
        expires.unwrap_or_default(),
        rows.render("  ", ctx.out.width())
    )
}

/// Renders all details and the next step.
pub fn render(ctx: &ClusterContext, server: &ServerSummary, observed: Observed<'_>, now: Timestamp) -> String {
    let mut rows = detail_rows(ctx, server, observed, now);
    rows.add("Next", next_step(server));
    rows.render("", ctx.out.width())
}

/// Renders all details without the next step, which the hints of `devctl debug` replace.
pub fn render_for_debug(ctx: &ClusterContext, server: &ServerSummary, now: Timestamp) -> String {
    detail_rows(ctx, server, Observed::default(), now).render("", ctx.out.width())
}

fn detail_rows(ctx: &ClusterContext, server: &ServerSummary, observed: Observed<'_>, now: Timestamp) -> KeyValues {
    let Observed { activity, home_size } = observed;
    let mut rows = KeyValues::default();
    let json = ServerJson::from(server);
    rows.add("Name", paint(BOLD, server.name()));
    rows.add("Owner", json.owner.clone());
    rows.add("Phase", format_phase(server, now));
    if !server.is_ready() {
        rows.add("Message", json.message.clone().unwrap_or_default());
    }
    rows.add("Machine", format_machine(server));
    rows.add("Image", json.image.clone().unwrap_or_default());
    rows.add("Team", json.team.clone().unwrap_or_default());
    rows.add("Home", format_home(server, home_size));
    rows.add("Queue", format_queue_row(server, now));
    rows.add("Lifetime", format_lifetime(server, now));
    if !server.is_finished() {
        rows.add("Idle", format_idle(server, activity));
    }
    rows.add("Users", server.spec.access.users.join(", "));
    rows.add("Ports", format_ports(server));
    rows.add("Nodes", format_nodes(server));
    rows.add("Placement", format_placement(server));
    let restarts = server.status.restarts.filter(|count| *count > 0);
    rows.add("Restarts", restarts.map(|count| count.to_string()).unwrap_or_default());
    if let Some(kills) = server.status.oom_kills.filter(|count| *count > 0) {
        rows.add("OOM kills", paint(YELLOW, &format!("{kills}: use less memory or a larger flavor")));
    }
    rows.add("Last failure", format_failure(server, now));
    for notice in activity.iter().flat_map(|activity| &activity.notices) {
        rows.add("Notice", paint(YELLOW, notice));
    }
    if server.is_ready() {
        connect_rows(&mut rows, ctx, server, activity);
        rows.add("Host key", json.access.host_key.clone().unwrap_or_default());
    }
    rows
}

fn format_phase(server: &ServerSummary, now: Timestamp) -> String {
    let phase = paint(style::phase_style(server.phase()), server.phase_str());
    let since = server.status.timeline.last().map(|entry| format!(" for {}", format_since(entry.at.0, now)));
    let deleting = if server.is_deleting() { ", being deleted" } else { "" };
    format!("{phase}{}{deleting}", since.unwrap_or_default())
}

fn format_machine(server: &ServerSummary) -> String {
    let flavor = server.flavor().unwrap_or("default flavor");
    let gpus = match server.spec.count {
        None | Some(0) => String::new(),
        Some(1) => ", 1 GPU".to_owned(),
        Some(count) => format!(", {count} GPUs"),
    };
    if server.nodes() > 1 {
        return format!("{flavor}{gpus} on each of {} nodes", server.nodes());
    }
    let node = server.status.pods.first().and_then(|pod| pod.node.as_deref());
    let node = node.map(|node| format!(" on {node}")).unwrap_or_default();
    format!("{flavor}{gpus}{node}")
}

fn format_home(server: &ServerSummary, size: Option<Quantity>) -> String {
    let home = &server.spec.home;
    match (&home.claim, &home.disk, &home.ephemeral) {
        (Some(claim), _, _) => format!("PVC {claim}, kept when the server is deleted"),
        (_, Some(disk), _) => {
            let size = size.map(|size| format!("{size}, ")).unwrap_or_default();
            format!("{size}disk {disk}: kept when the server ends")
        }
        (_, _, Some(size)) => format!("{size}, {}", paint(YELLOW, "ephemeral: deleted with the server")),
        _ => String::new(),
    }
}

fn format_queue_row(server: &ServerSummary, now: Timestamp) -> String {
    if let Some(start) = server.booked_start(now) {
        return format_booking(&server.status.admission.clone().unwrap_or_default(), start, now);
    }
    let Some(admission) = server.status.admission.as_ref().filter(|_| server.position().is_some()) else {
        return String::new();
    };
    let mut text = format_queue(admission, now);
    if let Some(queued_at) = &admission.queued_at {
        text.push_str(&format!(", waiting for {}", format_since(queued_at.0, now)));
    }
    text
}

fn format_lifetime(server: &ServerSummary, now: Timestamp) -> String {
    let requested = server.spec.lifetime.map(format_duration).unwrap_or_default();
    let granted = server.status.lifetime.as_ref().map(|lifetime| format_duration(lifetime.granted));
    let lifetime = match granted.filter(|granted| *granted != requested) {
        Some(granted) => format!("{granted} (requested {requested}; limited by the flavor)"),
        None => requested,
    };
    match (&server.status.expires_at, &server.status.finished_at) {
        (_, Some(finished)) => {
            format!("{lifetime}, finished {} ({} ago)", format_clock(finished.0, now), format_since(finished.0, now))
        }
        (Some(end), None) => {
            format!("{lifetime}, expires at {} ({})", format_clock(end.0, now), format_until_expiry(end.0, now))
        }
        (None, None) => format!("{lifetime} of running time"),
    }
}

/// Returns the idle action and the last activity.
fn format_idle(server: &ServerSummary, activity: Option<&Activity>) -> String {
    let Some(idle) = &server.spec.idle else { return String::new() };
    let action = match idle.action.as_deref() {
        Some("None") => return "no idle action".to_owned(),
        Some("End") => "deleted",
        _ => "hibernated",
    };
    let mut text = format!("{action} after {} idle", idle.timeout.map(format_duration).unwrap_or_default());
    if let Some(activity) = activity {
        let format_seconds = |seconds: u64| format(i64::try_from(seconds).unwrap_or(i64::MAX));
        if let Some(signal) = &activity.last_signal {
            text.push_str(&format!("; last activity {} ago ({})", format_seconds(signal.seconds_ago), signal.kind));
        }
        if let Some(stop) = activity.idle_stop_in_seconds {
            text.push_str(&format!("; {action} in {} without activity", format_seconds(stop)));
        }
    }
    text
}

fn format_ports(server: &ServerSummary) -> String {
    let format_port = |port: &Port| {
        let share = port.share.as_deref().filter(|share| *share != "Private").map(|share| format!(" ({share})"));
        format!("{}={}{}", port.name, port.port, share.unwrap_or_default())
    };
    server.spec.access.ports.iter().map(format_port).collect::<Vec<_>>().join(", ")
}

fn format_placement(server: &ServerSummary) -> String {
    let Some(admission) = server.status.admission.as_ref().filter(|admission| !admission.nodes.is_empty()) else {
        return String::new();
    };
    let rule = match admission.placement.as_deref() {
        Some("BestFit") => " (fullest node with enough room)",
        Some("EmptyNode") => " (empty node; no other had enough room)",
        Some("DeviceNode") => " (node with devices; no other had enough room)",
        Some("SmallestDomain") => " (smallest group of nodes with enough room)",
        _ => "",
    };
    let backfilled = if admission.backfilled { "; backfilled (delays no other server)" } else { "" };
    let borrowed = if admission.borrowed { "; uses borrowed quota (may be preempted)" } else { "" };
    format!("{}{rule}{backfilled}{borrowed}", admission.nodes.join(", "))
}

fn format_nodes(server: &ServerSummary) -> String {
    if server.nodes() == 1 {
        return String::new();
    }
    let row = |pod: &Pod| {
        let ready = if pod.ready { "ready" } else { "not ready" };
        format!("{}  {}  {ready}", pod.name, pod.node.as_deref().unwrap_or("-"))
    };
    server.status.pods.iter().map(row).collect::<Vec<_>>().join("\n")
}

fn format_failure(server: &ServerSummary, now: Timestamp) -> String {
    let Some(failure) = &server.status.last_failure else { return String::new() };
    let text = format!("{} ({} ago)", failure.message, format_since(failure.time.0, now));
    let text = if server.phase() == Some(Phase::Failed) { paint(RED, &text) } else { text };
    match failure.log_tail.as_deref().filter(|tail| !tail.trim().is_empty()) {
        None => text,
        Some(tail) => format!("{text}\n{}", tail.trim_end()),
    }
}

fn connect_rows(rows: &mut KeyValues, ctx: &ClusterContext, server: &ServerSummary, activity: Option<&Activity>) {
    let (name, host) = (server.name(), format!("{}.odc", server.name()));
    let home = odc_api::HOME;
    rows.add("Shell", format!("devctl ssh {name}"));
    rows.add("SSH", format!("ssh {host} (after `devctl config-ssh`)"));
    rows.add("VS Code", format!("vscode://vscode-remote/ssh-remote+{host}{home}"));
    rows.add("Cursor", format!("cursor://vscode-remote/ssh-remote+{host}{home}"));
    let gateway = format!("host={host}&port=22&user={}&type=ssh&deploy=false&projectPath={home}", ctx.login_name());
    rows.add("JetBrains", format!("jetbrains-gateway://connect#{gateway}"));
    if server.spec.access.jupyter {
        rows.add("Jupyter", format_jupyter(server, activity));
    }
}

fn format_jupyter(server: &ServerSummary, activity: Option<&Activity>) -> String {
    let name = server.name();
    let Some(jupyter) = activity.and_then(|activity| activity.jupyter.as_ref()) else {
        return format!("starting; run `devctl show {name}` for the URL");
    };
    match (jupyter.url(), jupyter.port, &jupyter.error) {
        (Some(url), Some(port), _) => format!("{url}\nafter `devctl port-forward {name} {port}`"),
        (_, _, Some(error)) => paint(YELLOW, error),
        _ if jupyter.state == "absent" => {
            paint(YELLOW, "JupyterLab is not installed in the image: install it, or use another image")
        }
        _ => format!("{}; run `devctl show {name}` for the URL", jupyter.state),
    }
}

/// Returns the usual next command in this phase.
fn next_step(server: &ServerSummary) -> String {
    let name = server.name();
    match server.phase() {
        Some(Phase::Hibernated | Phase::Hibernating) => format!("run `devctl ssh {name}` to wake it and connect"),
        Some(Phase::Failed) => {
            format!("run `devctl debug {name}` for details, or `devctl create {name}` to create it again")
        }
        Some(Phase::Expired | Phase::Cancelled) => {
            format!("run `devctl create {name}` to create a new server of this name")
        }
        Some(Phase::Pending | Phase::Building | Phase::Queued | Phase::Starting) => {
            format!("run `devctl ssh {name}` to wait for it and connect, or `devctl debug {name}` for details")
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn home_on_a_disk_has_its_size() {
        let server = json!({"metadata": {"name": "box"}, "spec": {"home": {"disk": "home"}}});
        let server: ServerSummary = serde_json::from_value(server).unwrap();
        let text = format_home(&server, "20Gi".parse().ok());
        assert_eq!(text, "20Gi, disk home: kept when the server ends");
        assert_eq!(format_home(&server, None), "disk home: kept when the server ends");
    }
}
