//! What the agents of a server's pods are told and asked.
//!
//! Nothing here is stored in the cluster. What this operator said and heard is a hint: whoever comes next says it again,
//! and an agent that was told the same twice does nothing the second time. An agent that does not answer delays nothing:
//! what it would do before a stop, it does when its container is asked to stop.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use odc_api::text::Text;
use odc_api::v1alpha1::condition::{self, Type};
use odc_api::v1alpha1::{self as api, Phase};
use odc_control::{Access, IdleAction, IdleTerms, Signals};

use super::build::allowed_keys;
use super::build::container::GRACE_SECONDS;
use super::decide::Decision;
use super::left;
use super::parts::is_ready;
use super::unfit::Unfit;
use crate::plan::Again;
use crate::seen::Pod;

/// After the first attempt that failed; it doubles up to [`LONGEST_PAUSE`].
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// What this operator knows of the agents of one server.
#[derive(Clone, Debug, Default)]
pub struct Agents {
    /// Since when it looks after servers; absent where no agent can be asked at all.
    pub since: Option<Timestamp>,
    /// By the uid of their pod.
    pub of: BTreeMap<String, AgentSeen>,
}

/// Boxed where it is large: a map keeps room for ten more of them in each of its nodes, and there is a map for each
/// server.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AgentSeen {
    /// What it took last.
    pub told: Option<Box<Told>>,
    /// When it was told that it will be stopped for idleness, if that still holds.
    pub noticed: Option<Timestamp>,
    /// How often in a row it could not be told, and when the last time was.
    pub deaf: Option<Failed>,
    pub answer: Option<Box<Answer>>,
    pub quiesce: Quiesce,
    /// What was not in order when that was over.
    pub unfit: Option<Unfit>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failed {
    pub at: Timestamp,
    pub times: u32,
}

/// To the question for signals.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    pub at: Timestamp,
    /// Or why there are none.
    pub signals: Result<Signals, String>,
    /// How often in a row there were none.
    pub failures: u32,
}

/// What follows from a conversation.
impl AgentSeen {
    /// It was told this.
    pub fn took(&mut self, told: Box<Told>, now: Timestamp) {
        self.noticed = told.notice.as_ref().map(|_| self.noticed.unwrap_or(now));
        (self.told, self.deaf) = (Some(told), None);
    }

    /// It could not be told.
    pub fn was_deaf(&mut self, now: Timestamp) {
        let times = self.deaf.map_or(0, |deaf| deaf.times).saturating_add(1);
        self.deaf = Some(Failed { at: now, times });
    }

    /// It was asked for its signals.
    pub fn answered(&mut self, signals: Result<Signals, String>, now: Timestamp) {
        let before = self.answer.as_ref().map_or(0, |answer| answer.failures);
        let failures = if signals.is_ok() { 0 } else { before.saturating_add(1) };
        if let Ok(signals) = &signals {
            // It was started anew since we last heard of it, and may have forgotten what it was told.
            let boot = |answer: &Answer| answer.signals.as_ref().ok().map(|signals| signals.agent_boot.clone());
            let last = self.answer.as_deref().and_then(boot);
            if last.is_some_and(|last| last != signals.agent_boot) {
                (self.told, self.noticed) = (None, None);
            }
            self.deaf = None;
        }
        self.answer = Some(Box::new(Answer { at: now, signals, failures }));
    }

    /// It is being asked to make everything fit for a stop.
    pub fn stops(&mut self, now: Timestamp) {
        if self.quiesce == Quiesce::NotAsked {
            self.quiesce = Quiesce::Asked(now);
        }
    }

    /// It did that, or will not.
    pub fn stopped(&mut self, unfit: Option<Unfit>) {
        (self.quiesce, self.unfit) = (Quiesce::Over, unfit);
    }

    /// The server goes on: a stop that was prepared does not take place. The next one asks again, and until then the agent
    /// must learn of it, or it would take what it did for the wrong stop as done.
    pub fn goes_on(&mut self) {
        if self.quiesce != Quiesce::NotAsked {
            (self.quiesce, self.unfit, self.told) = (Quiesce::NotAsked, None, None);
        }
    }
}

/// Processes killed for want of memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Killed {
    pub count: i64,
    /// Since this start of the container.
    pub boot: Text<128>,
}

/// How far the agent is with what it does before a stop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Quiesce {
    #[default]
    NotAsked,
    Asked(Timestamp),
    /// Done, or not to be had.
    Over,
}

/// Everything an agent should know. Compared as a whole, and said as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// Which start of its container this is for: another one knows nothing.
    pub restarts: i64,
    pub access: Access,
    pub expires_at: Option<Timestamp>,
    pub idle: Option<IdleTerms>,
    /// That it will be stopped, for people to read.
    pub notice: Option<String>,
    /// What was decided from its signals last.
    pub verdict: Option<String>,
    /// Absent where it is another node's business.
    pub jupyter: Option<bool>,
}

/// Something to say to the agent of a pod. Nobody waits for the answer; it comes with the next look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The pod's uid.
    pub pod: String,
    pub address: String,
    /// The only one it may have.
    pub host_key: String,
    pub say: Say,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Say {
    Tell(Box<Told>),
    /// What do you see of anybody working?
    Signals,
    /// You will be stopped: make everything fit for it, within this time.
    Quiesce(Duration),
}

/// How long to wait after so many failures in a row.
pub(super) fn pause(times: u32) -> Duration {
    PAUSE.saturating_mul(1 << times.saturating_sub(1).min(16)).min(LONGEST_PAUSE)
}

/// A pod whose agent can be reached.
struct Reachable<'a> {
    uid: &'a str,
    address: &'a str,
    host_key: &'a str,
}

fn reachable(pod: &Pod) -> Option<Reachable<'_>> {
    let details = pod.server.as_deref().filter(|_| is_ready(pod) && pod.deleting.is_none())?;
    Some(Reachable { uid: &pod.uid, address: details.ip.as_deref()?, host_key: details.host_key.as_deref()? })
}

pub(super) fn is_reachable(pod: &Pod) -> bool {
    reachable(pod).is_some()
}

pub(super) fn call(pod: &Pod, say: Say) -> Option<Call> {
    let Reachable { uid, address, host_key } = reachable(pod)?;
    Some(Call { pod: uid.to_owned(), address: address.to_owned(), host_key: host_key.to_owned(), say })
}

impl Decision<'_> {
    pub(super) fn agent(&self, pod: &Pod) -> Option<&AgentSeen> {
        self.seen.agents.of.get(&pod.uid)
    }

    /// What the agents of a running server do not know yet, and when to try again those that could not be told.
    pub(super) fn news(&self) -> (Vec<Call>, Again) {
        let (mut calls, mut again) = (Vec::new(), Again::OnChange);
        if self.seen.agents.since.is_none() {
            return (calls, again);
        }
        for (ordinal, pod) in self.parts.current.iter().enumerate() {
            let Some(pod) = pod else { continue };
            let told = self.to_tell(ordinal, pod);
            let agent = self.agent(pod);
            if agent.and_then(|agent| agent.told.as_deref()) == Some(&told) {
                continue;
            }
            let wait = agent.and_then(|agent| agent.deaf).and_then(|deaf| left(pause(deaf.times), deaf.at, self.now));
            match wait {
                Some(wait) => again = again.or(Again::After(wait)),
                None => calls.extend(call(pod, Say::Tell(Box::new(told)))),
            }
        }
        (calls, again)
    }

    fn to_tell(&self, ordinal: usize, pod: &Pod) -> Told {
        let spec = &self.server.spec;
        let status = self.stored();
        let action = match spec.idle.action {
            api::IdleAction::Hibernate => IdleAction::Hibernate,
            api::IdleAction::End => IdleAction::End,
            api::IdleAction::None => IdleAction::None,
        };
        let idle = status.and_then(|status| condition::find(&status.conditions, Type::Idle));
        let warned = idle.filter(|idle| idle.status == "True");
        Told {
            restarts: restarts(pod),
            access: Access { keys: self.keys(pod), user_cas: vec![], control_cas: self.seen.authorities.to_vec() },
            expires_at: status.and_then(|status| status.expires_at.as_ref()).map(|at| at.0),
            idle: Some(IdleTerms { limit_seconds: spec.idle.timeout.as_std().as_secs(), action }),
            notice: status.and_then(asked_away).or_else(|| warned.map(|warned| warned.message.to_string())),
            verdict: idle.map(|idle| idle.message.to_string()),
            jupyter: (ordinal == 0).then_some(spec.access.jupyter),
        }
    }

    /// Who may log in. A flavor that is gone changes nothing about that; where not even the owner is known, nobody new
    /// comes in.
    fn keys(&self, pod: &Pod) -> Vec<String> {
        match (self.checked, self.seen.owner) {
            (Ok(valid), _) => allowed_keys(valid.user, &valid.guests, self.server),
            (Err(_), Some(owner)) => allowed_keys(owner, &self.seen.guests, self.server),
            (Err(_), None) => {
                let told = self.agent(pod).and_then(|agent| agent.told.as_deref());
                told.map(|told| told.access.keys.clone()).unwrap_or_default()
            }
        }
    }

    /// Whether a pod has to wait for what its agent does before a stop. One that never answered is not waited for.
    pub(super) fn quiesces(&self, pod: &Pod) -> Option<Duration> {
        let agent = self.agent(pod).filter(|agent| agent.told.is_some())?;
        reachable(pod)?;
        let grace = Duration::from_secs(GRACE_SECONDS.into());
        match agent.quiesce {
            Quiesce::NotAsked => Some(grace),
            Quiesce::Asked(at) => left(grace, at, self.now),
            Quiesce::Over => None,
        }
    }

    /// Processes killed for want of memory, by the uid of their pod; of those whose agent told of any.
    pub(super) fn killed(&self) -> BTreeMap<String, Killed> {
        let told = |pod: &Pod| {
            let signals = self.agent(pod)?.answer.as_ref()?.signals.as_ref().ok()?;
            let count = i64::try_from(signals.oom_kills).ok().filter(|count| *count > 0)?;
            Some((pod.uid.clone(), Killed { count, boot: signals.container_boot.as_str().into() }))
        };
        self.parts.live().filter_map(told).collect()
    }

    /// Agents know the time of their server and who may come in only while it runs.
    pub(super) fn is_told(&self) -> bool {
        self.stored_phase() == Some(Phase::Running)
    }
}

/// That somebody with a better right needs its place, and when.
fn asked_away(status: &api::DevServerStatus) -> Option<String> {
    let admission = status.admission.as_ref()?;
    let (at, message) = (admission.gives_way_at.as_ref()?, admission.message.as_ref()?);
    Some(format!("{} Save your work before {}.", message.as_str(), at.0.strftime("%H:%M:%S UTC")))
}

fn restarts(pod: &Pod) -> i64 {
    let containers = pod.server.as_deref().into_iter().flat_map(|details| &details.containers);
    containers.map(|container| container.restarts).sum()
}

#[cfg(test)]
mod tests;
