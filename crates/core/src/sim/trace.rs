//! Traces: one JSON object per line, with `t` in seconds and one thing that happens then.

use std::collections::BTreeMap;

use odc_api::v1alpha1::Priority;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::amounts::Amounts;
use crate::scheduler::{self, Event, Policy, Step};

/// The label that says in which zone a node is.
pub const ZONE: &str = "topology.kubernetes.io/zone";

#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    pub t: i64,
    pub what: What,
}

#[derive(Clone, Debug, PartialEq)]
pub enum What {
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
    /// What a recording was told.
    Event(Box<Event>),
    /// Where a recording made a plan.
    Plan(Plan),
    /// The rules from here on.
    Policy(Policy),
}

impl Line {
    /// Whether it says what a scheduler was told or decided, and not what people did.
    pub fn is_recorded(&self) -> bool {
        matches!(self.what, What::Event(_) | What::Plan(_))
    }

    /// Whether both describe the same thing, so that one can stand for the other.
    pub fn is_about(&self, other: &Self) -> bool {
        match (&self.what, &other.what) {
            (What::Node(one), What::Node(two)) => one.name == two.name,
            (What::Flavor(one), What::Flavor(two)) => one.name == two.name,
            (What::Team(one), What::Team(two)) => one.name == two.name,
            (What::User(one), What::User(two)) => one.name == two.name,
            (What::Request(one), What::Request(two)) => one.id == two.id,
            _ => false,
        }
    }
}

/// The keys of a line, for those who misspell one.
const KINDS: &str =
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
    /// Leave it out for servers of CPU and memory only; the amounts are then those of one server.
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
    /// Nothing if it never borrows.
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
    /// How long it really stays; its lifetime if it does not say.
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
    /// What was decided, to be compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided: Option<Vec<String>>,
}

/// The line of a recording that says this was done.
pub fn recorded(step: Step<'_>) -> Value {
    match step {
        Step::Told { now, event } => json!({"t": now, "event": event}),
        Step::Planned { now, plan } => {
            json!({"t": now, "plan": Plan { now, decided: Some(plan.decided(now).collect()) }})
        }
    }
}

fn one() -> u32 {
    1
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("line {line} is not JSON")]
    Json {
        line: usize,
        #[source]
        source: serde_json::Error,
    },
    #[error("line {line} needs a `t` in seconds, a whole number")]
    Time { line: usize },
    #[error("line {line} must have one key besides `t`: {KINDS}; it has {found}")]
    Kind { line: usize, found: String },
    #[error("line {line}: its `{kind}` cannot be read")]
    Content {
        line: usize,
        kind: String,
        #[source]
        source: serde_json::Error,
    },
    #[error("line {line}: {kind} {name} is not known; it must come on a line before")]
    Unknown { line: usize, kind: &'static str, name: String },
    #[error("line {line}: other things are decided than were recorded: {here}, not {there}")]
    Otherwise { line: usize, here: String, there: String },
    #[error("line {line}: there is a request {id} already")]
    Twice { line: usize, id: String },
    #[error("line {line} is of time {t}, before the line above it, of {before}; sort the trace by `t`")]
    Unsorted { line: usize, t: i64, before: i64 },
}

/// Reads a trace. Empty lines and lines that begin with `#` say nothing.
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
    Ok(Line { t, what: what(line, &kind, content)? })
}

fn what(line: usize, kind: &str, content: Value) -> Result<What, Error> {
    fn of<T: DeserializeOwned>(line: usize, kind: &str, content: Value) -> Result<T, Error> {
        serde_json::from_value(content).map_err(|source| Error::Content { line, kind: kind.to_owned(), source })
    }
    Ok(match kind {
        "node" => What::Node(of(line, kind, content)?),
        "flavor" => What::Flavor(of(line, kind, content)?),
        "team" => What::Team(of(line, kind, content)?),
        "user" => What::User(of(line, kind, content)?),
        "request" => What::Request(of(line, kind, content)?),
        "cancel" => What::Cancel(of(line, kind, content)?),
        "extend" => What::Extend(of(line, kind, content)?),
        "nodeDown" => What::NodeDown(of(line, kind, content)?),
        "nodeUp" => What::NodeUp(of(line, kind, content)?),
        "cordon" => What::Cordon(of(line, kind, content)?),
        "uncordon" => What::Uncordon(of(line, kind, content)?),
        "event" => What::Event(of(line, kind, content)?),
        "plan" => What::Plan(of(line, kind, content)?),
        "policy" => What::Policy(of(line, kind, content)?),
        other => return Err(Error::Kind { line, found: format!("`{other}`") }),
    })
}

impl Node {
    pub(super) fn told(&self) -> scheduler::Node {
        let mut labels = self.labels.clone();
        labels.extend(self.zone.iter().map(|zone| (ZONE.to_owned(), zone.clone())));
        let mut capacity = Amounts::default();
        (capacity.cpu, capacity.memory, capacity.pods) = (milli(self.cpu), gibibytes(self.memory_gi), 1_000);
        let capacity = self.devices.iter().fold(capacity, |sum, (name, count)| sum.with_device(name, *count));
        scheduler::Node { name: self.name.clone(), labels, capacity, ..scheduler::Node::default() }
    }
}

impl Flavor {
    /// What a server of it asks for.
    pub(super) fn ask(&self, count: i64, nodes: u32) -> scheduler::Ask {
        let times = if self.device.is_some() { count.max(0) } else { 1 };
        let mut each = Amounts::default();
        each.cpu = milli(self.cpu_per_device).saturating_mul(times);
        each.memory = gibibytes(self.memory_gi_per_device).saturating_mul(times);
        each.pods = 1;
        let each = self.device.iter().fold(each, |each, device| each.with_device(device, count));
        scheduler::Ask {
            nodes,
            each,
            device: self.device.clone(),
            selector: self.node_selector.clone(),
            topology: self.gang_topology_key.clone(),
            ..scheduler::Ask::default()
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

/// Numbers of people become whole ones here, once; from then on nothing is rounded.
#[expect(clippy::cast_possible_truncation, reason = "amounts beyond i64 saturate, which is what a trace may say")]
fn milli(cores: f64) -> i64 {
    (cores * 1_000.0).round() as i64
}

#[expect(clippy::cast_possible_truncation, reason = "the same")]
fn gibibytes(gibibytes: f64) -> i64 {
    (gibibytes * 1_073_741_824.0).round() as i64
}
