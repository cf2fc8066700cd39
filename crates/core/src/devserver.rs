//! The lifecycle of a server: computes the writes and the new status from the observed state.
//!
//! [`validate`](validate::validate) resolves the request against the cluster, [`desired`](desired_state::desired) says what the
//! server should be doing, and [`reconcile`](fn@reconcile) returns the next writes and the status. Correctness depends
//! only on what is stored in the cluster, so the operator may crash after any write and continue from there.

pub mod agent_requests;
pub mod build;
mod conditions;
pub mod desired_state;
#[cfg(test)]
pub(crate) mod fixtures;
#[cfg(test)]
mod fuzz;
mod host_key_secret;
mod idle;
pub mod lifetime;
mod messages;
pub mod pod_failure;
pub mod pods;
pub mod quiesce_failure;
mod reconcile;
#[cfg(test)]
mod simulation;
mod start;
mod status;
mod stop;
#[cfg(test)]
mod tests;
pub mod validate;

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use odc_api::v1alpha1::{Admission, DevServer, DevServerStatus, DevServerUser, HibernationCause, Limits, Phase};

use crate::cluster::{ManagedObject, Node, Pod};
use crate::plan::{Event, Requeue, Write};
use agent_requests::{AgentCall, Agents};
use desired_state::{DesiredState, desired};
use reconcile::Reconcile;
use validate::{Valid, Violation};

/// A transient phase is written only after it lasted this long, to save the write.
pub const TRANSIENT_PHASE_DELAY: Duration = Duration::from_secs(1);

/// As [`TRANSIENT_PHASE_DELAY`], for a queued server that the scheduler has not reported as pending yet: usually it is
/// about to be admitted.
pub const ADMISSION_DELAY: Duration = Duration::from_secs(10);

/// Settings of the administrator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub agent_image: String,
    /// The image of servers that do not name one.
    pub default_image: String,
    /// How long a server can still be extended after its lifetime is exceeded.
    pub expiry_grace: Duration,
    /// A node that is not ready for this long is considered lost.
    pub node_lost_timeout: Duration,
    /// A server that does not become ready within this time has failed.
    pub start_timeout: Duration,
    /// A server that is not admitted for the first time within this time is cancelled. Unlimited if absent.
    pub queue_timeout: Option<Duration>,
    /// How long an ended server is kept.
    pub ttl_after_finished: Duration,
    /// The time between the idle warning and the stop.
    pub idle_grace: Duration,
    /// The SSH banner of all servers.
    pub banner: Option<String>,
}

/// What exists in the cluster for a server.
#[derive(Clone, Debug)]
pub struct Observed<'a> {
    /// All pods with the server's uid or one of its pod names.
    pub pods: Vec<&'a Pod>,
    /// The nodes of those pods, including missing ones ([`Node::missing`]), and the existing nodes of the admission.
    pub nodes: BTreeMap<&'a str, &'a Node>,
    /// The headless Service of a gang.
    pub service: Option<&'a ManagedObject>,
    pub owner: Option<&'a DevServerUser>,
    /// The existing users that the server is shared with.
    pub guests: Vec<&'a DevServerUser>,
    /// Public keys of the authorities whose certificates agents accept as the operator's.
    pub control_cas: &'a [String],
}

/// What this operator process remembers about a server. Losing it costs an extra request or a delayed write, never
/// correctness.
#[derive(Clone, Debug, Default)]
pub struct SoftState {
    pub secret: SecretState,
    /// When the Secret was last read.
    pub secret_checked_at: Option<Timestamp>,
    /// The entrypoint of the image, or why it could not be read.
    pub entrypoint: Option<Result<Vec<String>, String>>,
    /// The last phase that was decided but not written, and since when.
    pub deferred_phase: Option<(Phase, Timestamp)>,
    /// A pending request to hibernate the server.
    pub hibernate: Option<HibernationCause>,
    pub agents: Agents,
    /// Message of an error that recurs when this server is reconciled.
    pub recurring_error: Option<String>,
    /// Why the API server rejects the scheduler's decision about this server.
    pub rejection: Option<String>,
}

/// What is known about the server's Secret. Secrets are not watched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SecretState {
    #[default]
    Unknown,
    Missing,
    /// With its public host key.
    Present(String),
    /// A Secret of that name belongs to another owner.
    Foreign,
}

/// What must be read before the plan can be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Query {
    /// Read the Secret.
    Secret,
    /// Read the entrypoint of the image.
    Entrypoint { image: String, pull_secrets: Vec<String> },
}

#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Executed in order, each after the previous one succeeded.
    pub writes: Vec<Write>,
    /// Written after the writes, if present.
    pub status: Option<DevServerStatus>,
    pub events: Vec<Event>,
    /// Requests to agents. The plan does not wait for their replies.
    pub calls: Vec<AgentCall>,
    pub requeue: Requeue,
    /// If present, it must be answered before anything else of the plan is executed.
    pub query: Option<Query>,
    /// The phase, whether it is written or deferred.
    pub phase: Option<Phase>,
}

impl Plan {
    fn empty() -> Self {
        Self {
            writes: vec![],
            status: None,
            events: vec![],
            calls: vec![],
            requeue: Requeue::AwaitChange,
            query: None,
            phase: None,
        }
    }
}

/// Returns the admission if nodes are assigned.
pub fn active_admission(status: Option<&DevServerStatus>) -> Option<&Admission> {
    status.and_then(|status| status.admission.as_ref()).filter(|admission| !admission.nodes.is_empty())
}

/// What a server needs from the scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueIntent {
    Run,
    /// The server should run but cannot be queued yet.
    Postponed,
    Stopped,
}

/// A validated request as far as the queue depends on it, with the limits of its flavor.
#[derive(Clone, Copy, Debug)]
pub enum QueueRequest<'a> {
    Invalid,
    /// Its home or a claim is not available yet.
    WaitsForDisk(&'a Limits),
    Ready(&'a Limits),
}

impl<'a> QueueRequest<'a> {
    pub fn new(checked: &Result<Valid<'a>, Vec<Violation>>) -> Self {
        match checked {
            Err(_) => Self::Invalid,
            Ok(valid) if !valid.disk.ready => Self::WaitsForDisk(&valid.flavor.limits),
            Ok(valid) => Self::Ready(&valid.flavor.limits),
        }
    }

    pub fn limits(self) -> Option<&'a Limits> {
        match self {
            Self::Invalid => None,
            Self::WaitsForDisk(limits) | Self::Ready(limits) => Some(limits),
        }
    }
}

/// Returns what the server needs from the scheduler and, if that changes at a known time, when. `has_pods` says whether pods
/// of the server still exist.
pub fn queue_intent(
    server: &DevServer,
    request: QueueRequest<'_>,
    has_pods: impl FnOnce() -> bool,
    settings: &Settings,
    now: Timestamp,
) -> (QueueIntent, Option<Timestamp>) {
    let phase = server.status.as_ref().and_then(|status| status.phase);
    if server.metadata.deletion_timestamp.is_some() || phase.is_some_and(Phase::is_terminal) {
        return (QueueIntent::Stopped, None);
    }
    if desired(server, None, request.limits(), settings, now) != DesiredState::Run {
        return (QueueIntent::Stopped, None);
    }
    match request {
        _ if active_admission(server.status.as_ref()).is_some() => (QueueIntent::Run, None),
        QueueRequest::Invalid | QueueRequest::WaitsForDisk(_) => (QueueIntent::Postponed, None),
        // The old pods must be gone first. Otherwise the server would hold nodes it cannot use yet.
        QueueRequest::Ready(_) if has_pods() => (QueueIntent::Postponed, None),
        QueueRequest::Ready(_) => match &server.spec.scheduling.not_before {
            Some(begin) if begin.0 > now => (QueueIntent::Postponed, Some(begin.0)),
            _ => (QueueIntent::Run, None),
        },
    }
}

fn limits<'a>(checked: &Result<Valid<'a>, Vec<Violation>>) -> Option<&'a Limits> {
    checked.as_ref().ok().map(|valid| &valid.flavor.limits)
}

/// Returns the next step of the server's lifecycle.
pub fn reconcile(
    server: &DevServer,
    checked: &Result<Valid<'_>, Vec<Violation>>,
    observed: &Observed<'_>,
    soft_state: &SoftState,
    settings: &Settings,
    now: Timestamp,
) -> Plan {
    Reconcile::new(server, checked, observed, soft_state, settings, now).plan()
}
