//! What is stored about a decision: complete values, made from the one before.

use k8s_openapi::jiff::Timestamp;
use odc_api::time::stored;
use odc_api::v1alpha1::condition::{Reason, Sentence};
use odc_api::v1alpha1::{self as api, Admission};

use super::{Policy, Server};
use crate::scheduler::Eta;

/// An expected start that moves by fewer seconds has not moved.
const SMALLEST_MOVE: u64 = 30;

/// What stays through everything: numbers that never go down.
fn kept(server: &Server) -> Admission {
    let (run, epoch) = server.admission.as_ref().map_or((0, 0), |admission| (admission.run, admission.epoch));
    Admission { run, epoch, ..Admission::default() }
}

/// A new run, on these nodes.
pub(super) fn granted(server: &Server, nodes: Vec<String>, now: Timestamp) -> Admission {
    let kept = kept(server);
    let before = server.admission.as_ref().and_then(|admission| admission.queued_at.clone());
    Admission {
        run: kept.run.saturating_add(1),
        nodes,
        granted_at: Some(stored(now)),
        queued_at: Some(before.unwrap_or_else(|| stored(server.since))),
        ..kept
    }
}

/// In the queue, for this reason.
pub(super) fn waiting(
    server: &Server,
    position: i64,
    eta: Option<api::Eta>,
    reason: Reason,
    message: &str,
) -> Admission {
    Admission {
        eta,
        queued_at: Some(stored(server.since)),
        position: Some(position),
        reason: Some(reason.to_string()),
        message: Some(Sentence::start_of(message)),
        ..kept(server)
    }
}

/// When it is expected to start. What was said before stays as long as it is still about right: nobody plans by
/// seconds, and every change is a write.
pub(super) fn eta(server: &Server, eta: Eta, now: Timestamp) -> api::Eta {
    let before = server.admission.as_ref().and_then(|admission| admission.eta.as_ref());
    let about_right = |said: i64, new: i64| {
        let left = said.abs_diff(now.as_second()).max(new.abs_diff(now.as_second()));
        said >= now.as_second() && said.abs_diff(new) <= (left / 10).max(SMALLEST_MOVE)
    };
    let second = |second: i64| stored(Timestamp::from_second(second).unwrap_or(Timestamp::MAX));
    match before {
        Some(said) if about_right(said.p50.0.as_second(), eta.p50) && about_right(said.p90.0.as_second(), eta.p90) => {
            said.clone()
        }
        _ => api::Eta { p50: second(eta.p50), p90: second(eta.p90) },
    }
}

/// Back from its nodes; the place in the queue, if it has one, is its old one.
pub(super) fn revoked(server: &Server, position: Option<i64>, reason: Reason, message: &str) -> Admission {
    let before = server.admission.as_ref().and_then(|admission| admission.queued_at.clone());
    Admission {
        queued_at: Some(before.unwrap_or_else(|| stored(server.since))),
        position,
        reason: Some(reason.to_string()),
        message: Some(Sentence::start_of(message)),
        ..kept(server)
    }
}

/// Out of the queue and off its nodes.
pub(super) fn resting(server: &Server) -> Admission {
    kept(server)
}

/// Out of the queue for now. Its place counts from when it asked, so that is kept.
pub(super) fn postponed(server: &Server) -> Admission {
    let before = server.admission.as_ref().and_then(|admission| admission.queued_at.clone());
    Admission { queued_at: before, ..kept(server) }
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
