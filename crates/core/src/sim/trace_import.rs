//! Imports traces in Standard Workload Format, or CSV with a header.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

/// The cluster of a converted trace; overrides its header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    pub nodes: Option<u32>,
    pub devices_per_node: Option<u32>,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("line {line}: field {field} is not a number")]
    Number { line: usize, field: usize },
    #[error("line {line} has {found} fields; the Standard Workload Format has 18")]
    Fields { line: usize, found: usize },
    #[error("the trace does not define its nodes; add --nodes and --devices-per-node")]
    Machine,
    #[error("missing column {column}; required are t, user, count and lifetime")]
    Column { column: &'static str },
    #[error("line {line}: {value:?} in column {column} is not an integer")]
    Cell { line: usize, column: String, value: String },
}

/// Converts the Standard Workload Format: 18 numbers per line, comments start with `;`. Processors become devices.
pub fn swf(text: &str, machine: &Machine) -> Result<Vec<Value>, Error> {
    let header = |name: &str| {
        let lines = text.lines().filter_map(|line| line.strip_prefix(';'));
        let mut values = lines.filter_map(|line| line.trim().strip_prefix(name)?.trim().strip_prefix(':'));
        values.find_map(|value| value.split_whitespace().next()?.parse::<u32>().ok())
    };
    let nodes = machine.nodes.or_else(|| header("MaxNodes")).ok_or(Error::Machine)?.max(1);
    let all = header("MaxProcs").unwrap_or(nodes);
    let per_node = machine.devices_per_node.unwrap_or(all / nodes).max(1);
    let mut lines = cluster(nodes, per_node);
    let mut accounts = Accounts::default();
    let mut requests = Vec::new();
    for (line, number) in text.lines().zip(1..).filter(|(line, _)| !line.starts_with(';') && !line.trim().is_empty()) {
        let fields: Vec<&str> = line.split_whitespace().collect();
        if fields.len() < 18 {
            return Err(Error::Fields { line: number, found: fields.len() });
        }
        let field = |position: usize| {
            let integer = fields[position - 1].split('.').next().unwrap_or_default();
            integer.parse::<i64>().map_err(|_| Error::Number { line: number, field: position })
        };
        let (id, submitted, runtime) = (field(1)?, field(2)?, field(4)?);
        let processors = if field(8)? > 0 { field(8)? } else { field(5)? };
        // Skip jobs that never ran or requested nothing.
        if runtime <= 0 || processors <= 0 {
            continue;
        }
        let lifetime = if field(9)? > 0 { field(9)? } else { runtime };
        let (user, team) = (format!("user-{}", field(12)?.max(0)), format!("group-{}", field(13)?.max(0)));
        accounts.add(&user, Some(&team));
        let per_node = i64::from(per_node);
        let (node_count, count) =
            if processors <= per_node { (1, processors) } else { ((processors + per_node - 1) / per_node, per_node) };
        requests.push((submitted, request(&format!("job-{id}"), &user, [count, node_count, lifetime, runtime], None)));
    }
    lines.extend(accounts.lines());
    Ok(sorted(lines, requests))
}

/// Converts CSV with a header. Columns are `t`, `user`, `count`, `lifetime` and, optionally, `id`, `team`, `nodes`, `actual`
/// and `priority`.
pub fn csv(text: &str, machine: &Machine) -> Result<Vec<Value>, Error> {
    let (Some(nodes), Some(per_node)) = (machine.nodes, machine.devices_per_node) else { return Err(Error::Machine) };
    let mut rows = text.lines().zip(1..).filter(|(line, _)| !line.trim().is_empty());
    let header: Vec<String> =
        rows.next().map(|(line, _)| cells(line).into_iter().map(str::to_owned).collect()).unwrap_or_default();
    let column = |name: &str| header.iter().position(|known| known == name);
    for required in ["t", "user", "count", "lifetime"] {
        column(required).ok_or(Error::Column { column: required })?;
    }
    let mut lines = cluster(nodes, per_node);
    let mut accounts = Accounts::default();
    let mut requests = Vec::new();
    for (line, number) in rows {
        let row = cells(line);
        let text = |name: &str| column(name).and_then(|at| row.get(at)).copied().filter(|cell| !cell.is_empty());
        let integer = |name: &str, default: i64| match text(name) {
            None => Ok(default),
            Some(cell) => cell.parse::<i64>().map_err(|_| Error::Cell {
                line: number,
                column: name.to_owned(),
                value: cell.to_owned(),
            }),
        };
        let user = text("user").unwrap_or("user").to_owned();
        accounts.add(&user, text("team"));
        let lifetime = integer("lifetime", 3_600)?;
        let id = text("id").map_or_else(|| format!("row-{number}"), str::to_owned);
        let numbers = [integer("count", 1)?, integer("nodes", 1)?, lifetime, integer("actual", lifetime)?];
        requests.push((integer("t", 0)?, request(&id, &user, numbers, text("priority"))));
    }
    lines.extend(accounts.lines());
    Ok(sorted(lines, requests))
}

fn cells(line: &str) -> Vec<&str> {
    line.split(',').map(|cell| cell.trim().trim_matches('"')).collect()
}

const FLAVOR: &str = "device";

fn cluster(nodes: u32, per_node: u32) -> Vec<Value> {
    let cpu = i64::from(per_node) * 8;
    let node = |number: u32| {
        json!({"t": 0, "node": {
            "name": format!("node-{number:04}"), "devices": {FLAVOR: per_node}, "cpu": cpu, "memoryGi": cpu * 8,
        }})
    };
    let flavor =
        json!({"t": 0, "flavor": {"name": FLAVOR, "device": FLAVOR, "cpuPerDevice": 8, "memoryGiPerDevice": 64}});
    (0..nodes).map(node).chain([flavor]).collect()
}

#[derive(Default)]
struct Accounts {
    teams: BTreeSet<String>,
    users: BTreeMap<String, Option<String>>,
}

impl Accounts {
    fn add(&mut self, user: &str, team: Option<&str>) {
        self.teams.extend(team.map(str::to_owned));
        // A user has one team here: the first one.
        self.users.entry(user.to_owned()).or_insert_with(|| team.map(str::to_owned));
    }

    fn lines(self) -> impl Iterator<Item = Value> {
        let teams = self.teams.into_iter().map(|name| json!({"t": 0, "team": {"name": name}}));
        teams.chain(self.users.into_iter().map(|(name, team)| json!({"t": 0, "user": {"name": name, "team": team}})))
    }
}

fn request(id: &str, user: &str, [count, nodes, lifetime, actual]: [i64; 4], priority: Option<&str>) -> Value {
    json!({
        "id": id, "user": user, "flavor": FLAVOR, "count": count, "nodes": nodes,
        "lifetimeSeconds": lifetime, "actualSeconds": actual, "priority": priority.unwrap_or("Normal"),
    })
}

fn sorted(mut lines: Vec<Value>, mut requests: Vec<(i64, Value)>) -> Vec<Value> {
    requests.sort_by_key(|(time, _)| *time);
    let first = requests.first().map_or(0, |(time, _)| (*time).min(0));
    lines.extend(requests.into_iter().map(|(time, request)| json!({"t": time - first, "request": request})));
    lines
}
