//! What people are told: one plain sentence for each situation, stable and without times.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use odc_api::v1alpha1::condition::Reason;
use odc_api::v1alpha1::{Admission, HibernationCause, IdleAction, Phase};

use super::idle::named;
use super::parts::Parts;
use super::status::Outlook;
use super::trouble::Trouble;
use crate::activity::Last;
use crate::plan::Event;
use crate::seen::Pod;

pub(super) const RUNNING: &str = "The server is ready.";
pub(super) const STOPPING: &str = "The server is being stopped in order.";
pub(super) const HIBERNATING: &str = "The server is being put to sleep in order.";
pub(super) const EXPIRED: &str = "Its lifetime was used up.";
pub(super) const CANCELLED: &str = "It was ended by its owner or an administrator.";
pub(super) const UNUSED: &str = "Nobody used it, so it was ended, as its spec says.";
pub(super) const NOT_WATCHED: &str = "Its idle action is None, so nobody judges whether it is used.";
pub(super) const YOUNG: &str = "It has not been running for as long as its idle timeout.";
pub(super) const UNASKED: &str = "Its agent cannot be asked, so it is not idle.";
pub(super) const GIVING_WAY: &str = "It gives way to somebody with a better right: it stops in order and waits again.";

/// With the limit as it is set.
pub(super) fn queued_too_long(limit: Duration) -> String {
    let limit = odc_api::duration::Duration::from_std(limit);
    format!(
        "It waited {limit} for its first start, which is as long as this cluster lets a server wait, and was cancelled. \
         Create it anew with fewer devices or nodes, with another flavor, or for a later time in scheduling.notBefore."
    )
}

/// Before the time that was booked.
pub(super) fn booked(promised: bool) -> &'static str {
    if promised {
        "Its booked time is promised and has not come."
    } else {
        "Its booked time has not come, and is not promised: servers that asked earlier may still be there then."
    }
}

pub(super) fn asleep(cause: HibernationCause) -> &'static str {
    match cause {
        HibernationCause::User => "Asleep; set spec.desired to Running to wake it.",
        HibernationCause::Idle => "Nobody used it, so it sleeps; connect to it or change spec.wake to wake it.",
        HibernationCause::Drain => {
            "Its node had to be emptied, so it sleeps; connect to it or change spec.wake to wake it."
        }
    }
}

pub(super) fn in_use(last: Last) -> String {
    format!("When it was last asked, {}.", named(last))
}

/// With what happens next.
pub(super) fn unused(because: &str, action: IdleAction, grace: Duration) -> String {
    let what = match action {
        IdleAction::Hibernate => "is put to sleep",
        IdleAction::End => "is ended",
        IdleAction::None => "goes on",
    };
    let grace = odc_control::span::text(grace.as_secs());
    format!("Nobody uses it: {because}. It {what} in {grace} unless somebody does; odc-keep-alive keeps it.")
}

/// With what stood in the way, if anything did.
pub(super) fn start_timeout(reason: Reason, message: &str) -> String {
    let plain = "It did not become ready in time; create it anew, with another image or flavor.";
    if reason == Reason::Starting { plain.to_owned() } else { format!("{plain} {message}") }
}

pub(super) fn entrypoint_unknown(why: &str) -> String {
    let why = why.trim_end_matches('.');
    format!(
        "The image's own entrypoint cannot be learned: {why}. Correct image.ref, or leave image.keepEntrypoint out."
    )
}

/// What the queue says, in its own words.
pub(super) fn waiting(admission: Option<&Admission>) -> (Reason, String) {
    let said = admission.and_then(|admission| Some((admission.reason.as_ref()?, admission.message.as_ref()?)));
    said.and_then(|(reason, message)| Some((reason.known()?, message.as_str().to_owned())))
        .unwrap_or((Reason::InsufficientCapacity, "It waits for its place in the queue.".into()))
}

pub(super) fn starting(parts: &Parts<'_>) -> (Reason, String) {
    // A foreign pod stands here only on its way out, as that of an earlier server of the same name.
    let message = if parts.leaving.is_empty() && parts.foreign.is_empty() {
        "Its pods are being created, images pulled, disks attached."
    } else {
        "An earlier pod of it is still being stopped."
    };
    (Reason::Starting, message.into())
}

/// Of a server that was ready before.
pub(super) fn restarting(trouble: Option<&Trouble>) -> String {
    match trouble {
        None => "A container of the server is being started again.".into(),
        Some(trouble) => match trouble.reason {
            Reason::OutOfMemory => {
                "It ran out of memory and is being started again. Take a flavor or count with more memory.".into()
            }
            Reason::DiesAtStart => "Its program ended and is being started again.".into(),
            _ => trouble.message.clone(),
        },
    }
}

pub(super) fn pod_over(pod: &Pod) -> String {
    let details = pod.server.as_deref();
    let word = details.and_then(|details| details.reason.as_deref()).unwrap_or("no reason given");
    let said = details.and_then(|details| details.message.as_deref()).unwrap_or_default();
    let node = pod.node.as_deref().unwrap_or("its node");
    format!("Pod {} was sent away by {node} ({word}); the server keeps its place in the queue. {said}", pod.name)
        .trim_end()
        .to_owned()
}

/// On spot capacity there is a likely cause.
pub(super) fn node_lost(node: &str, has_disk: bool, spot: bool) -> String {
    let why = if spot { ", probably because its spot capacity was reclaimed" } else { "" };
    if has_disk {
        format!(
            "Node {node} does not answer{why}. Its pod may still write to the disk, so the server waits until the node is \
             back, or an administrator has removed it (kubectl delete node {node}) after making sure that it is off."
        )
    } else {
        format!("Node {node} does not answer any more{why}; the server starts on another one.")
    }
}

/// A grant that is not of the server's size.
pub(super) fn misfit(granted: usize, needed: u32) -> String {
    format!("Its grant names {granted} nodes and it needs {needed}, so it stops and waits for one of its size.")
}

pub(super) fn node_silent(node: &str) -> String {
    format!("Node {node} does not answer at the moment; if it stays so, the server moves to another one.")
}

/// Of one whose time to stop is over.
pub(super) fn pod_held(pod: &str, finalizers: &[String]) -> String {
    format!(
        "Pod {pod} was stopped and is kept only by {}: whoever set that must remove it (kubectl edit pod {pod}), and \
         the server goes on by itself.",
        finalizers.join(", ")
    )
}

pub(super) fn pod_overdue(pod: &str, node: &str, answers: bool) -> String {
    if answers {
        format!(
            "Pod {pod} should have stopped, but node {node} does not say that it is gone: ask an administrator to look \
             at the kubelet and the disks there."
        )
    } else {
        format!("Pod {pod} should have stopped, but its node {node} does not answer, so nobody knows whether it has.")
    }
}

pub(super) fn held_back(finalizers: &[String]) -> String {
    format!("It was deleted and is kept only by {}: whoever set that must remove it.", finalizers.join(", "))
}

pub(super) fn name_taken(kind: &str, name: &str) -> String {
    format!("{kind} {name} is in the way and not of this server: delete it, and the server goes on.")
}

/// Its end has come near.
pub(super) fn ends_soon(at: Timestamp) -> Event {
    let note = format!("Came near its end: it expires at {at}; raise spec.lifetime to extend it.");
    Event { serious: true, reason: Reason::EndsSoon, action: "Expire", note }
}

/// What happened, for those changes of phase that are news.
pub(super) fn event(outlook: &Outlook) -> Option<Event> {
    let (action, note, serious) = match outlook.phase {
        Phase::Pending if outlook.is_refused() => ("Refuse", outlook.message.clone(), true),
        Phase::Pending | Phase::Building => return None,
        Phase::Queued => ("Queue", format!("Queued: {}", outlook.message), outlook.reason == Reason::NodeLost),
        Phase::Starting => ("Start", "Began to start.".into(), false),
        Phase::Running => ("Start", "Became ready.".into(), false),
        Phase::Hibernating => ("Hibernate", "Began to hibernate.".into(), false),
        Phase::Hibernated => ("Hibernate", format!("Hibernated: {}", outlook.message), false),
        Phase::Stopping => ("Stop", "Began to stop.".into(), false),
        Phase::Expired => ("Stop", "Expired: its lifetime was used up.".into(), false),
        Phase::Cancelled if outlook.reason == Reason::QueuedTooLong => {
            ("Stop", format!("Cancelled: {}", outlook.message), true)
        }
        Phase::Cancelled => ("Stop", "Ended.".into(), false),
        Phase::Failed => ("Fail", format!("Failed: {}", outlook.message), true),
    };
    Some(Event { serious, reason: outlook.reason, action, note })
}
