//! What is stored about a decision: complete values, made from the one before.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use odc_api::time::stored;
use odc_api::v1alpha1::condition::{Reason, Sentence};
use odc_api::v1alpha1::{self as api, Admission, Booking, Placement, PlannedStart, StartPromise};

use super::{Policy, Server};
use crate::scheduler::{Choice, Eta, Given, Grant, Right};

/// An expected start that moves by fewer seconds has not moved.
const SMALLEST_MOVE: u64 = 30;

/// What stays through everything: numbers that never go down.
fn kept(server: &Server) -> Admission {
    let Some(Admission { run, epoch, preemptions, .. }) = server.admission else { return Admission::default() };
    Admission { run, epoch, preemptions, ..Admission::default() }
}

/// A new run, on these nodes.
pub(super) fn granted(server: &Server, grant: &Grant, now: Timestamp) -> Admission {
    let kept = kept(server);
    let before = server.admission.as_ref().and_then(|admission| admission.queued_at.clone());
    Admission {
        run: kept.run.saturating_add(1),
        nodes: grant.nodes.clone(),
        placement: Some(match grant.choice {
            Choice::Fullest => Placement::Fullest,
            Choice::WholeNode => Placement::WholeNode,
            Choice::DeviceNode => Placement::DeviceNode,
            Choice::TightestGroup => Placement::TightestGroup,
        }),
        backfilled: grant.backfilled.then_some(true),
        borrowed: grant.borrowed.then_some(true),
        booking: server.booking().cloned(),
        promise: server.admission.as_ref().and_then(|admission| admission.promise.clone()),
        granted_at: Some(stored(now)),
        queued_at: Some(before.unwrap_or_else(|| stored(server.since))),
        ..kept
    }
}

/// How somebody stands who waits.
pub(super) struct Standing<'a> {
    pub position: i64,
    pub eta: Option<Eta>,
    pub planned: Option<PlannedStart>,
    pub reason: Reason,
    pub message: &'a str,
}

/// In the queue. What people plan by is the place, the expected start and the reason; while those stay, so does all that
/// was said with them, or every device that comes and goes would be a write for everybody who waits.
pub(super) fn waiting(server: &Server, standing: Standing<'_>, now: Timestamp) -> Admission {
    let before = server.admission.as_ref();
    let reason = Some(standing.reason.into());
    let eta = standing.eta.map(|expected| eta(server, expected, now));
    let first = before.and_then(|admission| admission.promise.clone());
    let new = Admission {
        promise: first.or_else(|| standing.eta.map(|expected| Box::new(promise(expected, now)))),
        queued_at: Some(stored(server.since)),
        position: Some(standing.position),
        booking: server.booking().cloned(),
        ..kept(server)
    };
    let same = before.filter(|before| before.position == new.position && before.eta == eta && before.reason == reason);
    let (planned, message) = match same {
        Some(before) => (before.planned.clone(), before.message.clone()),
        None => (standing.planned, Some(Sentence::start_of(standing.message))),
    };
    Admission { eta, reason, planned, message, ..new }
}

/// When it is expected to start. What was said before stays as long as it is still about right: nobody plans by
/// seconds, and every change is a write.
fn eta(server: &Server, eta: Eta, now: Timestamp) -> api::Eta {
    let before = server.admission.as_ref().and_then(|admission| admission.eta.as_ref());
    let about_right = |said: i64, new: i64| {
        let left = said.abs_diff(now.as_second()).max(new.abs_diff(now.as_second()));
        said >= now.as_second() && said.abs_diff(new) <= (left / 10).max(SMALLEST_MOVE)
    };
    match before {
        Some(said) if about_right(said.p50.0.as_second(), eta.p50) && about_right(said.p90.0.as_second(), eta.p90) => {
            said.clone()
        }
        _ => api::Eta { p50: second(eta.p50), p90: second(eta.p90) },
    }
}

/// What is said first, to be held against what happens.
fn promise(eta: Eta, now: Timestamp) -> StartPromise {
    let expected = second(now.as_second().saturating_add(eta.given.expected));
    StartPromise { at: stored(now), expected, p50: second(eta.p50), p90: second(eta.p90) }
}

/// A promise as the scheduler knows it, and how long it really took.
pub(super) fn outcome(promise: &StartPromise, granted: Timestamp) -> (Given, i64) {
    let after = |then: Timestamp| then.as_second().saturating_sub(promise.at.0.as_second());
    let given = Given { expected: after(promise.expected.0), p50: after(promise.p50.0), p90: after(promise.p90.0) };
    (given, after(granted))
}

/// It keeps its nodes until then, and has time to save what it does.
pub(super) fn giving_way(server: &Server, stop: i64, right: Right) -> Option<Admission> {
    let before = server.admission.clone()?;
    let whose = match right {
        Right::Quota => "whose team lent it part of what it has",
        _ => "with a higher priority",
    };
    let message = format!("Somebody {whose} needs its place: it stops in order and goes back to the queue.");
    Some(Admission {
        gives_way_at: Some(second(stop)),
        preemptions: Some(before.preemptions.unwrap_or(0).saturating_add(1)),
        reason: Some(Reason::Preempted.into()),
        message: Some(Sentence::start_of(&message)),
        ..before
    })
}

fn second(second: i64) -> Time {
    stored(Timestamp::from_second(second).unwrap_or(Timestamp::MAX))
}

/// Back from its nodes; the place in the queue, if it has one, is its old one.
pub(super) fn revoked(server: &Server, position: Option<i64>, reason: Reason, message: &str) -> Admission {
    let before = server.admission.as_ref().and_then(|admission| admission.queued_at.clone());
    Admission {
        queued_at: Some(before.unwrap_or_else(|| stored(server.since))),
        position,
        booking: server.booking().cloned(),
        reason: Some(reason.into()),
        message: Some(Sentence::start_of(message)),
        ..kept(server)
    }
}

/// Out of the queue and off its nodes.
pub(super) fn resting(server: &Server) -> Admission {
    kept(server)
}

/// Out of the queue for now. Its place counts from when it asked, so that is kept, and so is what it was promised.
pub(super) fn postponed(server: &Server) -> Admission {
    let before = server.admission.as_ref();
    let queued_at = before.and_then(|admission| admission.queued_at.clone());
    Admission { queued_at, booking: server.booking().cloned(), ..kept(server) }
}

/// Its time is promised from now on, for as long as it asks.
pub(super) fn booked(server: &Server) -> Admission {
    let until = |from: Timestamp| Some(from.saturating_add(server.lifetime?).unwrap_or(Timestamp::MAX));
    let booking = server.not_before.and_then(|from| Some(Booking { from: stored(from), until: stored(until(from)?) }));
    Admission { booking, ..postponed(server) }
}

/// The value to write, with the number of the leader that decided; nothing if it says nothing new. A change of leader
/// alone is no news.
pub(super) fn news(server: &Server, new: Admission, policy: &Policy) -> Option<Admission> {
    let same = match &server.admission {
        Some(old) => *old == new,
        None => new == Admission::default(),
    };
    (!same).then(|| Admission { epoch: new.epoch.max(policy.epoch), ..new })
}
