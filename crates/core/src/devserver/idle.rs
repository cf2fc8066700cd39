//! Idle detection for running servers.
//!
//! Agents are polled when the server can be idle at the earliest, about once per idle timeout. When the server is idle,
//! the condition Idle becomes True, users are warned, and after a grace period the agents are polled again. The server is
//! stopped only if there was no activity since the warning. A reply older than [`MAX_REPLY_AGE`] stops nothing, nor
//! does an agent that does not reply.
//!
//! If idle detection is disabled, agents are still polled at a long interval, because OOM kills are reported only by them.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use odc_api::v1alpha1::IdleAction;
use odc_api::v1alpha1::condition::{self, Reason, Type};

use super::agent_requests::{AgentCall, AgentRequest, SignalsReply, call, is_reachable, retry_delay};
use super::conditions::ConditionUpdate;
use super::messages;
use super::reconcile::Reconcile;
use crate::activity::{self, DetectionPolicy, Verdict};
use crate::cluster::Pod;
use crate::plan::Requeue;
use crate::time::{self, elapsed, until};

/// The maximum age of a reply that stops a server.
const MAX_REPLY_AGE: Duration = Duration::from_secs(30);
/// The period over which polls are spread after the start of an operator.
const STARTUP_JITTER: Duration = Duration::from_secs(300);
/// The interval between polls if idle detection is disabled.
const PASSIVE_POLL_INTERVAL: Duration = Duration::from_secs(3600);
/// The number of consecutive failures after which an agent is reported as unreachable.
const UNREACHABLE_THRESHOLD: u32 = 3;

/// The result of idle detection.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Idleness {
    /// The new condition Idle; `None` keeps the stored one.
    pub condition: Option<ConditionUpdate>,
    pub calls: Vec<AgentCall>,
    pub requeue: Requeue,
    /// The grace period after the warning has passed without activity.
    pub expired: bool,
}

impl Idleness {
    fn new(condition: Option<ConditionUpdate>) -> Self {
        Self { condition, calls: vec![], requeue: Requeue::AwaitChange, expired: false }
    }
}

impl Reconcile<'_> {
    pub(super) fn evaluate_idle(&self) -> Idleness {
        let idle = &self.server.spec.idle;
        if idle.action == IdleAction::None {
            let condition = not_idle(Reason::IdleDetectionDisabled, messages::IDLE_DETECTION_DISABLED);
            return Idleness { condition: Some(condition), ..self.poll_passively() };
        }
        let timeout = idle.timeout.as_std();
        let before = self.stored().and_then(|status| condition::find(&status.conditions, Type::Idle));
        let running = self.running_since();
        // A warning of an earlier run does not count.
        let before =
            before.filter(|idle| idle.status != "True" || running.is_some_and(|at| idle.last_transition_time.0 >= at));
        let initial = || before.is_none().then(|| not_idle(Reason::Active, messages::BELOW_IDLE_TIMEOUT));
        let (Some(leading), Some(running)) = (self.soft_state.agents.leader_since, running) else {
            return Idleness::new(initial());
        };
        let warning = before.filter(|idle| idle.status == "True").map(|idle| idle.last_transition_time.0);
        // The grace period starts when users could read the warning.
        let grace_end = match (warning, self.warned_at()) {
            (Some(warning), Some(warned)) => Some(time::add(warning.max(warned), self.settings.idle_grace)),
            // The agents are being configured with the warning; that triggers a reconciliation.
            (Some(_), None) => return Idleness::new(None),
            (None, _) => None,
        };
        let Some((answered, verdict, failures)) = self.verdict(timeout, running) else {
            let earliest = time::add(leading, self.jitter(timeout));
            let due = grace_end.unwrap_or(time::add(running, timeout).max(earliest));
            return Idleness { condition: initial(), ..self.poll_at(due) };
        };
        match verdict {
            Verdict::Unknown => {
                let unreachable = (failures >= UNREACHABLE_THRESHOLD)
                    .then(|| not_idle(Reason::AgentUnreachable, messages::AGENT_UNREACHABLE));
                let due = time::add(answered, retry_delay(failures).max(MAX_REPLY_AGE));
                Idleness { condition: unreachable.or_else(initial), ..self.poll_at(due) }
            }
            Verdict::Active { last, next_check } => {
                let condition = not_idle(Reason::Active, messages::active(last));
                Idleness { condition: Some(condition), ..self.poll_at(time::add(answered, next_check)) }
            }
            Verdict::Idle { last, ago, reason } => {
                let last_seen = time::sub(answered, ago);
                match (warning, grace_end) {
                    (Some(warning), _) if last_seen > warning => {
                        // There was activity within the grace period. Users are warned again.
                        let condition = not_idle(Reason::Active, messages::active(last));
                        Idleness { requeue: Requeue::After(Duration::ZERO), ..Idleness::new(Some(condition)) }
                    }
                    (Some(_), Some(end)) if answered >= end && elapsed(answered, self.now) <= MAX_REPLY_AGE => {
                        Idleness { expired: true, ..Idleness::new(None) }
                    }
                    (Some(_), Some(end)) => {
                        self.poll_at(if answered >= end { time::add(answered, MAX_REPLY_AGE) } else { end })
                    }
                    _ => {
                        let message = messages::idle(&reason, idle.action, self.settings.idle_grace);
                        let condition = ConditionUpdate::new(true, Reason::Idle, message);
                        let requeue = Requeue::After(self.settings.idle_grace);
                        Idleness { requeue, ..Idleness::new(Some(condition)) }
                    }
                }
            }
        }
    }

    /// Polls agents without evaluating their replies.
    fn poll_passively(&self) -> Idleness {
        let (Some(leading), Some(running)) = (self.soft_state.agents.leader_since, self.running_since()) else {
            return Idleness::new(None);
        };
        let earliest = time::add(leading, self.jitter(PASSIVE_POLL_INTERVAL));
        let first = time::add(running, PASSIVE_POLL_INTERVAL).max(earliest);
        let next = |pod: &Pod| {
            let reply = self.signals_reply(pod).filter(|reply| reply.at >= running);
            reply.map_or(first, |reply| time::add(reply.at, PASSIVE_POLL_INTERVAL))
        };
        let due = self.pods.live().filter(|pod| is_reachable(pod)).map(next).min();
        due.map_or_else(|| Idleness::new(None), |due| self.poll_at(due))
    }

    pub(super) fn running_since(&self) -> Option<Timestamp> {
        self.stored()?.running_since.as_ref().map(|since| since.0)
    }

    /// Polls agents now, or requeues until `due`.
    fn poll_at(&self, due: Timestamp) -> Idleness {
        let delay = until(due, self.now);
        if delay.is_zero() {
            // Only agents whose last reply is older than `due`.
            let is_outdated = |pod: &&Pod| self.signals_reply(pod).is_none_or(|reply| reply.at < due);
            let pods = self.pods.live().filter(is_outdated);
            let calls = pods.filter_map(|pod| call(pod, AgentRequest::GetSignals)).collect();
            Idleness { calls, ..Idleness::new(None) }
        } else {
            Idleness { requeue: Requeue::After(delay), ..Idleness::new(None) }
        }
    }

    /// Returns the combined verdict of all nodes, the time of the oldest reply, and the highest number of consecutive
    /// failures. `None` if an agent was not polled since the server became ready.
    fn verdict(&self, timeout: Duration, running: Timestamp) -> Option<(Timestamp, Verdict, u32)> {
        let policy = DetectionPolicy::all(timeout);
        let mut combined: Option<(Timestamp, Verdict, u32)> = None;
        for pod in self.pods.current.iter().copied() {
            let pod = pod?;
            if !is_reachable(pod) {
                return Some((self.now, Verdict::Unknown, 0));
            }
            let SignalsReply { at, signals, failures } = self.signals_reply(pod).filter(|reply| reply.at >= running)?;
            let verdict = activity::evaluate(signals.as_ref().ok(), &policy);
            combined = Some(match combined {
                None => (*at, verdict, *failures),
                Some((oldest, other, most)) => (oldest.min(*at), most_active(other, verdict), most.max(*failures)),
            });
        }
        combined
    }

    /// Ignores replies from the future, which were recorded with another clock.
    fn signals_reply(&self, pod: &Pod) -> Option<&SignalsReply> {
        self.agent(pod)?.signals_reply.as_deref().filter(|reply| reply.at <= self.now)
    }

    /// Returns when the last agent received the warning, or `None` if one has not.
    fn warned_at(&self) -> Option<Timestamp> {
        let all: Option<Vec<Timestamp>> = self.pods.live().map(|pod| self.agent(pod)?.warned_at).collect();
        all?.into_iter().max()
    }

    /// Returns a stable delay that differs between servers.
    fn jitter(&self, interval: Duration) -> Duration {
        let mut hash = DefaultHasher::new();
        self.server.metadata.uid.hash(&mut hash);
        let permille = u32::try_from(hash.finish() % 1000).unwrap_or_default();
        interval.min(STARTUP_JITTER) * permille / 1000
    }
}

fn not_idle(reason: Reason, message: impl Into<String>) -> ConditionUpdate {
    ConditionUpdate::new(false, reason, message)
}

/// Combines the verdicts of two nodes. One active node keeps the server active. Otherwise, one unknown node makes the
/// result unknown.
fn most_active(one: Verdict, two: Verdict) -> Verdict {
    let next_check = |verdict: &Verdict| match verdict {
        Verdict::Active { next_check, .. } => Some(*next_check),
        Verdict::Idle { .. } | Verdict::Unknown => None,
    };
    match (&one, &two) {
        (Verdict::Active { .. }, _) | (_, Verdict::Active { .. }) => {
            if next_check(&one) >= next_check(&two) {
                one
            } else {
                two
            }
        }
        (Verdict::Unknown, _) => one,
        (_, Verdict::Unknown) => two,
        (Verdict::Idle { ago: first, .. }, Verdict::Idle { ago: second, .. }) => {
            if first <= second {
                one
            } else {
                two
            }
        }
    }
}

#[cfg(test)]
mod tests;
