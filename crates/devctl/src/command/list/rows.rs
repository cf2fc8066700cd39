//! Servers as rows of a table.

use jiff::Timestamp;
use odc_api::v1alpha1::Phase;

use crate::glance::Glance;
use crate::output::style::{self, DIM, PLAIN, RED, YELLOW};
use crate::output::time::{clock, left, since, span, until, whole_seconds};
use crate::output::{Cell, Column, Table};

/// Less than this left is said in colour.
const SOON: i64 = 30 * 60;

pub fn table(servers: &[Glance], owners: bool, now: Timestamp) -> Table {
    let mut columns = vec![Column::new("NAME")];
    if owners {
        columns.push(Column::new("OWNER"));
    }
    columns.extend([
        Column::new("PHASE"),
        Column::new("FLAVOR").spare(6),
        Column::new("GPUS").spare(7),
        Column::new("QUEUE").spare(3),
        Column::new("ENDS").spare(1),
        Column::new("AGE").spare(8),
        Column::new("HOME").wide(),
        Column::new("NODES").wide(),
        Column::new("TEAM").wide(),
        Column::new("IMAGE").wide(),
        Column::new("NOTE").spare(4).elastic(),
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

fn cells(server: &Glance, now: Timestamp) -> [Cell; 11] {
    let phase = if server.deleting() { "Deleting" } else { server.phase_word() };
    let image = server.spec.image.as_ref().and_then(|image| image.reference.clone().or_else(|| image.build.clone()));
    [
        Cell::styled(phase, style::of_phase(server.phase())),
        server.flavor().unwrap_or_default().into(),
        gpus(server).into(),
        queue(server, now).into(),
        ends(server, now),
        server.created().map(|created| since(created, now)).unwrap_or_default().into(),
        home(server).into(),
        nodes(server).into(),
        server.spec.team.clone().unwrap_or_default().into(),
        image.unwrap_or_default().into(),
        note(server, now),
    ]
}

fn gpus(server: &Glance) -> String {
    match (server.spec.count, server.nodes()) {
        (None | Some(0), 1) => String::new(),
        (None | Some(0), nodes) => format!("{nodes} nodes"),
        (Some(count), 1) => count.to_string(),
        (Some(count), nodes) => format!("{nodes}×{count}"),
    }
}

fn queue(server: &Glance, now: Timestamp) -> String {
    if let Some(at) = server.booked(now) {
        return format!("booked {}", clock(at, now));
    }
    let Some(position) = server.position() else { return String::new() };
    let eta = server.status.admission.as_ref().and_then(|admission| admission.eta.as_ref());
    match eta {
        None => position.to_string(),
        Some(eta) => format!("{position}, ~{}", until(eta.p50.0, now)),
    }
}

fn ends(server: &Glance, now: Timestamp) -> Cell {
    if server.ended() {
        let ended = server.status.finished_at.as_ref().map(|time| format!("{} ago", since(time.0, now)));
        return Cell::styled(ended.unwrap_or_default(), DIM);
    }
    if let Some(end) = &server.status.expires_at {
        let soon = end.0.as_second() - now.as_second() < SOON;
        return Cell::styled(left(end.0, now), if soon { YELLOW } else { PLAIN });
    }
    let granted = server.status.lifetime.as_ref().map(|lifetime| lifetime.granted).or(server.spec.lifetime);
    Cell::styled(granted.map(|granted| format!("after {}", span(whole_seconds(granted)))).unwrap_or_default(), DIM)
}

pub fn home(server: &Glance) -> String {
    let home = &server.spec.home;
    let named = home.claim.as_ref().or(home.disk.as_ref()).cloned();
    named.or_else(|| home.ephemeral.as_ref().map(|size| format!("{size}, ephemeral"))).unwrap_or_default()
}

fn nodes(server: &Glance) -> String {
    let of_pods = server.status.pods.iter().filter_map(|pod| pod.node.clone()).collect::<Vec<_>>();
    if !of_pods.is_empty() {
        return of_pods.join(",");
    }
    server.status.admission.as_ref().map(|admission| admission.nodes.join(",")).unwrap_or_default()
}

/// What else one should know at first sight.
pub fn note(server: &Glance, now: Timestamp) -> Cell {
    let refused = server.condition("Accepted").filter(|accepted| accepted.status == "False");
    let failure = server.status.last_failure.as_ref();
    match server.phase() {
        Some(Phase::Failed) => {
            return Cell::styled(failure.map(|failure| failure.message.clone()).unwrap_or_default(), RED);
        }
        Some(Phase::Pending | Phase::Building) => {
            let text = refused.or_else(|| waits_for(server)).map(|condition| condition.message.clone());
            return Cell::styled(text.unwrap_or_default(), YELLOW);
        }
        Some(Phase::Queued) => {
            let message = server.status.admission.as_ref().and_then(|admission| admission.message.clone());
            return message.unwrap_or_default().into();
        }
        Some(Phase::Hibernated) => {
            let Some(sleep) = &server.status.hibernation else { return "".into() };
            let by = match sleep.by.as_str() {
                "Idle" => "nobody used it",
                "Drain" => "its node was emptied",
                _ => "asked to",
            };
            return format!("sleeps since {} ago: {by}", since(sleep.since.0, now)).into();
        }
        Some(Phase::Starting) => {
            return server.condition("Ready").map(|ready| ready.message.clone()).unwrap_or_default().into();
        }
        _ => {}
    }
    if server.holds("Idle") && !server.ended() {
        return Cell::styled("nobody uses it: it stops soon", YELLOW);
    }
    match server.status.oom_kills.unwrap_or(0) {
        0 => "".into(),
        1 => Cell::styled("ran out of memory once", YELLOW),
        times => Cell::styled(format!("ran out of memory {times} times"), YELLOW),
    }
}

fn waits_for(server: &Glance) -> Option<&crate::glance::Condition> {
    ["ImageReady", "DiskReady"]
        .into_iter()
        .filter_map(|kind| server.condition(kind))
        .find(|part| part.status == "False")
}
