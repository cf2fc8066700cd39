//! Requests to the agents of a server's pods.
//!
//! Nothing here is stored in the cluster. The state of the agents is kept in memory; a new leader sends everything again,
//! and requests are idempotent. An unreachable agent delays nothing: what it does before a stop it also does when its
//! container is terminated.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use odc_api::text::Text;
use odc_api::v1alpha1 as api;
use odc_api::v1alpha1::condition::{self, Type};
use odc_control::{Access, IdleAction, IdlePolicy, Signals};

use super::active_admission;
use super::build::allowed_keys;
use super::pods::{classify, is_ready};
use super::quiesce_failure::QuiesceFailure;
use super::reconcile::Reconcile;
use crate::cluster::{Pod, TERMINATION_GRACE_PERIOD};
use crate::plan::Requeue;
use crate::time::remaining;

/// The delay after the first failure. It doubles with each further one up to [`MAX_RETRY_DELAY`].
const INITIAL_RETRY_DELAY: Duration = Duration::from_secs(1);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(300);

/// What this operator knows about the agents of one server.
#[derive(Clone, Debug, Default)]
pub struct Agents {
    /// When this operator became leader; absent if agents cannot be reached at all.
    pub leader_since: Option<Timestamp>,
    /// By uid of the pod.
    pub by_pod: BTreeMap<String, AgentState>,
}

/// Large fields are boxed: a map allocates space for eleven entries per tree node, and there is one map for each server.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AgentState {
    /// The last configuration that the agent accepted.
    pub config: Option<Box<AgentConfig>>,
    /// When the agent received the idle warning, if the warning still holds.
    pub warned_at: Option<Timestamp>,
    /// Consecutive failures to configure the agent.
    pub unreachable: Option<Failures>,
    pub signals_reply: Option<Box<SignalsReply>>,
    pub quiesce: QuiesceState,
    pub quiesce_failure: Option<QuiesceFailure>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failures {
    /// The time of the last one.
    pub at: Timestamp,
    pub count: u32,
}

/// The reply to [`AgentRequest::GetSignals`].
#[derive(Clone, Debug, PartialEq)]
pub struct SignalsReply {
    pub at: Timestamp,
    /// The signals, or why there are none.
    pub signals: Result<Signals, String>,
    /// The number of consecutive failures.
    pub failures: u32,
}

impl AgentState {
    /// Records that the agent accepted a configuration.
    pub fn record_config(&mut self, config: Box<AgentConfig>, now: Timestamp) {
        self.warned_at = config.idle_warning.as_ref().map(|_| self.warned_at.unwrap_or(now));
        (self.config, self.unreachable) = (Some(config), None);
    }

    /// Records that the agent could not be configured.
    pub fn record_failure(&mut self, now: Timestamp) {
        let count = self.unreachable.map_or(0, |failures| failures.count).saturating_add(1);
        self.unreachable = Some(Failures { at: now, count });
    }

    /// Records the reply to a request for signals.
    pub fn record_signals(&mut self, signals: Result<Signals, String>, now: Timestamp) {
        let before = self.signals_reply.as_ref().map_or(0, |reply| reply.failures);
        let failures = if signals.is_ok() { 0 } else { before.saturating_add(1) };
        if let Ok(signals) = &signals {
            // After a restart the agent may have lost its configuration.
            let boot_id =
                |reply: &SignalsReply| reply.signals.as_ref().ok().map(|signals| signals.agent_boot_id.clone());
            let last = self.signals_reply.as_deref().and_then(boot_id);
            if last.is_some_and(|last| last != signals.agent_boot_id) {
                (self.config, self.warned_at) = (None, None);
            }
            self.unreachable = None;
        }
        self.signals_reply = Some(Box::new(SignalsReply { at: now, signals, failures }));
    }

    /// Records that a quiesce request is being sent.
    pub fn start_quiesce(&mut self, now: Timestamp) {
        if self.quiesce == QuiesceState::NotRequested {
            self.quiesce = QuiesceState::Requested(now);
        }
    }

    /// Records that the quiesce request was answered, or failed.
    pub fn finish_quiesce(&mut self, failure: Option<QuiesceFailure>) {
        (self.quiesce, self.quiesce_failure) = (QuiesceState::Finished, failure);
    }

    /// Cancels a prepared stop because the server continues to run. The agent must be configured again to learn of it;
    /// otherwise it would skip preStop in the next stop.
    pub fn cancel_stop(&mut self) {
        if self.quiesce != QuiesceState::NotRequested {
            (self.quiesce, self.quiesce_failure, self.config) = (QuiesceState::NotRequested, None, None);
        }
    }
}

/// Processes killed by the kernel because memory ran out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OomKills {
    pub count: i64,
    /// The start of the container that they are counted from.
    pub boot_id: Text<128>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QuiesceState {
    #[default]
    NotRequested,
    Requested(Timestamp),
    /// Succeeded or failed.
    Finished,
}

/// The configuration of an agent. It is compared and sent as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentConfig {
    /// The restart count of the container: a restarted agent has to be configured again.
    pub restarts: i64,
    pub access: Access,
    pub expires_at: Option<Timestamp>,
    pub idle: Option<IdlePolicy>,
    /// Warns users that the idle server will be stopped. The agent clears it on activity.
    pub idle_warning: Option<String>,
    /// Notifies users that the server will be preempted. Activity does not clear it.
    pub preemption_notice: Option<String>,
    /// The message of the condition Idle.
    pub idle_status: Option<String>,
    /// Absent on nodes that do not run Jupyter.
    pub jupyter: Option<bool>,
}

/// A request to the agent of a pod. Its reply is recorded in [`AgentState`] and used by the next reconciliation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentCall {
    /// The uid of the pod.
    pub pod: String,
    pub address: String,
    /// The host key that the agent must present.
    pub host_key: String,
    pub request: AgentRequest,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AgentRequest {
    Configure(Box<AgentConfig>),
    GetSignals,
    /// Prepare for a stop within this time.
    Quiesce(Duration),
    /// Sync the home to disk within this time.
    Flush(Duration),
    /// Count as activity of the user.
    Heartbeat,
}

/// Returns the delay after this many consecutive failures.
pub(crate) fn retry_delay(failures: u32) -> Duration {
    INITIAL_RETRY_DELAY.saturating_mul(1 << failures.saturating_sub(1).min(16)).min(MAX_RETRY_DELAY)
}

struct Endpoint<'a> {
    address: &'a str,
    host_key: &'a str,
}

fn endpoint(pod: &Pod) -> Option<Endpoint<'_>> {
    let details = pod.server.as_deref().filter(|_| is_ready(pod) && pod.deletion_timestamp.is_none())?;
    Some(Endpoint { address: details.ip.as_deref()?, host_key: details.host_key.as_deref()? })
}

pub(super) fn is_reachable(pod: &Pod) -> bool {
    endpoint(pod).is_some()
}

/// Returns `None` if the agent of the pod cannot be reached.
pub(crate) fn call(pod: &Pod, request: AgentRequest) -> Option<AgentCall> {
    let Endpoint { address, host_key } = endpoint(pod)?;
    Some(AgentCall { pod: pod.uid.clone(), address: address.to_owned(), host_key: host_key.to_owned(), request })
}

/// Returns the request that passes a heartbeat to an agent of the server, if one can be reached. A gang is active if one of
/// its agents is. `pods` are those with a name of the server.
pub fn heartbeat(server: &api::DevServer, pods: &[&Pod]) -> Option<AgentCall> {
    let name = server.metadata.name.as_deref().unwrap_or_default();
    let uid = server.metadata.uid.as_deref().unwrap_or_default();
    let run = active_admission(server.status.as_ref()).map(|admission| admission.run);
    let pods = classify(pods, name, uid, server.spec.nodes as usize, run);
    pods.live().find_map(|pod| call(pod, AgentRequest::Heartbeat))
}

impl Reconcile<'_> {
    pub(super) fn agent(&self, pod: &Pod) -> Option<&AgentState> {
        self.soft_state.agents.by_pod.get(&pod.uid)
    }

    /// Returns requests to agents of a running server whose configuration is outdated, and when to retry failed ones.
    pub(super) fn config_updates(&self) -> (Vec<AgentCall>, Requeue) {
        let (mut calls, mut requeue) = (Vec::new(), Requeue::AwaitChange);
        if self.soft_state.agents.leader_since.is_none() {
            return (calls, requeue);
        }
        for (ordinal, pod) in self.pods.current.iter().enumerate() {
            let Some(pod) = pod else { continue };
            let config = self.desired_config(ordinal, pod);
            let agent = self.agent(pod);
            if agent.and_then(|agent| agent.config.as_deref()) == Some(&config) {
                continue;
            }
            let failures = agent.and_then(|agent| agent.unreachable);
            match failures.and_then(|failures| remaining(retry_delay(failures.count), failures.at, self.now)) {
                Some(delay) => requeue = requeue.earlier(Requeue::After(delay)),
                None => calls.extend(call(pod, AgentRequest::Configure(Box::new(config)))),
            }
        }
        (calls, requeue)
    }

    fn desired_config(&self, ordinal: usize, pod: &Pod) -> AgentConfig {
        let spec = &self.server.spec;
        let status = self.stored();
        let action = match spec.idle.action {
            api::IdleAction::Hibernate => IdleAction::Hibernate,
            api::IdleAction::End => IdleAction::End,
            api::IdleAction::None => IdleAction::None,
        };
        let idle = status.and_then(|status| condition::find(&status.conditions, Type::Idle));
        let warning = idle.filter(|idle| idle.status == "True");
        AgentConfig {
            restarts: restarts(pod),
            access: Access { keys: self.keys(pod), user_cas: vec![], control_cas: self.observed.control_cas.to_vec() },
            expires_at: status.and_then(|status| status.expires_at.as_ref()).map(|at| at.0),
            idle: Some(IdlePolicy { limit_seconds: spec.idle.timeout.as_std().as_secs(), action }),
            idle_warning: warning.map(|warning| warning.message.to_string()),
            preemption_notice: status.and_then(preemption_notice),
            idle_status: idle.map(|idle| idle.message.to_string()),
            jupyter: (ordinal == 0).then_some(spec.access.jupyter),
        }
    }

    /// Returns the keys that may log in. A deleted flavor does not change them. Without the owner, the agent's current keys
    /// are kept.
    fn keys(&self, pod: &Pod) -> Vec<String> {
        match (self.checked, self.observed.owner) {
            (Ok(valid), _) => allowed_keys(valid.user, &valid.guests, self.server),
            (Err(_), Some(owner)) => allowed_keys(owner, &self.observed.guests, self.server),
            (Err(_), None) => {
                let config = self.agent(pod).and_then(|agent| agent.config.as_deref());
                config.map(|config| config.access.keys.clone()).unwrap_or_default()
            }
        }
    }

    /// Returns how long the agent of a pod may still take to prepare for a stop, or `None` if the pod can be deleted.
    /// Agents that never answered are not waited for.
    pub(super) fn quiesce_timeout(&self, pod: &Pod) -> Option<Duration> {
        let agent = self.agent(pod).filter(|agent| agent.config.is_some())?;
        endpoint(pod)?;
        match agent.quiesce {
            QuiesceState::NotRequested => Some(TERMINATION_GRACE_PERIOD),
            QuiesceState::Requested(at) => remaining(TERMINATION_GRACE_PERIOD, at, self.now),
            QuiesceState::Finished => None,
        }
    }

    /// Returns the OOM kills reported by agents, by uid of the pod.
    pub(super) fn oom_kills(&self) -> BTreeMap<String, OomKills> {
        let reported = |pod: &Pod| {
            let signals = self.agent(pod)?.signals_reply.as_ref()?.signals.as_ref().ok()?;
            let count = i64::try_from(signals.oom_kills).ok().filter(|count| *count > 0)?;
            Some((pod.uid.clone(), OomKills { count, boot_id: signals.container_boot_id.as_str().into() }))
        };
        self.pods.live().filter_map(reported).collect()
    }
}

fn preemption_notice(status: &api::DevServerStatus) -> Option<String> {
    let admission = status.admission.as_ref()?;
    let (at, message) = (admission.preempt_at.as_ref()?, admission.message.as_ref()?);
    Some(format!("{} Save your work before {}.", message.as_str(), at.0.strftime("%H:%M:%S UTC")))
}

fn restarts(pod: &Pod) -> i64 {
    let containers = pod.server.as_deref().into_iter().flat_map(|details| &details.containers);
    containers.map(|container| container.restarts).sum()
}

#[cfg(test)]
mod tests;
