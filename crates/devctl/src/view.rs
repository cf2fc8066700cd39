//! A server as devctl shows it: the documented shape of `-o json` and `-o yaml`.
//!
//! Fields are only ever added. All are always there; what is not known is null, so that a script need not ask twice.

mod activity;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use odc_api::queue::Moved;
use odc_api::v1alpha1::Phase;
use serde::Serialize;

pub use activity::Activity;

use crate::args::Format;
use crate::failure::Result;
use crate::glance::{self, Glance};
use crate::output::Output;

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Server {
    pub name: String,
    pub owner: String,
    pub phase: String,
    /// Why it is as it is: one word, one sentence.
    pub reason: Option<String>,
    pub message: Option<String>,
    pub flavor: Option<String>,
    pub gpus: Option<u32>,
    pub nodes: u32,
    pub team: Option<String>,
    pub image: Option<String>,
    pub home: Home,
    pub desired: String,
    /// What was asked for, and what the flavor's limits left of it.
    pub lifetime: Option<String>,
    pub granted_lifetime: Option<String>,
    /// The time it is booked for, or was.
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
    pub failure: Option<Failure>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Home {
    pub claim: Option<String>,
    pub disk: Option<String>,
    /// The size of one that is gone with its server.
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
    /// Half of such waits end before the first, nine of ten before the second.
    pub eta: Option<Eta>,
    /// Why the latest start is later than it was; only where the queue itself was asked.
    pub moved: Option<Moved>,
    pub reason: Option<String>,
    pub message: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Eta {
    pub p50: Timestamp,
    pub p90: Timestamp,
    /// If everybody ahead stays as long as they may; only where the queue itself was asked.
    pub latest: Option<Timestamp>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Hibernation {
    pub since: Timestamp,
    pub by: String,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Access {
    /// What ssh calls it, once `devctl config-ssh` ran.
    pub ssh: String,
    pub host_key: Option<String>,
    /// The public keys let in beside those of the owner and the users.
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
pub struct Failure {
    pub reason: String,
    pub message: String,
    pub time: Timestamp,
    pub log_tail: Option<String>,
}

/// All about one server: `devctl show`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Detail {
    #[serde(flatten)]
    pub server: Server,
    pub conditions: Vec<Condition>,
    pub timeline: Vec<Entry>,
    /// What the server itself says; null if it was not asked or did not answer.
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
pub struct Entry {
    pub phase: String,
    pub at: Timestamp,
    pub reason: String,
}

/// A server after a change of it, for programs; people are told in words.
pub fn changed(out: &Output, server: &Glance) -> Result<()> {
    match out.format {
        Format::Json => out.json(&Server::from(server)),
        Format::Yaml => out.yaml(&Server::from(server)),
        Format::Name => out.lines(vec![server.name().to_owned()]),
        Format::Table | Format::Wide => Ok(()),
    }
}

impl From<&Glance> for Server {
    fn from(server: &Glance) -> Self {
        let (spec, status) = (&server.spec, &server.status);
        let why = why(server);
        let time = |time: &Option<Time>| time.as_ref().map(|time| time.0);
        Self {
            name: server.name().to_owned(),
            owner: server.owner(),
            phase: server.phase_word().to_owned(),
            reason: why.map(|condition| condition.reason.clone()),
            message: why.map(|condition| condition.message.clone()).filter(|message| !message.is_empty()),
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
                .map(|sleep| Hibernation { since: sleep.since.0, by: sleep.by.clone() }),
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
            failure: status.last_failure.as_ref().map(Failure::from),
        }
    }
}

impl Detail {
    pub fn new(server: &Glance, activity: Option<Activity>) -> Self {
        Self {
            server: server.into(),
            conditions: server.status.conditions.iter().map(Condition::from).collect(),
            timeline: server.status.timeline.iter().map(Entry::from).collect(),
            activity,
        }
    }
}

/// The condition that says most: the first thing that is missing, else the summary.
fn why(server: &Glance) -> Option<&glance::Condition> {
    let missing = ["Accepted", "ImageReady", "DiskReady"].into_iter().filter_map(|kind| server.condition(kind));
    let missing = missing.filter(|condition| condition.status == "False" && !server.ended());
    missing.chain(server.condition("Ready")).next()
}

impl From<&glance::Admission> for Queue {
    fn from(admission: &glance::Admission) -> Self {
        Self {
            position: admission.position,
            since: admission.queued_at.as_ref().map(|time| time.0),
            eta: admission.eta.as_ref().map(Eta::from),
            moved: admission.moved.clone(),
            reason: admission.reason.clone(),
            message: admission.message.clone(),
        }
    }
}

impl From<&glance::Eta> for Eta {
    fn from(eta: &glance::Eta) -> Self {
        Self { p50: eta.p50.0, p90: eta.p90.0, latest: eta.latest.as_ref().map(|time| time.0) }
    }
}

impl From<&glance::Port> for Port {
    fn from(port: &glance::Port) -> Self {
        let share = port.share.clone().unwrap_or_else(|| "Private".to_owned());
        Self { name: port.name.clone(), port: port.port, share }
    }
}

impl From<&glance::Pod> for Pod {
    fn from(pod: &glance::Pod) -> Self {
        Self { name: pod.name.clone(), node: pod.node.clone(), ready: pod.ready }
    }
}

impl From<&glance::LastFailure> for Failure {
    fn from(failure: &glance::LastFailure) -> Self {
        Self {
            reason: failure.reason.clone(),
            message: failure.message.clone(),
            time: failure.time.0,
            log_tail: failure.log_tail.clone(),
        }
    }
}

impl From<&glance::Condition> for Condition {
    fn from(condition: &glance::Condition) -> Self {
        Self {
            kind: condition.kind.clone(),
            status: condition.status.clone(),
            reason: condition.reason.clone(),
            message: condition.message.clone(),
            since: condition.last_transition_time.as_ref().map(|time| time.0),
        }
    }
}

impl From<&glance::Entry> for Entry {
    fn from(entry: &glance::Entry) -> Self {
        Self { phase: entry.phase.clone(), at: entry.at.0, reason: entry.reason.clone() }
    }
}
