//! `devctl queue --all`: all pending servers. The API returns names to administrators only; for other users, their own
//! servers are merged into the anonymous queue.

use jiff::Timestamp;
use odc_api::queue::{PendingServer, QueueEntry};
use serde::Serialize;

use super::{format_reason, format_start, own_pending};
use crate::model::queue::{QueueData, eta};
use crate::model::server::{DelayedStart, ServerSummary};
use crate::output::duration::format_since;
use crate::output::json::{Eta, ServerJson};
use crate::output::{Column, Table};

/// A pending server. Fields that are not visible to the user are null.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct QueueRow {
    pub position: Option<i64>,
    pub name: Option<String>,
    pub owner: Option<String>,
    pub flavor: Option<String>,
    pub gpus: u32,
    pub nodes: u32,
    pub priority: Option<String>,
    pub since: Option<Timestamp>,
    pub not_before: Option<Timestamp>,
    pub eta: Option<Eta>,
    pub delayed: Option<DelayedStart>,
    pub reason: Option<String>,
    pub message: Option<String>,
}

/// Returns the rows by flavor and position; bookings are last.
pub fn rows(data: &QueueData, servers: &[ServerSummary]) -> Vec<QueueRow> {
    let known = match &data.entries {
        Some(entries) => entries.iter().map(QueueRow::from).collect(),
        // Without the queue API, only the user's own servers are known.
        None => own_pending(data, servers)
            .iter()
            .map(|server| QueueRow::from(&ServerJson::from(server)))
            .collect::<Vec<_>>(),
    };
    let is_known =
        |row: &QueueRow| known.iter().any(|known| (known.position, &known.flavor) == (row.position, &row.flavor));
    let anonymous = data.queues.iter().flatten().flat_map(|queue| {
        let flavor = queue.metadata.name.clone();
        queue.pending.iter().map(move |pending| QueueRow::anonymous(flavor.clone(), pending))
    });
    let mut rows: Vec<QueueRow> = anonymous.filter(|row| !is_known(row)).collect();
    rows.extend(known);
    rows.sort_by_key(|row| {
        let position = (row.position.is_none(), row.flavor.clone(), row.position);
        (position, row.owner.clone(), row.name.clone())
    });
    rows
}

impl QueueRow {
    fn anonymous(flavor: Option<String>, pending: &PendingServer) -> Self {
        Self {
            position: Some(pending.position),
            name: None,
            owner: None,
            flavor,
            gpus: pending.count,
            nodes: pending.nodes,
            priority: Some(format!("{:?}", pending.priority)),
            since: Some(pending.queued_at.0),
            not_before: None,
            eta: eta(&pending.start).as_ref().map(Eta::from),
            delayed: None,
            reason: None,
            message: None,
        }
    }
}

impl From<&QueueEntry> for QueueRow {
    fn from(entry: &QueueEntry) -> Self {
        let namespace = entry.metadata.namespace.clone().unwrap_or_default();
        let owner = odc_api::namespace::owner(&namespace).map_or(namespace, String::from);
        Self {
            position: entry.position,
            name: entry.metadata.name.clone(),
            owner: Some(owner),
            flavor: entry.flavor.as_ref().map(ToString::to_string),
            gpus: entry.count,
            nodes: entry.nodes,
            priority: entry.priority.map(|priority| format!("{priority:?}")),
            since: entry.queued_at.as_ref().map(|time| time.0),
            not_before: entry.not_before.as_ref().map(|time| time.0),
            eta: eta(&entry.start).as_ref().map(Eta::from),
            delayed: entry.delayed.clone().map(DelayedStart::from),
            reason: entry.reason.clone(),
            message: entry.message.clone(),
        }
    }
}

impl From<&ServerJson> for QueueRow {
    fn from(server: &ServerJson) -> Self {
        let queue = server.queue.as_ref();
        Self {
            position: queue.and_then(|queue| queue.position),
            name: Some(server.name.clone()),
            owner: Some(server.owner.clone()),
            flavor: server.flavor.clone(),
            gpus: server.gpus.unwrap_or(0),
            nodes: server.nodes,
            priority: None,
            since: queue.and_then(|queue| queue.since),
            not_before: server.not_before,
            eta: queue.and_then(|queue| queue.eta),
            delayed: queue.and_then(|queue| queue.delayed.clone()),
            reason: queue.and_then(|queue| queue.reason.clone()),
            message: queue.and_then(|queue| queue.message.clone()),
        }
    }
}

pub fn table(rows: &[QueueRow], now: Timestamp) -> Table {
    let mut table = Table::new([
        Column::new("POSITION"),
        Column::new("NAME"),
        Column::new("OWNER").drop_priority(2),
        Column::new("FLAVOR"),
        Column::new("GPUS"),
        Column::new("STARTS").drop_priority(1),
        Column::new("P90 START").drop_priority(5),
        Column::new("WAITING").drop_priority(3),
        Column::new("PRIORITY").wide(),
        Column::new("REASON").drop_priority(4).truncate(),
    ]);
    for row in rows {
        let booked = row.not_before.filter(|start| *start > now);
        let position = if booked.is_some() { Some("booked".to_owned()) } else { row.position.map(|at| at.to_string()) };
        let [start, p90] = format_start(booked, row.eta.map(|eta| (eta.p50, eta.p90)), now);
        let gpus = if row.nodes > 1 { format!("{}×{}", row.nodes, row.gpus) } else { row.gpus.to_string() };
        table.row([
            position.unwrap_or_default().into(),
            row.name.clone().unwrap_or_else(|| "-".to_owned()).into(),
            row.owner.clone().unwrap_or_default().into(),
            row.flavor.clone().unwrap_or_default().into(),
            gpus.into(),
            start.into(),
            p90.into(),
            row.since.map(|time| format_since(time, now)).unwrap_or_default().into(),
            row.priority.clone().unwrap_or_default().into(),
            format_reason(row.message.as_deref(), row.delayed.as_ref(), now).into(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use odc_api::queue::Queue;
    use serde_json::{Value, json};

    use super::*;

    fn pending(position: i64) -> Value {
        json!({"position": position, "count": 4, "nodes": 1, "priority": "Normal", "queuedAt": "2026-01-01T00:00:00Z"})
    }

    fn queue(positions: &[i64]) -> Queue {
        let pending: Vec<Value> = positions.iter().map(|position| pending(*position)).collect();
        serde_json::from_value(json!({"metadata": {"name": "gpu"}, "pending": pending})).unwrap()
    }

    fn entry(name: &str, position: Option<i64>) -> QueueEntry {
        let entry = json!({"metadata": {"name": name, "namespace": "dev-ada"}, "flavor": "gpu", "position": position});
        serde_json::from_value(entry).unwrap()
    }

    #[test]
    fn own_servers_are_merged_into_the_anonymous_queue() {
        let data = QueueData {
            entries: Some(vec![entry("later", None), entry("box", Some(2))]),
            queues: Some(vec![queue(&[1, 2, 3])]),
        };
        let rows = rows(&data, &[]);
        let actual: Vec<_> = rows.iter().map(|row| (row.position, row.name.as_deref())).collect();
        assert_eq!(actual, [(Some(1), None), (Some(2), Some("box")), (Some(3), None), (None, Some("later"))]);
        assert_eq!((rows[0].owner.as_deref(), rows[1].owner.as_deref()), (None, Some("ada")));
    }

    #[test]
    fn positions_are_per_flavor() {
        let mut other = queue(&[1, 2]);
        other.metadata.name = Some("cpu".to_owned());
        let data = QueueData { entries: Some(vec![entry("box", Some(1))]), queues: Some(vec![queue(&[1, 2]), other]) };
        let rows = rows(&data, &[]);
        let actual: Vec<_> = rows.iter().map(|row| (row.flavor.as_deref().unwrap(), row.name.as_deref())).collect();
        assert_eq!(actual, [("cpu", None), ("cpu", None), ("gpu", Some("box")), ("gpu", None)]);
    }
}
