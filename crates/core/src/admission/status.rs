//! Builds the new value of `status.admission` from the stored one, for each decision.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use odc_api::time::to_api_precision;
use odc_api::v1alpha1::condition::{Message, Reason};
use odc_api::v1alpha1::{self as api, Admission, Booking, PlannedStart, StartEstimate};

use super::{Policy, Server};
use crate::scheduler::{Assignment, Eta, EtaEstimate, Placement, PreemptionReason};
use crate::time;

/// An ETA that moves by fewer seconds is not updated.
const MIN_ETA_CHANGE_SECONDS: u64 = 30;

/// Returns the counters, which never decrease.
fn carry_over(server: &Server) -> Admission {
    let Some(Admission { run, epoch, preemptions, .. }) = server.admission else { return Admission::default() };
    Admission { run, epoch, preemptions, ..Admission::default() }
}

/// Returns the admission of a new run.
pub(super) fn admitted(server: &Server, assignment: &Assignment, now: Timestamp) -> Admission {
    let counters = carry_over(server);
    let queued_at = server.admission.as_ref().and_then(|admission| admission.queued_at.clone());
    Admission {
        run: counters.run.saturating_add(1),
        nodes: assignment.nodes.clone(),
        placement: Some(match assignment.placement {
            Placement::BestFit => api::Placement::BestFit,
            Placement::EmptyNode => api::Placement::EmptyNode,
            Placement::DeviceNode => api::Placement::DeviceNode,
            Placement::SmallestDomain => api::Placement::SmallestDomain,
        }),
        backfilled: assignment.backfilled.then_some(true),
        borrowed: assignment.borrowed.then_some(true),
        booking: server.confirmed_booking().cloned(),
        first_estimate: server.admission.as_ref().and_then(|admission| admission.first_estimate.clone()),
        admitted_at: Some(to_api_precision(now)),
        queued_at: Some(queued_at.unwrap_or_else(|| to_api_precision(server.queued_at))),
        ..counters
    }
}

/// The position of a pending server.
pub(super) struct PendingStatus<'a> {
    pub position: i64,
    pub eta: Option<Eta>,
    pub planned_start: Option<PlannedStart>,
    pub reason: Reason,
    pub message: &'a str,
}

/// Returns the admission of a pending server. While position, ETA and reason are unchanged, so are the planned start and the
/// message; otherwise each device that is used or freed would cause a write for all pending servers.
pub(super) fn pending(server: &Server, pending: PendingStatus<'_>, now: Timestamp) -> Admission {
    let before = server.admission.as_ref();
    let reason = Some(pending.reason.into());
    let eta = pending.eta.map(|new| eta(server, new, now));
    let first_estimate = before.and_then(|admission| admission.first_estimate.clone());
    let new = Admission {
        first_estimate: first_estimate.or_else(|| pending.eta.map(|eta| Box::new(start_estimate(eta, now)))),
        queued_at: Some(to_api_precision(server.queued_at)),
        position: Some(pending.position),
        booking: server.confirmed_booking().cloned(),
        ..carry_over(server)
    };
    let unchanged =
        before.filter(|before| before.position == new.position && before.eta == eta && before.reason == reason);
    let (planned_start, message) = match unchanged {
        Some(before) => (before.planned_start.clone(), before.message.clone()),
        None => (pending.planned_start, Some(Message::truncated(pending.message))),
    };
    Admission { eta, reason, planned_start, message, ..new }
}

/// Returns the stored ETA if it is still approximately right, to avoid writes.
fn eta(server: &Server, eta: Eta, now: Timestamp) -> api::Eta {
    let stored = server.admission.as_ref().and_then(|admission| admission.eta.as_ref());
    let is_close = |stored: i64, new: i64| {
        let remaining = stored.abs_diff(now.as_second()).max(new.abs_diff(now.as_second()));
        stored >= now.as_second() && stored.abs_diff(new) <= (remaining / 10).max(MIN_ETA_CHANGE_SECONDS)
    };
    match stored {
        Some(stored) if is_close(stored.p50.0.as_second(), eta.p50) && is_close(stored.p90.0.as_second(), eta.p90) => {
            stored.clone()
        }
        _ => api::Eta { p50: second(eta.p50), p90: second(eta.p90) },
    }
}

/// Returns the first estimate, to be compared with the actual start.
fn start_estimate(eta: Eta, now: Timestamp) -> StartEstimate {
    let expected = second(now.as_second().saturating_add(eta.estimate.expected));
    StartEstimate { at: to_api_precision(now), expected, p50: second(eta.p50), p90: second(eta.p90) }
}

/// Returns a stored estimate relative to its time, and the actual wait.
pub(super) fn estimate_and_wait(stored: &StartEstimate, admitted_at: Timestamp) -> (EtaEstimate, i64) {
    let wait = |time: Timestamp| time.as_second().saturating_sub(stored.at.0.as_second());
    let estimate = EtaEstimate { expected: wait(stored.expected.0), p50: wait(stored.p50.0), p90: wait(stored.p90.0) };
    (estimate, wait(admitted_at))
}

/// Returns the admission of a server that has to stop at `stop_at`. It keeps its nodes until then.
pub(super) fn preempted(server: &Server, stop_at: i64, reason: PreemptionReason) -> Option<Admission> {
    let before = server.admission.clone()?;
    let cause = match reason {
        PreemptionReason::Reclaim => "to reclaim quota borrowed from another team",
        PreemptionReason::Priority => "by a server with higher priority",
    };
    let message = format!("Preempted {cause}. It will be stopped and returned to the queue.");
    Some(Admission {
        preempt_at: Some(second(stop_at)),
        preemptions: Some(before.preemptions.unwrap_or(0).saturating_add(1)),
        reason: Some(Reason::Preempted.into()),
        message: Some(Message::truncated(&message)),
        ..before
    })
}

fn second(second: i64) -> Time {
    to_api_precision(time::from_second(second))
}

/// Returns the admission of a server without nodes that keeps its position in the queue.
pub(super) fn revoked(server: &Server, position: Option<i64>, reason: Reason, message: &str) -> Admission {
    let queued_at = server.admission.as_ref().and_then(|admission| admission.queued_at.clone());
    Admission {
        queued_at: Some(queued_at.unwrap_or_else(|| to_api_precision(server.queued_at))),
        position,
        booking: server.confirmed_booking().cloned(),
        reason: Some(reason.into()),
        message: Some(Message::truncated(message)),
        ..carry_over(server)
    }
}

/// Returns the admission of a server that is neither queued nor running.
pub(super) fn released(server: &Server) -> Admission {
    carry_over(server)
}

/// Returns the admission of a server that is not queued yet. It keeps the time when it was queued and its booking.
pub(super) fn postponed(server: &Server) -> Admission {
    let queued_at = server.admission.as_ref().and_then(|admission| admission.queued_at.clone());
    Admission { queued_at, booking: server.confirmed_booking().cloned(), ..carry_over(server) }
}

pub(super) fn booking_confirmed(server: &Server) -> Admission {
    let until = |from: Timestamp| Some(time::add(from, server.max_hold_time?));
    let booking = server
        .not_before
        .and_then(|from| Some(Booking { from: to_api_precision(from), until: to_api_precision(until(from)?) }));
    Admission { booking, ..postponed(server) }
}

/// Returns the value to write with the epoch of the leader, or `None` if nothing but the epoch would change.
pub(super) fn changed_admission(server: &Server, new: Admission, policy: &Policy) -> Option<Admission> {
    let is_unchanged = match &server.admission {
        Some(old) => *old == new,
        None => new == Admission::default(),
    };
    (!is_unchanged).then(|| Admission { epoch: new.epoch.max(policy.epoch), ..new })
}
