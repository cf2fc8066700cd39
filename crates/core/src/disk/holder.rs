//! The server that holds a disk.
//!
//! A server gets the disk before its pods are created and loses it after it has stopped. Between the two writes of a
//! release, first `releasingSince` and then no holder, the server is observed again: it cannot create a pod after the
//! first write is visible, and a pod or admission from before is found by the second observation.

use odc_api::name::ServerName;
use odc_api::time::to_api_precision;
use odc_api::v1alpha1::condition::Reason;
use odc_api::v1alpha1::{Consistency, DevServer, DiskHolder, Phase, PointReason};

use super::claim::ClaimState;
use super::point::{self, NewPoint};
use super::{SNAPSHOT_TIMEOUT, State, Steps, claim};
use crate::cluster::{ClaimPhase, Pod};
use crate::devserver::{active_admission, pods};
use crate::manifest::Kind;
use crate::plan::Event;
use crate::time::{is_far_ahead, remaining};
use crate::volume_in_use::{creation_order, should_run};

/// Whether an operation allows that a server gets the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holding {
    Allowed,
    /// The operation replaces the claim, or takes a point of an unused disk.
    Blocked,
}

/// Assigns, keeps or releases the disk.
pub(super) fn advance(state: &State<'_>, steps: &mut Steps, operation: Holding) {
    match &state.stored.holder {
        None if operation == Holding::Allowed => steps.status.holder = assign(state),
        None => {}
        Some(stored) => {
            let holder = DiskHolder { interrupted: is_interrupted(state, stored), ..stored.clone() };
            advance_holder(state, steps, &holder);
        }
    }
}

fn advance_holder(state: &State<'_>, steps: &mut Steps, holder: &DiskHolder) {
    steps.status.holder = Some(holder.clone());
    match &holder.releasing_since {
        None if !is_needed(state, holder) => {
            steps.status.holder =
                Some(DiskHolder { releasing_since: Some(to_api_precision(state.now)), ..holder.clone() });
        }
        None => record_use(state, steps, holder),
        Some(_) if is_active(state, holder) => {
            steps.status.holder = Some(DiskHolder { releasing_since: None, ..holder.clone() });
        }
        Some(since) if is_far_ahead(since.0, state.now) => {
            let since = Some(to_api_precision(state.now));
            steps.status.holder = Some(DiskHolder { releasing_since: since, ..holder.clone() });
        }
        Some(_) => release(state, steps, holder),
    }
}

/// Records the first pod of a holder.
fn record_use(state: &State<'_>, steps: &mut Steps, holder: &DiskHolder) {
    // A pod of an operation may still be terminating.
    if !holder.used && state.writers().any(|pod| pod.operation.is_none()) {
        steps.status.holder = Some(DiskHolder { used: true, ..holder.clone() });
        steps.status.last_used = Some(to_api_precision(state.now));
    }
}

fn server<'a>(state: &State<'a>, holder: &DiskHolder) -> Option<&'a DevServer> {
    state.observed.servers.iter().copied().find(|server| server.metadata.uid.as_ref() == Some(&holder.uid))
}

/// Reports whether the server has an admission, or any pod may still write to the claim.
fn is_active(state: &State<'_>, holder: &DiskHolder) -> bool {
    let server = server(state, holder);
    let is_admitted = server.is_some_and(|server| active_admission(server.status.as_ref()).is_some());
    is_admitted || state.writers().next().is_some()
}

/// Reports whether the server keeps the disk. A pending server does, unless it ran before: then its point is taken first.
fn is_needed(state: &State<'_>, holder: &DiskHolder) -> bool {
    let waits = server(state, holder).is_some_and(may_start) && !holder.used;
    is_active(state, holder) || waits && !state.disk.spec.deleted
}

/// Returns the name of the server that holds the disk and is about to release it. It may not exist any more.
pub(super) fn stopping_server<'a>(state: &'a State<'_>) -> Option<&'a ServerName> {
    let holder = state.stored.holder.as_ref()?;
    server(state, holder).is_none_or(|server| !may_start(server)).then_some(&holder.server)
}

/// Reports whether pods of the server may be created.
fn may_start(server: &DevServer) -> bool {
    let phase = server.status.as_ref().and_then(|status| status.phase);
    let is_ended = phase.is_some_and(|phase| phase.is_terminal() || phase == Phase::Stopping);
    should_run(server) && !is_ended && server.metadata.deletion_timestamp.is_none()
}

fn candidates<'a>(state: &State<'a>) -> impl Iterator<Item = &'a DevServer> {
    state.observed.servers.iter().copied().filter(|server| may_start(server))
}

/// Returns the server that gets the disk: an admitted one, else the one that was created first.
fn assign(state: &State<'_>) -> Option<DiskHolder> {
    let is_usable = match &state.claim {
        ClaimState::NotCreated => claim::resolve_source(state).is_ok(),
        ClaimState::Found(claim) => !claim.is_deleting && claim.phase != ClaimPhase::Lost,
        ClaimState::Missing(_) | ClaimState::Ambiguous(_) | ClaimState::Foreign(_) => false,
    };
    if !is_usable || state.observed.owner.is_none() || state.disk.spec.deleted {
        return None;
    }
    let first = candidates(state).min_by_key(|server| {
        let is_admitted = active_admission(server.status.as_ref()).is_some();
        (!is_admitted, creation_order(server))
    })?;
    // A pod of another server, or not of ODC. Pods of the server itself mean that the status was lost.
    let is_own = |pod: &Pod| {
        let uid = pod.server.as_ref().and_then(|details| details.server_uid());
        uid.is_some() && uid == first.metadata.uid.as_deref()
    };
    if !state.writers().all(is_own) {
        return None;
    }
    Some(DiskHolder {
        server: first.metadata.name.as_deref()?.parse().ok()?,
        uid: first.metadata.uid.clone()?,
        since: to_api_precision(state.now),
        used: false,
        interrupted: false,
        releasing_since: None,
    })
}

/// Takes the point of the stop and then releases the disk. The disk is released without a point if the storage system does
/// not take it in time, or fails while a server waits: the data is in the claim, and the server must be able to start.
fn release(state: &State<'_>, steps: &mut Steps, holder: &DiskHolder) {
    let (Some(since), Some(suffix)) = (&holder.releasing_since, stop_point_name_suffix(holder)) else { return };
    let claim = state.current_claim().filter(|claim| claim.phase == ClaimPhase::Bound && !claim.is_deleting);
    let (Some(points), Some(claim), true) = (&state.points, claim, holder.used) else {
        return clear(state, steps, holder);
    };
    let name = format!("{}-{suffix}", state.name);
    let rest = remaining(SNAPSHOT_TIMEOUT, since.0, state.now);
    match (points.find(&name), rest) {
        (Some(snapshot), _) if point::is_taken(snapshot) => clear(state, steps, holder),
        (Some(snapshot), Some(_)) if snapshot.error.is_some() && candidates(state).next().is_some() => {
            // A point that is taken after the next start would not be clean.
            steps.writes.extend(point::delete(state, points, snapshot));
            fail(state, steps, holder, snapshot.error.as_deref().unwrap_or_default());
        }
        (snapshot, None) => {
            steps.writes.extend(snapshot.into_iter().flat_map(|snapshot| point::delete(state, points, snapshot)));
            let cause = state.write_error(Kind::VolumeSnapshot).unwrap_or("the storage system did not take it in time");
            fail(state, steps, holder, cause);
        }
        (Some(_), Some(rest)) => steps.requeue_after(rest),
        (None, Some(rest)) => {
            let consistency = if holder.interrupted { Consistency::CrashConsistent } else { Consistency::Clean };
            let reason = PointReason::Stop;
            let new = NewPoint { name: &name, reason, consistency, operation_uid: None, note: None, temporary: None };
            steps.disk_writes.push(point::create(state, points, claim, &new));
            steps.requeue_after(rest);
        }
    }
}

/// Reports whether the server may have been interrupted in a write. It is stored as soon as the node of a pod is not ready,
/// because pod, server and node may be gone when the point is taken. A pod that becomes ready again continues the server;
/// a terminating one may have been interrupted before its node was ready again.
fn is_interrupted(state: &State<'_>, holder: &DiskHolder) -> bool {
    let pods: Vec<&Pod> = state.writers().collect();
    let continues = |pod: &&Pod| pods::is_ready(pod) && pod.deletion_timestamp.is_none();
    let is_continued = !pods.is_empty() && pods.iter().all(continues);
    // The pod may have been deleted while no operator was running.
    let is_pod_missing = holder.used && pods.is_empty();
    let admission = server(state, holder).and_then(|server| active_admission(server.status.as_ref()));
    let assigned = admission.filter(|_| is_pod_missing).and_then(|admission| admission.nodes.first());
    let is_node_unready = pods.iter().any(|pod| state.is_node_unready(pod))
        || assigned.is_some_and(|node| !state.observed.ready_nodes.contains(node.as_str()));
    is_node_unready || holder.interrupted && !is_continued
}

/// Returns the end of the name of the point at the stop of a server. It depends on stored times only.
pub(super) fn stop_point_name_suffix(holder: &DiskHolder) -> Option<String> {
    let since = holder.releasing_since.as_ref()?;
    Some(format!("stop-{}", since.0.strftime("%Y%m%d-%H%M%S")))
}

fn fail(state: &State<'_>, steps: &mut Steps, holder: &DiskHolder, cause: &str) {
    let note = format!("Failed to take a restore point after the stop of server {}: {cause}", holder.server);
    steps.point_failure = Some(note.clone());
    steps.events.push(Event { warning: true, reason: Reason::SnapshotFailed, action: "Snapshot", note });
    clear(state, steps, holder);
}

fn clear(state: &State<'_>, steps: &mut Steps, holder: &DiskHolder) {
    if holder.used {
        steps.status.last_used = Some(to_api_precision(state.now));
    }
    steps.status.holder = None;
}
