//! What one should know about a server: when it is ready, and when it is shown.

use std::collections::VecDeque;

use jiff::Timestamp;
use odc_api::v1alpha1::Phase;

use crate::app::App;
use crate::glance::Glance;
use crate::output::style::{self, BOLD, DIM, RED, YELLOW, painted};
use crate::output::table::wrap;
use crate::output::time::{clock, left, since, span};
use crate::view::Activity;

/// Names on the left, values on the right.
#[derive(Default)]
struct Rows(Vec<(String, String)>);

impl Rows {
    fn add(&mut self, name: &str, value: impl Into<String>) {
        let value = value.into();
        if !value.is_empty() {
            self.0.push((name.to_owned(), value));
        }
    }

    fn text(&self, indent: &str, width: Option<usize>) -> String {
        let names = self.0.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
        let room = width.map_or(usize::MAX, |width| width.saturating_sub(indent.len() + names + 2));
        let row = |(name, value): &(String, String)| {
            let mut lines: VecDeque<String> = value.lines().flat_map(|line| broken(line, room)).collect();
            let first = lines.pop_front().unwrap_or_default();
            let further: String = lines.iter().map(|line| format!("{indent}{:names$}  {line}\n", "")).collect();
            format!("{indent}{}  {first}\n{further}", painted(DIM, &format!("{name:names$}")))
        };
        self.0.iter().map(row).collect()
    }
}

/// A sentence is broken where the terminal ends. What is to be copied is not, nor what was arranged already.
fn broken(line: &str, room: usize) -> Vec<String> {
    let as_it_is = line.contains("://") || line.contains("  ") || line.contains('\x1b') || line.starts_with("ssh-");
    if as_it_is || line.chars().count() <= room { vec![line.to_owned()] } else { wrap(line, room) }
}

/// A server that has just become ready: the ways in, the end, the home.
pub fn ready(app: &App, server: &Glance, activity: Option<&Activity>, now: Timestamp) -> String {
    let mut rows = Rows::default();
    ways_in(&mut rows, app, server, activity);
    rows.add("Home", home(server));
    rows.add("More time", format!("devctl extend {} 2h", server.name()));
    let until =
        server.status.expires_at.as_ref().map(|end| format!(", until {} ({})", clock(end.0, now), left(end.0, now)));
    format!(
        "\n{} is ready: {}{}\n\n{}\n",
        painted(BOLD, server.name()),
        machine(server),
        until.unwrap_or_default(),
        rows.text("  ", app.out.width())
    )
}

/// Everything.
pub fn whole(app: &App, server: &Glance, activity: Option<&Activity>, now: Timestamp) -> String {
    let mut rows = Rows::default();
    let view = crate::view::Server::from(server);
    rows.add("Name", painted(BOLD, server.name()));
    rows.add("Owner", view.owner.clone());
    rows.add("Phase", phase(server, now));
    if !server.ready() {
        rows.add("Why", view.message.clone().unwrap_or_default());
    }
    rows.add("Machine", machine(server));
    rows.add("Image", view.image.clone().unwrap_or_default());
    rows.add("Team", view.team.clone().unwrap_or_default());
    rows.add("Home", home(server));
    rows.add("Queue", queue(server, now));
    rows.add("Time", time(server, now));
    if !server.ended() {
        rows.add("When idle", idle(server, activity));
    }
    rows.add("Users", server.spec.access.users.join(", "));
    rows.add("Ports", ports(server));
    rows.add("Nodes", nodes(server));
    rows.add("Placed", placed(server));
    rows.add(
        "Restarts",
        server.status.restarts.filter(|times| *times > 0).map(|times| times.to_string()).unwrap_or_default(),
    );
    if let Some(kills) = server.status.oom_kills.filter(|times| *times > 0) {
        rows.add(
            "Out of memory",
            painted(YELLOW, &format!("{kills} processes were killed: take more memory, or use less")),
        );
    }
    rows.add("Last failure", failure(server, now));
    for notice in activity.iter().flat_map(|activity| &activity.notices) {
        rows.add("Notice", painted(YELLOW, notice));
    }
    if server.ready() {
        ways_in(&mut rows, app, server, activity);
        rows.add("Host key", view.access.host_key.clone().unwrap_or_default());
    }
    rows.add("Next", next(server));
    rows.text("", app.out.width())
}

fn phase(server: &Glance, now: Timestamp) -> String {
    let phase = painted(style::of_phase(server.phase()), server.phase_word());
    let since_when = server.status.timeline.last().map(|entry| format!(" for {}", since(entry.at.0, now)));
    let deleting = if server.deleting() { ", being deleted" } else { "" };
    format!("{phase}{}{deleting}", since_when.unwrap_or_default())
}

fn machine(server: &Glance) -> String {
    let flavor = server.flavor().unwrap_or("the default flavor");
    let devices = match server.spec.count {
        None | Some(0) => String::new(),
        Some(1) => ", 1 GPU".to_owned(),
        Some(count) => format!(", {count} GPUs"),
    };
    match server.nodes() {
        1 => format!("{flavor}{devices}{}", on(server)),
        nodes => format!("{flavor}{devices} on each of {nodes} nodes"),
    }
}

fn on(server: &Glance) -> String {
    let node = server.status.pods.first().and_then(|pod| pod.node.as_deref());
    node.map(|node| format!(" on {node}")).unwrap_or_default()
}

fn home(server: &Glance) -> String {
    let home = &server.spec.home;
    match (&home.claim, &home.disk, &home.ephemeral) {
        (Some(claim), _, _) => format!("claim {claim}, kept when the server ends"),
        (_, Some(disk), _) => format!("disk {disk}, kept when the server ends"),
        (_, _, Some(size)) => format!("{size} on the node: {}", painted(YELLOW, "gone when the server ends")),
        _ => String::new(),
    }
}

fn queue(server: &Glance, now: Timestamp) -> String {
    if let Some(at) = server.booked(now) {
        return crate::wait::booked_words(&server.status.admission.clone().unwrap_or_default(), at, now);
    }
    let Some(admission) = server.status.admission.as_ref().filter(|_| server.position().is_some()) else {
        return String::new();
    };
    let mut text = crate::wait::queue_words(admission, now);
    if let Some(since_when) = &admission.queued_at {
        text.push_str(&format!(", waiting for {}", since(since_when.0, now)));
    }
    text
}

fn time(server: &Glance, now: Timestamp) -> String {
    let asked = server.spec.lifetime.map(|asked| asked.to_string()).unwrap_or_default();
    let granted = server.status.lifetime.as_ref().map(|lifetime| lifetime.granted.to_string());
    let clamped = granted.as_ref().filter(|granted| **granted != asked);
    let amount = match clamped {
        Some(granted) => format!("{granted} (asked for {asked}; the flavor allows no more)"),
        None => asked,
    };
    match (&server.status.expires_at, &server.status.finished_at) {
        (_, Some(finished)) => format!("{amount}, ended {} ({} ago)", clock(finished.0, now), since(finished.0, now)),
        (Some(end), None) => format!("{amount}, until {} ({})", clock(end.0, now), left(end.0, now)),
        (None, None) => format!("{amount} of running time"),
    }
}

/// When idleness stops it, and which sign of use was the last.
fn idle(server: &Glance, activity: Option<&Activity>) -> String {
    let Some(idle) = &server.spec.idle else { return String::new() };
    let action = match idle.action.as_deref() {
        Some("None") => return "goes on".to_owned(),
        Some("End") => "ends",
        _ => "sleeps",
    };
    let mut text = format!("{action} after {}", idle.timeout.map(|time| time.to_string()).unwrap_or_default());
    if let Some(activity) = activity {
        if let Some(signal) = &activity.last_signal {
            let ago = span(i64::try_from(signal.seconds_ago).unwrap_or(i64::MAX));
            text.push_str(&format!("; last use {ago} ago ({})", signal.kind));
        }
        if let Some(stop) = activity.idle_stop_in_seconds {
            let stop = span(i64::try_from(stop).unwrap_or(i64::MAX));
            text.push_str(&format!("; without more use it {action} in {stop}"));
        }
    }
    text
}

fn ports(server: &Glance) -> String {
    let port = |port: &crate::glance::Port| {
        let share = port.share.as_deref().filter(|share| *share != "Private").map(|share| format!(" ({share})"));
        format!("{}={}{}", port.name, port.port, share.unwrap_or_default())
    };
    server.spec.access.ports.iter().map(port).collect::<Vec<_>>().join(", ")
}

/// Where it was put and why there.
fn placed(server: &Glance) -> String {
    let Some(admission) = server.status.admission.as_ref().filter(|admission| !admission.nodes.is_empty()) else {
        return String::new();
    };
    let why = match admission.placement.as_deref() {
        Some("Fullest") => ", where the least room was left that is enough",
        Some("WholeNode") => ", which was empty: nothing smaller had room",
        Some("DeviceNode") => ", which has devices: no other had room",
        Some("TightestGroup") => ", in the smallest group of nodes that is enough",
        _ => "",
    };
    let backfilled = if admission.backfilled { "; before others in the queue, whom it delays not at all" } else { "" };
    let lent = if admission.borrowed { "; partly lent by other teams, who may ask for it" } else { "" };
    format!("on {}{why}{backfilled}{lent}", admission.nodes.join(", "))
}

fn nodes(server: &Glance) -> String {
    if server.nodes() == 1 {
        return String::new();
    }
    let row = |pod: &crate::glance::Pod| {
        let ready = if pod.ready { "ready" } else { "not ready" };
        format!("{}  {}  {ready}", pod.name, pod.node.as_deref().unwrap_or("-"))
    };
    server.status.pods.iter().map(row).collect::<Vec<_>>().join("\n")
}

fn failure(server: &Glance, now: Timestamp) -> String {
    let Some(failure) = &server.status.last_failure else { return String::new() };
    let text = format!("{} ({} ago)", failure.message, since(failure.time.0, now));
    let text = if server.phase() == Some(Phase::Failed) { painted(RED, &text) } else { text };
    match failure.log_tail.as_deref().filter(|tail| !tail.trim().is_empty()) {
        None => text,
        Some(tail) => format!("{text}\n{}", tail.trim_end()),
    }
}

fn ways_in(rows: &mut Rows, app: &App, server: &Glance, activity: Option<&Activity>) {
    let (name, host) = (server.name(), format!("{}.odc", server.name()));
    let home = odc_api::HOME;
    rows.add("Shell", format!("devctl ssh {name}"));
    rows.add("ssh", format!("ssh {host}     after devctl config-ssh, also for what follows"));
    rows.add("VS Code", format!("vscode://vscode-remote/ssh-remote+{host}{home}"));
    rows.add("Cursor", format!("cursor://vscode-remote/ssh-remote+{host}{home}"));
    let gateway = format!("host={host}&port=22&user={}&type=ssh&deploy=false&projectPath={home}", app.login());
    rows.add("JetBrains", format!("jetbrains-gateway://connect#{gateway}"));
    if server.spec.access.jupyter {
        rows.add("Jupyter", jupyter(server, activity));
    }
}

fn jupyter(server: &Glance, activity: Option<&Activity>) -> String {
    let name = server.name();
    let Some(jupyter) = activity.and_then(|activity| activity.jupyter.as_ref()) else {
        return format!("devctl show {name} says where, when it has started");
    };
    match (jupyter.url(), jupyter.port, &jupyter.error) {
        (Some(url), Some(port), _) => format!("{url}\nafter devctl port-forward {name} {port}"),
        (_, _, Some(error)) => painted(YELLOW, error),
        _ if jupyter.state == "absent" => {
            painted(YELLOW, "the image has no Jupyter Lab: take one that has, or install it")
        }
        _ => format!("{}; devctl show {name} says where, when it has started", jupyter.state),
    }
}

/// What people usually do with a server in this state.
fn next(server: &Glance) -> String {
    let name = server.name();
    match server.phase() {
        Some(Phase::Hibernated | Phase::Hibernating) => format!("devctl ssh {name} wakes it"),
        Some(Phase::Failed) => format!("devctl debug {name} says more; devctl create {name} makes a new one"),
        Some(Phase::Expired | Phase::Cancelled) => format!("devctl create {name} makes a new one of the same name"),
        Some(Phase::Pending | Phase::Building | Phase::Queued | Phase::Starting) => {
            format!("devctl ssh {name} waits for it; devctl debug {name} says what it waits for")
        }
        _ => String::new(),
    }
}
