//! The documented schema of `-o json` and `-o yaml`.
//!
//! Fields are never removed. All fields are always present; unknown values are null.

pub mod disk;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use odc_api::v1alpha1::Phase;
use serde::Serialize;

use crate::cli::Format;
use crate::error::Result;
use crate::model::activity::Activity;
use crate::model::server::{self, ServerSummary};
use crate::output::Output;

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServerJson {
    pub name: String,
    pub owner: String,
    pub phase: String,
    /// The reason and message of the primary condition.
    pub reason: Option<String>,
    pub message: Option<String>,
    pub flavor: Option<String>,
    pub gpus: Option<u32>,
    pub nodes: u32,
    pub team: Option<String>,
    pub image: Option<String>,
    pub home: Home,
    pub desired: String,
    /// The requested lifetime.
    pub lifetime: Option<String>,
    /// The lifetime within the limits of the flavor.
    pub granted_lifetime: Option<String>,
    /// The start time of a booking.
    pub not_before: Option<Timestamp>,
    pub created_at: Option<Timestamp>,
    pub started_at: Option<Timestamp>,
    pub expires_at: Option<Timestamp>,
    pub finished_at: Option<Timestamp>,
    pub idle: Idle,
    pub queue: Option<Queue>,
    pub hibernation: Option<Hibernation>,
    pub access: Access,
    pub pods: Vec<Pod>,
    pub restarts: i64,
    pub oom_kills: i64,
    pub failure: Option<LastFailure>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Home {
    pub claim: Option<String>,
    pub disk: Option<String>,
    /// The size of an ephemeral home.
    pub ephemeral: Option<String>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Idle {
    pub timeout: Option<String>,
    pub action: Option<String>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Queue {
    pub position: Option<i64>,
    pub since: Option<Timestamp>,
    /// The 50th and 90th percentile of the expected start.
    pub eta: Option<Eta>,
    /// Why the latest start was delayed; only from the queue API.
    pub delayed: Option<server::DelayedStart>,
    pub reason: Option<String>,
    pub message: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Eta {
    pub p50: Timestamp,
    pub p90: Timestamp,
    /// The start if all servers ahead use their full lifetime; only from the queue API.
    pub latest: Option<Timestamp>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Hibernation {
    pub since: Timestamp,
    pub cause: String,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Access {
    /// The host name for OpenSSH after `devctl config-ssh`.
    pub ssh: String,
    pub host_key: Option<String>,
    /// Accepted public keys, besides those of the owner and of `users`.
    pub keys: Vec<String>,
    pub users: Vec<String>,
    pub jupyter: bool,
    pub ports: Vec<Port>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Port {
    pub name: String,
    pub port: u16,
    pub share: String,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Pod {
    pub name: String,
    pub node: Option<String>,
    pub ready: bool,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LastFailure {
    pub reason: String,
    pub message: String,
    pub time: Timestamp,
    pub log_tail: Option<String>,
}

/// The schema of `devctl show`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServerDetailJson {
    #[serde(flatten)]
    pub server: ServerJson,
    pub conditions: Vec<Condition>,
    pub timeline: Vec<TimelineEntry>,
    /// The report of the agent; null if it was not requested or did not respond.
    pub activity: Option<Activity>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    #[serde(rename = "type")]
    pub kind: String,
    pub status: String,
    pub reason: String,
    pub message: String,
    pub since: Option<Timestamp>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TimelineEntry {
    pub phase: String,
    pub at: Timestamp,
    pub reason: String,
}

/// Prints a server after a change, with a structured format only.
pub fn print_server(out: &Output, server: &ServerSummary) -> Result<()> {
    match out.format {
        Format::Json => out.json(&ServerJson::from(server)),
        Format::Yaml => out.yaml(&ServerJson::from(server)),
        Format::Name => out.lines(vec![server.name().to_owned()]),
        Format::Table | Format::Wide => Ok(()),
    }
}

impl From<&ServerSummary> for ServerJson {
    fn from(server: &ServerSummary) -> Self {
        let (spec, status) = (&server.spec, &server.status);
        let condition = primary_condition(server);
        let time = |time: &Option<Time>| time.as_ref().map(|time| time.0);
        Self {
            name: server.name().to_owned(),
            owner: server.owner(),
            phase: server.phase_str().to_owned(),
            reason: condition.map(|condition| condition.reason.clone()),
            message: condition.map(|condition| condition.message.clone()).filter(|message| !message.is_empty()),
            flavor: server.flavor().map(str::to_owned),
            gpus: spec.count,
            nodes: server.nodes(),
            team: spec.team.clone(),
            image: spec.image.as_ref().and_then(|image| image.reference.clone().or_else(|| image.build.clone())),
            home: Home {
                claim: spec.home.claim.clone(),
                disk: spec.home.disk.clone(),
                ephemeral: spec.home.ephemeral.clone(),
            },
            desired: spec.desired.clone().unwrap_or_else(|| "Running".to_owned()),
            lifetime: spec.lifetime.map(|time| time.to_string()),
            granted_lifetime: status.lifetime.as_ref().map(|lifetime| lifetime.granted.to_string()),
            not_before: time(&spec.scheduling.not_before),
            created_at: server.created(),
            started_at: time(&status.started_at),
            expires_at: time(&status.expires_at),
            finished_at: time(&status.finished_at),
            idle: Idle {
                timeout: spec.idle.as_ref().and_then(|idle| idle.timeout).map(|time| time.to_string()),
                action: spec.idle.as_ref().and_then(|idle| idle.action.clone()),
            },
            queue: status
                .admission
                .as_ref()
                .filter(|admission| admission.position.is_some() || server.phase() == Some(Phase::Queued))
                .map(Queue::from),
            hibernation: status
                .hibernation
                .as_ref()
                .map(|hibernation| Hibernation { since: hibernation.since.0, cause: hibernation.cause.clone() }),
            access: Access {
                ssh: format!("{}.odc", server.name()),
                host_key: status.access.as_ref().and_then(|access| access.host_key.clone()),
                keys: spec.access.keys.clone(),
                users: spec.access.users.clone(),
                jupyter: spec.access.jupyter,
                ports: spec.access.ports.iter().map(Port::from).collect(),
            },
            pods: status.pods.iter().map(Pod::from).collect(),
            restarts: status.restarts.unwrap_or(0),
            oom_kills: status.oom_kills.unwrap_or(0),
            failure: status.last_failure.as_ref().map(LastFailure::from),
        }
    }
}

impl ServerDetailJson {
    pub fn new(server: &ServerSummary, activity: Option<Activity>) -> Self {
        Self {
            server: server.into(),
            conditions: server.status.conditions.iter().map(Condition::from).collect(),
            timeline: server.status.timeline.iter().map(TimelineEntry::from).collect(),
            activity,
        }
    }
}

/// Returns the first failed precondition, or else the Ready condition.
fn primary_condition(server: &ServerSummary) -> Option<&server::Condition> {
    let failed = ["Accepted", "ImageReady", "DiskReady"].into_iter().filter_map(|kind| server.condition(kind));
    let failed = failed.filter(|condition| condition.status == "False" && !server.is_finished());
    failed.chain(server.condition("Ready")).next()
}

impl From<&server::Admission> for Queue {
    fn from(admission: &server::Admission) -> Self {
        Self {
            position: admission.position,
            since: admission.queued_at.as_ref().map(|time| time.0),
            eta: admission.eta.as_ref().map(Eta::from),
            delayed: admission.delayed.clone(),
            reason: admission.reason.clone(),
            message: admission.message.clone(),
        }
    }
}

impl From<&server::Eta> for Eta {
    fn from(eta: &server::Eta) -> Self {
        Self { p50: eta.p50.0, p90: eta.p90.0, latest: eta.latest.as_ref().map(|time| time.0) }
    }
}

impl From<&server::Port> for Port {
    fn from(port: &server::Port) -> Self {
        let share = port.share.clone().unwrap_or_else(|| "Private".to_owned());
        Self { name: port.name.clone(), port: port.port, share }
    }
}

impl From<&server::Pod> for Pod {
    fn from(pod: &server::Pod) -> Self {
        Self { name: pod.name.clone(), node: pod.node.clone(), ready: pod.ready }
    }
}

impl From<&server::LastFailure> for LastFailure {
    fn from(failure: &server::LastFailure) -> Self {
        Self {
            reason: failure.reason.clone(),
            message: failure.message.clone(),
            time: failure.time.0,
            log_tail: failure.log_tail.clone(),
        }
    }
}

impl From<&server::Condition> for Condition {
    fn from(condition: &server::Condition) -> Self {
        Self {
            kind: condition.kind.clone(),
            status: condition.status.clone(),
            reason: condition.reason.clone(),
            message: condition.message.clone(),
            since: condition.last_transition_time.as_ref().map(|time| time.0),
        }
    }
}

impl From<&server::TimelineEntry> for TimelineEntry {
    fn from(entry: &server::TimelineEntry) -> Self {
        Self { phase: entry.phase.clone(), at: entry.at.0, reason: entry.reason.clone() }
    }
}
