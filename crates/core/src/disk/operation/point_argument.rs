//! The restore points that an operation takes or names.

use odc_api::text::Text;
use odc_api::v1alpha1::condition::Reason;
use odc_api::v1alpha1::{Consistency, DiskOperation, PointReason};

use super::super::point::{self, MAX_SNAPSHOTS_BEFORE_STOPS, NewPoint};
use super::super::{SNAPSHOT_TIMEOUT, State, Steps, claim, flush};
use super::{Progress, READY_TIMEOUT, started_at, write_error};
use crate::cluster::{ClaimPhase, Snapshot};
use crate::time::remaining;

/// Returns the verified point that the operation takes of the current claim.
pub(super) fn take_point<'a>(
    state: &'a State<'_>,
    steps: &mut Steps,
    operation: &DiskOperation,
    reason: PointReason,
) -> Result<&'a Snapshot, Progress> {
    take(state, steps, operation, reason, false)
}

/// As [`take_point`], for a snapshot that is deleted with the operation.
pub(super) fn take_temporary_point<'a>(
    state: &'a State<'_>,
    steps: &mut Steps,
    operation: &DiskOperation,
) -> Result<&'a Snapshot, Progress> {
    take(state, steps, operation, PointReason::OnDemand, true)
}

fn take<'a>(
    state: &'a State<'_>,
    steps: &mut Steps,
    operation: &DiskOperation,
    reason: PointReason,
    is_temporary: bool,
) -> Result<&'a Snapshot, Progress> {
    let Some(points) = &state.points else {
        let message = "The cluster has no VolumeSnapshot API. Install a CSI driver with snapshots.";
        return Err(Progress::Failed(Reason::SnapshotsUnsupported, message.into()));
    };
    let uid = operation.metadata.uid.as_deref().unwrap_or_default();
    let name = claim::name(state.name, uid);
    let started = started_at(operation, state.now);
    let candidates = if is_temporary { &points.temporary } else { &points.own };
    let Some(snapshot) = candidates.iter().copied().find(|snapshot| snapshot.name == name) else {
        let Some(claim) = state.current_claim().filter(|claim| claim.phase == ClaimPhase::Bound) else {
            return Err(Progress::Failed(Reason::NotProvisioned, no_data(state)));
        };
        if points.is_name_taken(&name) {
            let message = format!("VolumeSnapshot {name} exists and does not belong to this disk.");
            return Err(Progress::Failed(Reason::NameConflict, message));
        }
        let count = points.count_in_namespace();
        if reason == PointReason::OnDemand && count >= MAX_SNAPSHOTS_BEFORE_STOPS {
            let message = format!(
                "The namespace has {count} restore points; from {MAX_SNAPSHOTS_BEFORE_STOPS} on none are taken on demand. \
                 Lower spec.retention of your disks, or delete a disk."
            );
            return Err(Progress::Failed(Reason::TooManyPoints, message));
        }
        if remaining(SNAPSHOT_TIMEOUT, started, state.now).is_none() {
            let cause = write_error(state, operation).unwrap_or("the API server did not accept it in time");
            let message = format!("Restore point {name} could not be created: {cause}");
            return Err(Progress::Failed(Reason::OperationTimeout, message));
        }
        let is_used = state.stored.holder.is_some() || state.writers().next().is_some();
        if is_used && !flush::is_flushed(state, steps) {
            return Err(Progress::Wait("Waiting until the server has written its data to the disk.".into()));
        }
        let consistency = if is_used { Consistency::CrashConsistent } else { Consistency::Clean };
        let note = operation.spec.note.as_ref().map(Text::as_str);
        let temporary = is_temporary.then_some(operation);
        let new = NewPoint { name: &name, reason, consistency, operation_uid: Some(uid), note, temporary };
        steps.operation_writes.push((uid.to_owned(), point::create(state, points, claim, &new)));
        steps.requeue_after(SNAPSHOT_TIMEOUT);
        let error = write_error(state, operation).map(|error| format!(" {error}")).unwrap_or_default();
        return Err(Progress::Wait(format!("Taking restore point {name}.{error}")));
    };
    if points.is_verified(snapshot) {
        return Ok(snapshot);
    }
    let timeout = if point::is_taken(snapshot) { READY_TIMEOUT } else { SNAPSHOT_TIMEOUT };
    let Some(rest) = remaining(timeout, started, state.now) else {
        let cause = snapshot.error.as_deref().unwrap_or("it is not ready in time");
        return Err(Progress::Failed(Reason::SnapshotFailed, format!("Restore point {name} failed: {cause}")));
    };
    steps.requeue_after(rest);
    let error = snapshot.error.as_ref().map(|error| format!(" The last attempt failed: {error}"));
    Err(Progress::Wait(format!("Waiting for restore point {name} to be ready.{}", error.unwrap_or_default())))
}

/// Returns why a disk has no bound claim.
fn no_data(state: &State<'_>) -> String {
    match state.current_claim() {
        Some(claim) if claim.snapshot.is_some() => format!(
            "Disk {} gets the data of restore point {} when a server starts. Start a server with it first.",
            state.name,
            claim.snapshot.as_deref().unwrap_or_default()
        ),
        _ => format!("Disk {} has no data yet: no server has used it.", state.name),
    }
}

/// Returns the verified point that the operation names.
pub(super) fn find_point<'a>(state: &'a State<'_>, name: &str) -> Result<&'a Snapshot, Progress> {
    let points = state.points.as_ref();
    let found = points.and_then(|points| points.find(name).filter(|snapshot| points.is_verified(snapshot)));
    found.ok_or_else(|| {
        let message =
            format!("Disk {} has no verified restore point {name}. List its points in the status.", state.name);
        Progress::Failed(Reason::PointUnavailable, message)
    })
}

/// As [`find_point`], but waits for a point that is being taken.
pub(super) fn wait_for_point<'a>(state: &'a State<'_>, name: &str) -> Result<&'a Snapshot, Progress> {
    find_point(state, name).map_err(|failed| {
        let found = state.points.as_ref().and_then(|points| points.find(name));
        match found.filter(|snapshot| snapshot.error.is_none() && !snapshot.is_ready && !snapshot.is_deleting) {
            Some(_) => Progress::Wait(format!("Waiting for restore point {name} to be ready.")),
            None => failed,
        }
    })
}
