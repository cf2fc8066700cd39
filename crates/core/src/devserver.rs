//! The life of a server: what is seen of it becomes what is written for it.
//!
//! `validate` ties the open ends of a request, [`decide`] looks at everything that exists and gives the next writes.
//! Nothing is remembered between two decisions but what is stored in the cluster, so the operator may die after any
//! write and the next decision goes on from there.

pub mod agents;
pub mod build;
mod decide;
mod describe;
#[cfg(test)]
pub(crate) mod fixtures;
pub mod goal;
mod idle;
mod key;
pub mod lifetime;
pub mod parts;
#[cfg(test)]
mod simulation;
mod start;
mod status;
mod stop;
#[cfg(test)]
mod strange;
mod tell;
#[cfg(test)]
mod tests;
pub mod trouble;
pub mod unfit;
pub mod validate;

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use odc_api::v1alpha1::{Admission, DevServer, DevServerStatus, DevServerUser, HibernationCause, Limits, Phase};

use crate::plan::{Again, Event, Write};
use crate::seen::{Child, Node, Pod};
use agents::{Agents, Call};
use build::Keys;
use decide::Decision;
use goal::{Goal, goal};
use validate::{Valid, Violation};

/// A phase that passes within this time is not written: the write would cost more than it tells.
pub const PASSING: Duration = Duration::from_secs(1);

/// The same for one that the queue has decided to admit: only the write of it is missing, and many may come first.
pub const ADMITTING: Duration = Duration::from_secs(10);

/// What an administrator may set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub agent_image: String,
    /// What a server runs that names no image.
    pub default_image: String,
    /// How long a server may still be extended after its time is used up.
    pub expiry_grace: Duration,
    /// A node that has not been ready for so long is lost.
    pub lost_after: Duration,
    /// A server that has not become ready for so long has failed.
    pub start_limit: Duration,
    /// A server that has waited so long for its first start is cancelled; without it, it waits for ever.
    pub queue_limit: Option<Duration>,
    /// How long an ended server stays readable.
    pub keep_ended: Duration,
    /// How long people are warned before an idle server is stopped.
    pub idle_grace: Duration,
    /// What people read before they log in to any server.
    pub banner: Option<String>,
}

/// What exists of a server.
#[derive(Clone, Debug)]
pub struct Seen<'a> {
    /// Every pod that has its uid or one of its names.
    pub pods: Vec<&'a Pod>,
    /// The nodes of those pods, missing ones included ([`Node::missing`]), and of the grant as far as they are there.
    pub nodes: BTreeMap<&'a str, &'a Node>,
    /// Of a gang.
    pub service: Option<&'a Child>,
    pub secret: SecretSeen,
    /// When somebody last looked whether the Secret is there.
    pub secret_checked: Option<Timestamp>,
    /// Key pairs to use should the Secret have to be made.
    pub keys: Option<&'a Keys>,
    /// The image's own entrypoint, when it was asked for.
    pub entrypoint: Option<Result<Vec<String>, String>>,
    /// The phase that was decided last but not written, and since when.
    pub held: Option<(Phase, Timestamp)>,
    /// The queue has decided to admit it and is about to store that.
    pub admitting: bool,
    /// Somebody wants to put it to sleep just now.
    pub sleep: Option<HibernationCause>,
    /// Its owner, and the other users it lets in, as far as they exist.
    pub owner: Option<&'a DevServerUser>,
    pub guests: Vec<&'a DevServerUser>,
    /// What the agents of its pods were told and said.
    pub agents: Agents,
    /// Public keys of those whose word the agents take for the operator's.
    pub authorities: &'a [String],
    /// What keeps being said against our writes or questions, in a sentence.
    pub obstacle: Option<String>,
    /// Why what the queue decides about it cannot be stored, in a sentence.
    pub refused: Option<String>,
}

/// What is known of the server's Secret, which nobody watches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SecretSeen {
    #[default]
    Unknown,
    Missing,
    /// Its public host key.
    There(String),
    /// One of that name belongs to somebody else.
    Foreign,
}

/// What must be asked of the world before the decision can be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// Fresh key pairs.
    Keys,
    /// Is the Secret there?
    Secret,
    /// What does this image run by itself?
    Entrypoint { image: String, pull_secrets: Vec<String> },
}

#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// In order; each is done before the next.
    pub writes: Vec<Write>,
    /// To be stored, after the writes, if it differs from what is stored.
    pub status: Option<DevServerStatus>,
    pub events: Vec<Event>,
    /// What to say to agents, whose answers nobody waits for.
    pub calls: Vec<Call>,
    pub again: Again,
    /// The answer is needed; nothing else of the plan is.
    pub ask: Option<Question>,
    /// The phase decided, whether written or held back.
    pub phase: Option<Phase>,
}

impl Plan {
    fn nothing() -> Self {
        Self {
            writes: vec![],
            status: None,
            events: vec![],
            calls: vec![],
            again: Again::OnChange,
            ask: None,
            phase: None,
        }
    }
}

/// The grant in force.
pub fn granted(status: Option<&DevServerStatus>) -> Option<&Admission> {
    status.and_then(|status| status.admission.as_ref()).filter(|admission| !admission.nodes.is_empty())
}

/// What the queue should do for a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    Run,
    /// It would run, but something else has to happen first; look again then, if a time is known.
    Later(Option<Timestamp>),
    Rest,
}

/// `pods_left`: pods of it still exist.
pub fn wish(
    server: &DevServer,
    checked: &Result<Valid<'_>, Vec<Violation>>,
    pods_left: bool,
    settings: &Settings,
    now: Timestamp,
) -> Wish {
    let phase = server.status.as_ref().and_then(|status| status.phase);
    if server.metadata.deletion_timestamp.is_some() || phase.is_some_and(Phase::terminal) {
        return Wish::Rest;
    }
    if goal(server, None, limits(checked), settings, now) != Goal::Run {
        return Wish::Rest;
    }
    match checked {
        _ if granted(server.status.as_ref()).is_some() => Wish::Run,
        // What it held must be free before it holds something again, or it would keep others waiting for nothing.
        _ if pods_left => Wish::Later(None),
        Err(_) => Wish::Later(None),
        Ok(valid) if !valid.disk.ready => Wish::Later(None),
        Ok(_) => match &server.spec.scheduling.not_before {
            Some(booked) if booked.0 > now => Wish::Later(Some(booked.0)),
            _ => Wish::Run,
        },
    }
}

fn limits<'a>(checked: &Result<Valid<'a>, Vec<Violation>>) -> Option<&'a Limits> {
    checked.as_ref().ok().map(|valid| &valid.flavor.limits)
}

/// The next step of a server's life.
pub fn decide(
    server: &DevServer,
    checked: &Result<Valid<'_>, Vec<Violation>>,
    seen: &Seen<'_>,
    settings: &Settings,
    now: Timestamp,
) -> Plan {
    Decision::new(server, checked, seen, settings, now).plan()
}

/// How long ago; nothing for a time to come.
fn since(then: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(then)).unwrap_or_default()
}

/// How much of `limit` is left of a time that began then; nothing if it is over.
fn left(limit: Duration, then: Timestamp, now: Timestamp) -> Option<Duration> {
    limit.checked_sub(since(then, now)).filter(|left| !left.is_zero())
}
