//! Flushes the home of a running server before a restore point of its disk is taken.
//!
//! The agent is asked once, and the point is taken soon after its reply, whatever it is. A point does not depend on an
//! agent that can be reached: without a reply in time it is taken as well.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use super::{State, Steps};
use crate::devserver::agent_requests::{self, AgentCall, AgentRequest};
use crate::time::remaining;

/// How long a point waits for the reply.
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);
/// The time in which the agent has to finish.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(8);
/// How long after the reply a point can be taken without another request.
const MAX_REPLY_AGE: Duration = Duration::from_secs(15);

/// The last request to flush a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlushState {
    /// The uid of the pod.
    pub pod: String,
    pub requested_at: Timestamp,
    /// When the agent replied, or the request failed.
    pub finished_at: Option<Timestamp>,
}

/// Reports whether a point can be taken now. Asks the agent of the server to flush the disk otherwise.
pub(super) fn is_flushed(state: &State<'_>, steps: &mut Steps) -> bool {
    let Some((server, call)) = request(state) else { return true };
    let last = state.observed.disk_state.flush.as_ref();
    // A request in the future was recorded with another clock.
    let last = last.filter(|last| last.pod == call.pod && last.requested_at <= state.now);
    let is_recent = |at: Timestamp, timeout: Duration| remaining(timeout, at, state.now).is_some();
    match last.map(|last| (last.requested_at, last.finished_at)) {
        Some((_, Some(finished))) if is_recent(finished, MAX_REPLY_AGE) => return true,
        Some((requested, None)) => match remaining(REPLY_TIMEOUT, requested, state.now) {
            Some(rest) => {
                steps.requeue_after(rest);
                return false;
            }
            None if is_recent(requested, REPLY_TIMEOUT.saturating_add(MAX_REPLY_AGE)) => return true,
            None => {}
        },
        Some((_, Some(_))) | None => {}
    }
    steps.requeue_after(REPLY_TIMEOUT);
    if !steps.agent_calls.iter().any(|(_, other)| *other == call) {
        steps.agent_calls.push((server.to_owned(), call));
    }
    false
}

/// Returns the request to the agent of the first pod of the holder, with the uid of the server. There is none if no agent
/// can be reached.
fn request<'a>(state: &'a State<'_>) -> Option<(&'a str, AgentCall)> {
    let holder = state.stored.holder.as_ref().filter(|holder| holder.releasing_since.is_none())?;
    // Without a valid control CA no agent can be reached.
    if state.observed.control_cas.is_empty() {
        return None;
    }
    let pod = state.writers().find(|pod| pod.server.as_deref().is_some_and(|pod| pod.belongs_to(&holder.uid)))?;
    Some((&holder.uid, agent_requests::call(pod, AgentRequest::Flush(FLUSH_TIMEOUT))?))
}

#[cfg(test)]
mod tests;
