//! The table of servers.

use jiff::Timestamp;
use odc_api::v1alpha1::Phase;

use crate::model::server::{Condition, ServerSummary};
use crate::output::duration::{format_clock, format_duration, format_since, format_until, format_until_expiry};
use crate::output::style::{self, DIM, PLAIN, RED, YELLOW};
use crate::output::{Cell, Column, Table};

/// Servers that expire within this time are highlighted.
const EXPIRES_SOON_SECONDS: i64 = 30 * 60;

pub fn table(servers: &[ServerSummary], owners: bool, now: Timestamp) -> Table {
    let mut columns = vec![Column::new("NAME")];
    if owners {
        columns.push(Column::new("OWNER"));
    }
    columns.extend([
        Column::new("PHASE"),
        Column::new("FLAVOR").drop_priority(6),
        Column::new("GPUS").drop_priority(7),
        Column::new("QUEUE").drop_priority(3),
        Column::new("EXPIRES").drop_priority(1),
        Column::new("AGE").drop_priority(8),
        Column::new("HOME").wide(),
        Column::new("NODES").wide(),
        Column::new("TEAM").wide(),
        Column::new("IMAGE").wide(),
        Column::new("NOTE").drop_priority(4).truncate(),
    ]);
    let mut table = Table::new(columns);
    for server in servers {
        let mut row: Vec<Cell> = vec![server.name().into()];
        if owners {
            row.push(server.owner().into());
        }
        row.extend(cells(server, now));
        table.row(row);
    }
    table
}

fn cells(server: &ServerSummary, now: Timestamp) -> [Cell; 11] {
    let phase = if server.is_deleting() { "Deleting" } else { server.phase_str() };
    let image = server.spec.image.as_ref().and_then(|image| image.reference.clone().or_else(|| image.build.clone()));
    [
        Cell::styled(phase, style::phase_style(server.phase())),
        server.flavor().unwrap_or_default().into(),
        gpus(server).into(),
        queue(server, now).into(),
        expires(server, now),
        server.created().map(|created| format_since(created, now)).unwrap_or_default().into(),
        home(server).into(),
        nodes(server).into(),
        server.spec.team.clone().unwrap_or_default().into(),
        image.unwrap_or_default().into(),
        note(server, now),
    ]
}

fn gpus(server: &ServerSummary) -> String {
    match (server.spec.count, server.nodes()) {
        (None | Some(0), 1) => String::new(),
        (None | Some(0), nodes) => format!("{nodes} nodes"),
        (Some(count), 1) => count.to_string(),
        (Some(count), nodes) => format!("{nodes}×{count}"),
    }
}

fn queue(server: &ServerSummary, now: Timestamp) -> String {
    if let Some(start) = server.booked_start(now) {
        return format!("booked {}", format_clock(start, now));
    }
    let Some(position) = server.position() else { return String::new() };
    let eta = server.status.admission.as_ref().and_then(|admission| admission.eta.as_ref());
    match eta {
        None => position.to_string(),
        Some(eta) => format!("{position}, ~{}", format_until(eta.p50.0, now)),
    }
}

fn expires(server: &ServerSummary, now: Timestamp) -> Cell {
    if server.is_finished() {
        let finished = server.status.finished_at.as_ref().map(|time| format!("{} ago", format_since(time.0, now)));
        return Cell::styled(finished.unwrap_or_default(), DIM);
    }
    if let Some(end) = &server.status.expires_at {
        let soon = end.0.as_second() - now.as_second() < EXPIRES_SOON_SECONDS;
        return Cell::styled(format_until_expiry(end.0, now), if soon { YELLOW } else { PLAIN });
    }
    let granted = server.status.lifetime.as_ref().map(|lifetime| lifetime.granted).or(server.spec.lifetime);
    Cell::styled(granted.map(|granted| format!("after {}", format_duration(granted))).unwrap_or_default(), DIM)
}

pub fn home(server: &ServerSummary) -> String {
    let home = &server.spec.home;
    let named = home.claim.as_ref().or(home.disk.as_ref()).cloned();
    named.or_else(|| home.ephemeral.as_ref().map(|size| format!("{size}, ephemeral"))).unwrap_or_default()
}

fn nodes(server: &ServerSummary) -> String {
    let nodes = server.status.pods.iter().filter_map(|pod| pod.node.clone()).collect::<Vec<_>>();
    if !nodes.is_empty() {
        return nodes.join(",");
    }
    server.status.admission.as_ref().map(|admission| admission.nodes.join(",")).unwrap_or_default()
}

/// Returns the most important fact beside the phase.
pub fn note(server: &ServerSummary, now: Timestamp) -> Cell {
    let rejected = server.condition("Accepted").filter(|accepted| accepted.status == "False");
    let failure = server.status.last_failure.as_ref();
    match server.phase() {
        Some(Phase::Failed) => {
            return Cell::styled(failure.map(|failure| failure.message.clone()).unwrap_or_default(), RED);
        }
        Some(Phase::Pending | Phase::Building) => {
            let text = rejected.or_else(|| failed_precondition(server)).map(|condition| condition.message.clone());
            return Cell::styled(text.unwrap_or_default(), YELLOW);
        }
        Some(Phase::Queued) => {
            let message = server.status.admission.as_ref().and_then(|admission| admission.message.clone());
            return message.unwrap_or_default().into();
        }
        Some(Phase::Hibernated) => {
            let Some(hibernation) = &server.status.hibernation else { return "".into() };
            let cause = match hibernation.cause.as_str() {
                "Idle" => "idle",
                "Drain" => "node drained",
                _ => "by user",
            };
            return format!("hibernated {} ago ({cause})", format_since(hibernation.since.0, now)).into();
        }
        Some(Phase::Starting) => {
            return server.condition("Ready").map(|ready| ready.message.clone()).unwrap_or_default().into();
        }
        _ => {}
    }
    if server.condition_true("Idle") && !server.is_finished() {
        return Cell::styled("idle, stopping soon", YELLOW);
    }
    match server.status.oom_kills.unwrap_or(0) {
        0 => "".into(),
        1 => Cell::styled("1 OOM kill", YELLOW),
        kills => Cell::styled(format!("{kills} OOM kills"), YELLOW),
    }
}

fn failed_precondition(server: &ServerSummary) -> Option<&Condition> {
    ["ImageReady", "DiskReady"]
        .into_iter()
        .filter_map(|kind| server.condition(kind))
        .find(|condition| condition.status == "False")
}
