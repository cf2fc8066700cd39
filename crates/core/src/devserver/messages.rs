//! Messages for users. They change only with the situation: durations are rounded, and times appear only in events.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use odc_api::v1alpha1::condition::Reason;
use odc_api::v1alpha1::{Admission, HibernationCause, IdleAction, Phase};
use odc_control::duration;

use super::pod_failure::PodFailure;
use super::pods::ServerPods;
use super::status::Outcome;
use crate::activity::{LastActivity, Signal};
use crate::cluster::Pod;
use crate::plan::Event;

pub(super) const RUNNING: &str = "The server is ready.";
pub(super) const STOPPING: &str = "Stopping: running preStop and terminating pods.";
pub(super) const HIBERNATING: &str = "Hibernating: running preStop and terminating pods.";
pub(super) const EXPIRED: &str = "Lifetime exceeded.";
pub(super) const CANCELLED: &str = "Ended by the owner or an administrator.";
pub(super) const ENDED_BY_IDLENESS: &str = "Ended after the idle timeout (idle.action is End).";
pub(super) const IDLE_DETECTION_DISABLED: &str = "Idle detection is disabled (idle.action is None).";
pub(super) const BELOW_IDLE_TIMEOUT: &str = "Running for less than the idle timeout.";
pub(super) const AGENT_UNREACHABLE: &str = "The agent is unreachable; the server is treated as active.";
pub(super) const PREEMPTING: &str = "Preempted: terminating pods. The server will be returned to the queue.";

pub(super) fn queue_timeout(timeout: Duration) -> String {
    let timeout = duration::format(timeout.as_secs());
    format!(
        "Cancelled after waiting {timeout} in the queue (cluster limit). Recreate it with fewer devices or nodes, another \
         flavor, or a later scheduling.notBefore."
    )
}

pub(super) fn hibernated(cause: HibernationCause) -> &'static str {
    match cause {
        HibernationCause::User => "Hibernated. Set spec.desired to Running to resume.",
        HibernationCause::Idle => "Hibernated after the idle timeout. Connect to it, or change spec.wake, to resume.",
        HibernationCause::Drain => "Hibernated to drain its node. Connect to it, or change spec.wake, to resume.",
    }
}

pub(super) fn active(last: LastActivity) -> String {
    let signal = match last.signal {
        Signal::TerminalInput => "terminal input",
        Signal::TerminalOutput => "terminal output",
        Signal::Transfer => "file transfer or command",
        Signal::Forwarded => match last.port {
            Some(port) => return format!("Last activity: traffic on forwarded port {port}."),
            None => "traffic on a forwarded socket",
        },
        Signal::SessionProcesses => "busy process of a session",
        Signal::EntrypointProcesses => "busy process of the entrypoint",
        Signal::OtherProcesses => "busy process",
        Signal::Gpu => "busy GPU",
        Signal::Jupyter => "Jupyter",
        Signal::KeepAlive => "keep-alive",
        Signal::Heartbeat => "heartbeat",
        Signal::AgentStart => "start of the server",
    };
    format!("Last activity: {signal}.")
}

/// Returns the warning before an idle server is stopped.
pub(super) fn idle(reason: &str, action: IdleAction, grace: Duration) -> String {
    let action = match action {
        IdleAction::Hibernate => "hibernated",
        IdleAction::End => "ended",
        IdleAction::None => return format!("Idle: {reason}."),
    };
    let grace = duration::format(grace.as_secs());
    format!("Idle: {reason}. Will be {action} in {grace}. Any activity, or odc-keep-alive, cancels this.")
}

/// Returns the message of a failed start. `message` says what the start was waiting for.
pub(super) fn start_timeout(timeout: Duration, reason: Reason, message: &str) -> String {
    let timeout = duration::format(timeout.as_secs());
    let cause = if reason == Reason::Starting { ".".to_owned() } else { format!(": {message}") };
    format!("Not ready within {timeout}{cause} Recreate the server with another image or flavor.")
}

pub(super) fn entrypoint_unreadable(cause: &str) -> String {
    let cause = cause.trim_end_matches('.');
    format!("Failed to read the entrypoint of the image: {cause}. Fix image.ref, or omit image.keepEntrypoint.")
}

/// Returns the reason and message that the scheduler stored for a pending server.
pub(super) fn pending(admission: Option<&Admission>) -> Option<(Reason, String)> {
    let admission = admission?;
    Some((admission.reason.as_ref()?.known()?, admission.message.as_ref()?.as_str().to_owned()))
}

pub(super) fn starting(pods: &ServerPods<'_>) -> (Reason, String) {
    // A foreign pod is terminating here: one of an earlier server of the same name.
    let message = if pods.terminating.is_empty() && pods.foreign.is_empty() {
        "Creating pods, pulling images and attaching volumes."
    } else {
        "Waiting for a previous pod to terminate."
    };
    (Reason::Starting, message.into())
}

/// Returns the message of a server that was ready before.
pub(super) fn restarting(failure: Option<&PodFailure>) -> String {
    match failure {
        None => "Restarting a container of the server.".into(),
        Some(failure) => match failure.reason {
            Reason::OutOfMemory => {
                "Out of memory; restarting. Use a flavor with more memory, or a higher spec.count.".into()
            }
            Reason::CrashLoop => "The container exited; restarting.".into(),
            _ => failure.message.clone(),
        },
    }
}

pub(super) fn pod_evicted(pod: &Pod) -> String {
    let node = pod.node.as_deref().map_or_else(|| "its node".to_owned(), |node| format!("node {node}"));
    let cause = pod.reason_and_message();
    format!("Pod {} was evicted from {node}: {cause}. The server keeps its position in the queue.", pod.name)
}

/// Returns the message of a server with a lost node. On spot capacity, it names the likely cause.
pub(super) fn node_lost(node: &str, has_volume: bool, spot: bool) -> String {
    let cause = if spot { ", probably because its spot capacity was reclaimed" } else { "" };
    if has_volume {
        format!(
            "Node {node} is unreachable{cause}. Its pod may still write to the volume, so the server waits for the node. \
             If the node is powered off, an administrator can run `kubectl delete node {node}`."
        )
    } else {
        format!("Node {node} is unreachable{cause}. The server will start on another node.")
    }
}

pub(super) fn size_mismatch(assigned: usize, required: u32) -> String {
    format!(
        "The admission assigns {assigned} nodes but the server requires {required}. It will be stopped and returned to \
         the queue."
    )
}

pub(super) fn node_unreachable(node: &str) -> String {
    format!("Node {node} is unreachable. If it does not recover, the server will start on another node.")
}

pub(super) fn pod_termination_blocked(pod: &str, finalizers: &[String]) -> String {
    format!(
        "Pod {pod} is terminating but blocked by finalizers: {}. Remove them to continue (kubectl edit pod {pod}).",
        finalizers.join(", ")
    )
}

pub(super) fn pod_termination_overdue(pod: &str, node: &str, node_ready: bool) -> String {
    if node_ready {
        format!(
            "Pod {pod} did not terminate in time on node {node}. Ask an administrator to check the kubelet and the \
             volumes of that node."
        )
    } else {
        format!("Pod {pod} did not terminate in time: node {node} is unreachable.")
    }
}

pub(super) fn deletion_blocked(server: &str, finalizers: &[String]) -> String {
    format!(
        "The server is being deleted, but finalizers block it: {}. Remove them to continue (kubectl edit devserver \
         {server}).",
        finalizers.join(", ")
    )
}

pub(super) fn name_conflict(kind: &str, name: &str) -> String {
    format!("{kind} {name} already exists and is not owned by this server. Delete it to continue.")
}

pub(super) fn expiring_soon(at: Timestamp) -> Event {
    let note = format!("Expires at {at}. Raise spec.lifetime to extend it.");
    Event { warning: true, reason: Reason::ExpiringSoon, action: "Expire", note }
}

/// Returns the event for a change of phase, if it is worth one.
pub(super) fn event(outcome: &Outcome) -> Option<Event> {
    let (action, note, warning) = match outcome.phase {
        Phase::Pending if outcome.is_rejected() => ("Reject", outcome.message.clone(), true),
        Phase::Pending | Phase::Building => return None,
        Phase::Queued => ("Queue", format!("Queued: {}", outcome.message), outcome.reason == Reason::NodeLost),
        Phase::Starting => ("Start", "Starting".into(), false),
        Phase::Running => ("Start", "Ready".into(), false),
        Phase::Hibernating => ("Hibernate", "Hibernating".into(), false),
        Phase::Hibernated => ("Hibernate", outcome.message.clone(), false),
        Phase::Stopping => ("Stop", "Stopping".into(), false),
        Phase::Expired => ("Stop", "Expired: lifetime exceeded".into(), false),
        Phase::Cancelled if outcome.reason == Reason::QueueTimeout => ("Stop", outcome.message.clone(), true),
        Phase::Cancelled => ("Stop", "Ended".into(), false),
        Phase::Failed => ("Fail", format!("Failed: {}", outcome.message), true),
    };
    Some(Event { warning, reason: outcome.reason, action, note })
}
