//! Everybody who waits. Names are shown where the API gives them: an administrator's question names all, a person's own
//! servers are found among those who have no name.

use jiff::Timestamp;
use odc_api::queue::{Moved, QueueEntry, Start, Waiting};
use serde::Serialize;

use super::{Told, own, starts, why};
use crate::glance::Glance;
use crate::output::time::since;
use crate::output::{Column, Table};
use crate::view::{Eta, Server};

/// Somebody who waits. What may not be known is null.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
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
    pub moved: Option<Moved>,
    pub reason: Option<String>,
    pub message: Option<String>,
}

/// In the order of the queue of each flavor; bookings come last.
pub fn rows(told: &Told, servers: &[Glance]) -> Vec<Row> {
    let known = match &told.entries {
        Some(entries) => entries.iter().map(Row::from).collect(),
        // The queue cannot be asked: what is known is one's own.
        None => own(told, servers).iter().map(|server| Row::from(&Server::from(server))).collect::<Vec<_>>(),
    };
    let is_known = |row: &Row| known.iter().any(|known| (known.position, &known.flavor) == (row.position, &row.flavor));
    let nameless = told.queues.iter().flatten().flat_map(|queue| {
        let flavor = queue.metadata.name.clone();
        queue.waiting.iter().map(move |waiting| Row::nameless(flavor.clone(), waiting))
    });
    let mut rows: Vec<Row> = nameless.filter(|row| !is_known(row)).collect();
    rows.extend(known);
    rows.sort_by_key(|row| {
        let place = (row.position.is_none(), row.flavor.clone(), row.position);
        (place, row.owner.clone(), row.name.clone())
    });
    rows
}

impl Row {
    fn nameless(flavor: Option<String>, waiting: &Waiting) -> Self {
        Self {
            position: Some(waiting.position),
            name: None,
            owner: None,
            flavor,
            gpus: waiting.count,
            nodes: waiting.nodes,
            priority: Some(format!("{:?}", waiting.priority)),
            since: Some(waiting.queued_at.0),
            not_before: None,
            eta: eta(&waiting.start),
            moved: None,
            reason: None,
            message: None,
        }
    }
}

impl From<&QueueEntry> for Row {
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
            eta: eta(&entry.start),
            moved: entry.moved.clone(),
            reason: entry.reason.clone(),
            message: entry.message.clone(),
        }
    }
}

impl From<&Server> for Row {
    fn from(server: &Server) -> Self {
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
            moved: queue.and_then(|queue| queue.moved.clone()),
            reason: queue.and_then(|queue| queue.reason.clone()),
            message: queue.and_then(|queue| queue.message.clone()),
        }
    }
}

fn eta(start: &Start) -> Option<Eta> {
    let latest = start.latest.as_ref().map(|time| time.0);
    Some(Eta { p50: start.p50.as_ref()?.0, p90: start.p90.as_ref()?.0, latest })
}

pub fn table(rows: &[Row], now: Timestamp) -> Table {
    let mut table = Table::new([
        Column::new("PLACE"),
        Column::new("NAME"),
        Column::new("OWNER").spare(2),
        Column::new("FLAVOR"),
        Column::new("GPUS"),
        Column::new("STARTS").spare(1),
        Column::new("9 OF 10").spare(5),
        Column::new("WAITING").spare(3),
        Column::new("PRIORITY").wide(),
        Column::new("FOR").spare(4).elastic(),
    ]);
    for row in rows {
        let booked = row.not_before.filter(|at| *at > now);
        let place = if booked.is_some() { Some("booked".to_owned()) } else { row.position.map(|at| at.to_string()) };
        let [starts, most] = starts(booked, row.eta.map(|eta| (eta.p50.as_second(), eta.p90.as_second())), now);
        let gpus = if row.nodes > 1 { format!("{}×{}", row.nodes, row.gpus) } else { row.gpus.to_string() };
        table.row([
            place.unwrap_or_default().into(),
            row.name.clone().unwrap_or_else(|| "-".to_owned()).into(),
            row.owner.clone().unwrap_or_default().into(),
            row.flavor.clone().unwrap_or_default().into(),
            gpus.into(),
            starts.into(),
            most.into(),
            row.since.map(|time| since(time, now)).unwrap_or_default().into(),
            row.priority.clone().unwrap_or_default().into(),
            why(row.message.as_deref(), row.moved.as_ref(), now).into(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use odc_api::queue::Queue;
    use serde_json::{Value, json};

    use super::*;

    fn waiting(position: i64) -> Value {
        json!({"position": position, "count": 4, "nodes": 1, "priority": "Normal", "queuedAt": "2026-01-01T00:00:00Z"})
    }

    fn queue(positions: &[i64]) -> Queue {
        let waiting: Vec<Value> = positions.iter().map(|position| waiting(*position)).collect();
        serde_json::from_value(json!({"metadata": {"name": "gpu"}, "waiting": waiting})).unwrap()
    }

    fn entry(name: &str, position: Option<i64>) -> QueueEntry {
        let entry = json!({"metadata": {"name": name, "namespace": "dev-ada"}, "flavor": "gpu", "position": position});
        serde_json::from_value(entry).unwrap()
    }

    #[test]
    fn ones_own_servers_are_found_among_the_nameless() {
        let told = Told {
            entries: Some(vec![entry("later", None), entry("box", Some(2))]),
            queues: Some(vec![queue(&[1, 2, 3])]),
        };
        let rows = rows(&told, &[]);
        let shown: Vec<_> = rows.iter().map(|row| (row.position, row.name.as_deref())).collect();
        assert_eq!(shown, [(Some(1), None), (Some(2), Some("box")), (Some(3), None), (None, Some("later"))]);
        assert_eq!((rows[0].owner.as_deref(), rows[1].owner.as_deref()), (None, Some("ada")));
    }

    #[test]
    fn a_place_is_one_of_a_flavor() {
        let mut other = queue(&[1, 2]);
        other.metadata.name = Some("cpu".to_owned());
        let told = Told { entries: Some(vec![entry("box", Some(1))]), queues: Some(vec![queue(&[1, 2]), other]) };
        let rows = rows(&told, &[]);
        let shown: Vec<_> = rows.iter().map(|row| (row.flavor.as_deref().unwrap(), row.name.as_deref())).collect();
        assert_eq!(shown, [("cpu", None), ("cpu", None), ("gpu", Some("box")), ("gpu", None)]);
    }
}
