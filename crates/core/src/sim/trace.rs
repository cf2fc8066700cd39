//! Traces: one JSON object per line, with the time `t` in seconds and one other key.

use std::collections::BTreeMap;

use odc_api::v1alpha1::Priority;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::resources::Resources;
use crate::scheduler::{self, Event, Policy, TraceRecord};

/// The label for the zone of a node.
pub const ZONE: &str = "topology.kubernetes.io/zone";

#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    pub t: i64,
    pub content: Content,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    Node(Node),
    Flavor(Flavor),
    Team(Team),
    User(User),
    Request(Box<Request>),
    /// By id.
    Cancel(String),
    Extend(Extend),
    /// By name.
    NodeDown(String),
    NodeUp(String),
    Cordon(String),
    Uncordon(String),
    /// An event of a recorded trace.
    Event(Box<Event>),
    /// A plan of a recorded trace.
    Plan(Plan),
    /// The policy from here on.
    Policy(Policy),
}

impl Line {
    /// Reports whether the line is part of a recorded trace.
    pub fn is_recorded(&self) -> bool {
        matches!(self.content, Content::Event(_) | Content::Plan(_))
    }

    /// Reports whether both lines define the same object, so that one can replace the other.
    pub fn defines_same(&self, other: &Self) -> bool {
        match (&self.content, &other.content) {
            (Content::Node(one), Content::Node(two)) => one.name == two.name,
            (Content::Flavor(one), Content::Flavor(two)) => one.name == two.name,
            (Content::Team(one), Content::Team(two)) => one.name == two.name,
            (Content::User(one), Content::User(two)) => one.name == two.name,
            (Content::Request(one), Content::Request(two)) => one.id == two.id,
            _ => false,
        }
    }
}

/// The keys of a line, for error messages.
const KEYS: &str =
    "node, flavor, team, user, request, cancel, extend, nodeDown, nodeUp, cordon, uncordon, event, plan or policy";

#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Node {
    pub name: String,
    #[serde(default)]
    pub devices: BTreeMap<String, i64>,
    pub cpu: f64,
    pub memory_gi: f64,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Flavor {
    pub name: String,
    /// `None` for servers with CPU and memory only; the amounts are then those of one server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    #[serde(default)]
    pub cpu_per_device: f64,
    #[serde(default)]
    pub memory_gi_per_device: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gang_topology_key: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Quota {
    pub servers: Option<u32>,
    pub devices: Option<i64>,
    /// Devices of one flavor.
    pub flavors: BTreeMap<String, i64>,
    pub cpu: Option<f64>,
    pub memory_gi: Option<f64>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Borrow {
    pub devices: Option<i64>,
}

#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Team {
    pub name: String,
    #[serde(default = "one")]
    pub weight: u32,
    #[serde(default)]
    pub quota: Quota,
    /// `None` if it never borrows.
    #[serde(default)]
    pub borrow: Option<Borrow>,
    /// The highest priority its members may have.
    #[serde(default)]
    pub priority_ceiling: Option<Priority>,
}

#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct User {
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub team: Option<String>,
    #[serde(default = "one")]
    pub weight: u32,
    #[serde(default)]
    pub quota: Quota,
    #[serde(default)]
    pub priority_ceiling: Option<Priority>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Request {
    pub id: String,
    pub user: String,
    pub flavor: String,
    /// Devices on each node.
    #[serde(default)]
    pub count: i64,
    #[serde(default = "one")]
    pub nodes: u32,
    pub lifetime_seconds: i64,
    /// The actual runtime; the lifetime if missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actual_seconds: Option<i64>,
    #[serde(default)]
    pub priority: Priority,
    #[serde(default)]
    pub preemptible: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<i64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Extend {
    pub id: String,
    pub by_seconds: i64,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Plan {
    pub now: i64,
    /// The decisions, to be compared in a replay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decisions: Option<Vec<String>>,
}

/// Converts a record to a line of a recorded trace.
pub fn to_line(record: TraceRecord<'_>) -> Value {
    match record {
        TraceRecord::Event { now, event } => json!({"t": now, "event": event}),
        TraceRecord::Plan { now, plan } => {
            json!({"t": now, "plan": Plan { now, decisions: Some(plan.decision_lines(now).collect()) }})
        }
    }
}

fn one() -> u32 {
    1
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("line {line}: invalid JSON")]
    Json {
        line: usize,
        #[source]
        source: serde_json::Error,
    },
    #[error("line {line}: `t` must be an integer, in seconds")]
    Time { line: usize },
    #[error("line {line}: expected one key in addition to `t`: {KEYS}; found {found}")]
    Kind { line: usize, found: String },
    #[error("line {line}: invalid `{kind}`")]
    Content {
        line: usize,
        kind: String,
        #[source]
        source: serde_json::Error,
    },
    #[error("line {line}: {kind} {name} is not defined on an earlier line")]
    Undefined { line: usize, kind: &'static str, name: String },
    #[error("line {line}: decisions differ from the recorded trace: decided {actual}, recorded {expected}")]
    DecisionMismatch { line: usize, actual: String, expected: String },
    #[error("line {line}: duplicate request {id}")]
    DuplicateRequest { line: usize, id: String },
    #[error("line {line}: time {t} is before {before} of the previous line; sort the trace by `t`")]
    Unsorted { line: usize, t: i64, before: i64 },
}

/// Reads a trace. Empty lines and lines that start with `#` are ignored.
pub fn read(text: &str) -> Result<Vec<(usize, Line)>, Error> {
    let lines = text.lines().zip(1..).filter(|(line, _)| !line.trim().is_empty() && !line.starts_with('#'));
    let lines: Vec<(usize, Line)> =
        lines.map(|(text, number)| Ok((number, read_line(text, number)?))).collect::<Result<_, _>>()?;
    for ((_, before), (line, after)) in lines.iter().zip(lines.iter().skip(1)) {
        if after.t < before.t {
            return Err(Error::Unsorted { line: *line, t: after.t, before: before.t });
        }
    }
    Ok(lines)
}

fn read_line(text: &str, line: usize) -> Result<Line, Error> {
    let value: Value = serde_json::from_str(text).map_err(|source| Error::Json { line, source })?;
    let Value::Object(mut object) = value else {
        return Err(Error::Kind { line, found: "no object".to_owned() });
    };
    let t = object.remove("t").and_then(|t| t.as_i64()).ok_or(Error::Time { line })?;
    let mut keys = object.into_iter();
    let (Some((kind, content)), None) = (keys.next(), keys.next()) else {
        return Err(Error::Kind { line, found: "none or several".to_owned() });
    };
    Ok(Line { t, content: read_content(line, &kind, content)? })
}

fn read_content(line: usize, kind: &str, content: Value) -> Result<Content, Error> {
    fn parse<T: DeserializeOwned>(line: usize, kind: &str, content: Value) -> Result<T, Error> {
        serde_json::from_value(content).map_err(|source| Error::Content { line, kind: kind.to_owned(), source })
    }
    Ok(match kind {
        "node" => Content::Node(parse(line, kind, content)?),
        "flavor" => Content::Flavor(parse(line, kind, content)?),
        "team" => Content::Team(parse(line, kind, content)?),
        "user" => Content::User(parse(line, kind, content)?),
        "request" => Content::Request(parse(line, kind, content)?),
        "cancel" => Content::Cancel(parse(line, kind, content)?),
        "extend" => Content::Extend(parse(line, kind, content)?),
        "nodeDown" => Content::NodeDown(parse(line, kind, content)?),
        "nodeUp" => Content::NodeUp(parse(line, kind, content)?),
        "cordon" => Content::Cordon(parse(line, kind, content)?),
        "uncordon" => Content::Uncordon(parse(line, kind, content)?),
        "event" => Content::Event(parse(line, kind, content)?),
        "plan" => Content::Plan(parse(line, kind, content)?),
        "policy" => Content::Policy(parse(line, kind, content)?),
        other => return Err(Error::Kind { line, found: format!("`{other}`") }),
    })
}

impl Node {
    pub(super) fn to_scheduler(&self) -> scheduler::Node {
        let mut labels = self.labels.clone();
        labels.extend(self.zone.iter().map(|zone| (ZONE.to_owned(), zone.clone())));
        let mut capacity = Resources::default();
        (capacity.cpu, capacity.memory, capacity.pods) = (milli(self.cpu), gibibytes(self.memory_gi), 1_000);
        let capacity = self.devices.iter().fold(capacity, |sum, (name, count)| sum.with_device(name, *count));
        scheduler::Node { name: self.name.clone(), labels, capacity, ..scheduler::Node::default() }
    }
}

impl Flavor {
    /// Returns the request of a server with this flavor.
    pub(super) fn request(&self, count: i64, nodes: u32) -> scheduler::Request {
        let factor = if self.device.is_some() { count.max(0) } else { 1 };
        let mut per_node = Resources::default();
        per_node.cpu = milli(self.cpu_per_device).saturating_mul(factor);
        per_node.memory = gibibytes(self.memory_gi_per_device).saturating_mul(factor);
        per_node.pods = 1;
        let per_node = self.device.iter().fold(per_node, |per_node, device| per_node.with_device(device, count));
        scheduler::Request {
            nodes,
            per_node,
            device: self.device.clone(),
            selector: self.node_selector.clone(),
            topology: self.gang_topology_key.clone(),
            ..scheduler::Request::default()
        }
    }
}

impl Quota {
    pub(super) fn limits(&self) -> scheduler::Limits {
        scheduler::Limits {
            servers: self.servers,
            devices: self.devices,
            flavors: self.flavors.clone(),
            cpu: self.cpu.map(|cpu| i128::from(milli(cpu)) * 1_000_000),
            memory: self.memory_gi.map(|memory| i128::from(gibibytes(memory)) * 1_000_000_000),
        }
    }
}

/// Rounds once, on input; from then on amounts are integers.
#[expect(clippy::cast_possible_truncation, reason = "amounts beyond i64 saturate")]
fn milli(cores: f64) -> i64 {
    (cores * 1_000.0).round() as i64
}

#[expect(clippy::cast_possible_truncation, reason = "amounts beyond i64 saturate")]
fn gibibytes(gibibytes: f64) -> i64 {
    (gibibytes * 1_073_741_824.0).round() as i64
}
