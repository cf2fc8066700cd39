//! Operations on a disk: one at a time, in the order of their creation.

use std::cmp::Reverse;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use odc_api::annotation;
use odc_api::name::ObjectName;
use odc_api::text::Text;
use odc_api::time::to_api_precision;
use odc_api::v1alpha1::condition::{self, Reason, Status, Type};
use odc_api::v1alpha1::{
    Consistency, Disk, DiskAction, DiskOperation, DiskOperationPhase, DiskOperationResult, DiskOperationStatus,
    DiskSource, DiskSpec, MAX_RETIRED_CLAIMS, PointReason, RetiredClaim,
};

use super::claim::{self, ClaimState, DataSource};
use super::holder::Holding;
use super::point::{self, NewPoint};
use super::{SNAPSHOT_TIMEOUT, State, Steps};
use crate::cluster::{ClaimPhase, Pod, Snapshot};
use crate::devserver::{active_admission, pods};
use crate::manifest::{Kind, Object};
use crate::plan::{Target, Write};
use crate::time::remaining;

/// How long a finished operation is kept.
const FINISHED_TTL: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// The number of finished operations that are kept in a namespace.
pub const MAX_FINISHED_OPERATIONS: usize = 50;
/// How long an operation waits for a snapshot to become ready.
const READY_TIMEOUT: Duration = Duration::from_secs(30 * 60);
/// From this number of snapshots in a namespace on, no points are taken on demand, so that a stop can take its own.
const MAX_SNAPSHOTS_ON_DEMAND: usize = 450;

/// The next state of a running operation.
enum Progress {
    /// Waits for what the message says.
    Wait(String),
    Failed(Reason, String),
    Done(Box<DiskOperationResult>),
}

pub(super) fn is_finished(operation: &DiskOperation) -> bool {
    let phase = operation.status.as_ref().and_then(|status| status.phase);
    phase.is_some_and(DiskOperationPhase::is_terminal)
}

fn creation_order(operation: &DiskOperation) -> (Option<i64>, Option<&str>) {
    let created = operation.metadata.creation_timestamp.as_ref().map(|time| time.0.as_second());
    (created, operation.metadata.uid.as_deref())
}

/// Advances the first unfinished operation, and reports the others as pending.
pub(super) fn advance(state: &State<'_>, steps: &mut Steps) -> Holding {
    let mut unfinished: Vec<&DiskOperation> =
        state.observed.operations.iter().copied().filter(|operation| !is_finished(operation)).collect();
    unfinished.sort_by_key(|operation| creation_order(operation));
    let Some((first, others)) = unfinished.split_first() else { return Holding::Allowed };
    for other in others {
        let message =
            format!("Waiting for operation {} on the same disk.", first.metadata.name.as_deref().unwrap_or_default());
        let pending = update(other, DiskOperationPhase::Pending, Reason::OperationPending, &message, state.now);
        report(steps, other, pending);
    }
    let started = first.status.as_ref().and_then(|status| status.started_at.as_ref());
    if started.is_none() {
        // Stored before anything is done, so that the time of the start is known.
        let message = "The operation has started.";
        let running = update(first, DiskOperationPhase::Running, Reason::OperationRunning, message, state.now);
        report(steps, first, running);
        steps.requeue_after(Duration::ZERO);
        return blocks_holder(state, first);
    }
    match progress(state, steps, first) {
        Progress::Wait(message) => {
            let running = update(first, DiskOperationPhase::Running, Reason::OperationRunning, &message, state.now);
            report(steps, first, running);
            blocks_holder(state, first)
        }
        Progress::Failed(reason, message) => {
            report(steps, first, update(first, DiskOperationPhase::Failed, reason, &message, state.now));
            Holding::Allowed
        }
        Progress::Done(result) => {
            let message = "The operation has succeeded.";
            let mut done = update(first, DiskOperationPhase::Succeeded, Reason::Succeeded, message, state.now);
            done.result = Some(*result);
            report(steps, first, done);
            Holding::Allowed
        }
    }
}

/// A server waits for a rollback, and until the point of an unused disk is taken.
fn blocks_holder(state: &State<'_>, operation: &DiskOperation) -> Holding {
    let is_taken = || {
        let uid = operation.metadata.uid.as_deref().unwrap_or_default();
        let snapshot = state.points.as_ref().and_then(|points| points.find(&claim::name(state.name, uid)));
        operation.spec.point().is_some() || snapshot.is_some_and(point::is_taken)
    };
    match operation.spec.action {
        DiskAction::Rollback => Holding::Blocked,
        DiskAction::Unlock | DiskAction::Browse | DiskAction::Diff | DiskAction::Restore => Holding::Allowed,
        DiskAction::Snapshot | DiskAction::Clone => {
            if is_taken() {
                Holding::Allowed
            } else {
                Holding::Blocked
            }
        }
    }
}

fn report(steps: &mut Steps, operation: &DiskOperation, status: DiskOperationStatus) {
    if operation.status.as_ref() != Some(&status) {
        steps.operations.push((operation.metadata.name.clone().unwrap_or_default(), status));
    }
}

fn update(
    operation: &DiskOperation,
    phase: DiskOperationPhase,
    reason: Reason,
    message: &str,
    now: Timestamp,
) -> DiskOperationStatus {
    let mut status = operation.status.clone().unwrap_or_default();
    let now = to_api_precision(now);
    let complete = if phase == DiskOperationPhase::Succeeded { Status::True } else { Status::False };
    let generation = operation.metadata.generation;
    status.observed_generation = generation;
    status.phase = Some(phase);
    if phase != DiskOperationPhase::Pending {
        status.started_at.get_or_insert_with(|| now.clone());
    }
    if phase.is_terminal() {
        status.finished_at.get_or_insert_with(|| now.clone());
    }
    condition::set(&mut status.conditions, condition::new(Type::Complete, complete, reason, message, generation, now));
    status
}

/// Returns the status of an operation on a disk that does not exist.
pub fn fail_without_disk(operation: &DiskOperation, now: Timestamp) -> Option<DiskOperationStatus> {
    let message = format!("Disk {} not found in this namespace.", operation.spec.disk);
    (!is_finished(operation))
        .then(|| update(operation, DiskOperationPhase::Failed, Reason::DiskNotFound, &message, now))
}

/// Returns the finished operations of a namespace that are deleted: those older than a week, and the oldest beyond
/// [`MAX_FINISHED_OPERATIONS`]. Also returns how long the oldest other one is kept.
pub fn expired_operations(operations: &[&DiskOperation], now: Timestamp) -> (Vec<Target>, Option<Duration>) {
    let finished_at = |operation: &DiskOperation| operation.status.as_ref()?.finished_at.as_ref().map(|time| time.0);
    let mut finished: Vec<&DiskOperation> =
        operations.iter().copied().filter(|operation| is_finished(operation)).collect();
    finished.sort_by_key(|operation| Reverse((finished_at(operation), operation.metadata.uid.as_deref())));
    let mut expired = Vec::new();
    let mut next = None;
    for (index, operation) in finished.into_iter().enumerate() {
        let rest = finished_at(operation).and_then(|at| remaining(FINISHED_TTL, at, now));
        match rest.filter(|_| index < MAX_FINISHED_OPERATIONS) {
            Some(rest) => next = Some(next.map_or(rest, |next: Duration| next.min(rest))),
            None if operation.metadata.deletion_timestamp.is_some() => {}
            None => expired.push(target(operation)),
        }
    }
    (expired, next)
}

fn target(operation: &DiskOperation) -> Target {
    Target {
        kind: Kind::DiskOperation,
        namespace: operation.metadata.namespace.clone(),
        name: operation.metadata.name.clone().unwrap_or_default(),
        uid: operation.metadata.uid.clone().unwrap_or_default(),
        grace: None,
    }
}

fn progress(state: &State<'_>, steps: &mut Steps, operation: &DiskOperation) -> Progress {
    if state.stored.holder.as_ref().is_some_and(|holder| holder.releasing_since.is_some()) {
        return Progress::Wait("Waiting for the restore point of a stop that is in progress.".into());
    }
    if state.disk.spec.deleted && operation.spec.action != DiskAction::Unlock {
        let message = format!("Disk {} is marked as deleted. Set spec.deleted to false first.", state.name);
        return Progress::Failed(Reason::Deleted, message);
    }
    match operation.spec.action {
        DiskAction::Snapshot => match take_point(state, steps, operation, PointReason::OnDemand) {
            Ok(point) => {
                Progress::Done(Box::new(DiskOperationResult { point: point.name.parse().ok(), ..Default::default() }))
            }
            Err(progress) => progress,
        },
        DiskAction::Rollback => roll_back(state, steps, operation),
        DiskAction::Clone => clone(state, steps, operation),
        DiskAction::Unlock => unlock(state, steps),
        DiskAction::Browse | DiskAction::Diff | DiskAction::Restore => {
            Progress::Failed(Reason::Invalid, "The action is not supported.".into())
        }
    }
}

/// Returns the verified point that the operation takes of the current claim.
fn take_point<'a>(
    state: &'a State<'_>,
    steps: &mut Steps,
    operation: &DiskOperation,
    reason: PointReason,
) -> Result<&'a Snapshot, Progress> {
    let Some(points) = &state.points else {
        let message = "The cluster has no VolumeSnapshot API. Install a CSI driver with snapshots.";
        return Err(Progress::Failed(Reason::SnapshotsUnsupported, message.into()));
    };
    let uid = operation.metadata.uid.as_deref().unwrap_or_default();
    let name = claim::name(state.name, uid);
    let started = operation.status.as_ref().and_then(|status| status.started_at.as_ref()).map_or(state.now, |at| at.0);
    let Some(snapshot) = points.find(&name) else {
        let Some(claim) = state.current_claim().filter(|claim| claim.phase == ClaimPhase::Bound) else {
            let message = format!("Disk {} has no data yet: no server has used it.", state.name);
            return Err(Progress::Failed(Reason::NotProvisioned, message));
        };
        if points.is_name_taken(&name) {
            let message = format!("VolumeSnapshot {name} exists and does not belong to this disk.");
            return Err(Progress::Failed(Reason::NameConflict, message));
        }
        let count = points.count_in_namespace();
        if reason == PointReason::OnDemand && count >= MAX_SNAPSHOTS_ON_DEMAND {
            let message = format!(
                "The namespace has {count} restore points; from {MAX_SNAPSHOTS_ON_DEMAND} on none are taken on demand. \
                 Lower spec.retention of your disks, or delete a disk."
            );
            return Err(Progress::Failed(Reason::TooManyPoints, message));
        }
        if remaining(SNAPSHOT_TIMEOUT, started, state.now).is_none() {
            return Err(Progress::Failed(
                Reason::OperationTimeout,
                format!("Restore point {name} could not be created."),
            ));
        }
        let is_used = state.stored.holder.is_some() || state.writers().next().is_some();
        let consistency = if is_used { Consistency::CrashConsistent } else { Consistency::Clean };
        let note = operation.spec.note.as_ref().map(Text::as_str);
        let new = NewPoint { name: &name, reason, consistency, operation_uid: Some(uid), note };
        steps.writes.push(point::create(state, points, claim, &new));
        steps.requeue_after(SNAPSHOT_TIMEOUT);
        return Err(Progress::Wait(format!("Taking restore point {name}.")));
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

/// Returns the verified point that the operation names.
fn find_point<'a>(state: &'a State<'_>, name: &str) -> Result<&'a Snapshot, Progress> {
    let points = state.points.as_ref();
    let found = points.and_then(|points| points.find(name).filter(|snapshot| points.is_verified(snapshot)));
    found.ok_or_else(|| {
        let message =
            format!("Disk {} has no verified restore point {name}. List its points in the status.", state.name);
        Progress::Failed(Reason::PointUnavailable, message)
    })
}

/// Replaces the claim: a point of the current data is verified, a claim is created from the old point, and the status
/// names the new claim. The old claim is kept for a day.
fn roll_back(state: &State<'_>, steps: &mut Steps, operation: &DiskOperation) -> Progress {
    let uid = operation.metadata.uid.as_deref().unwrap_or_default();
    let new_name = claim::name(state.name, uid);
    if state.stored.claim.as_ref().is_some_and(|claim| claim.as_str() == new_name) {
        let point = state.points.as_ref().and_then(|points| points.find(&new_name));
        let point = point.and_then(|point| point.name.parse().ok());
        return Progress::Done(Box::new(DiskOperationResult {
            point,
            claim: new_name.parse().ok(),
            ..Default::default()
        }));
    }
    if let Some(holder) = &state.stored.holder {
        let message =
            format!("Disk {} is in use by server {}. Hibernate or delete it first.", state.name, holder.server);
        return Progress::Failed(Reason::DiskInUse, message);
    }
    if let Some(pod) = state.writers().next() {
        return Progress::Failed(Reason::DiskInUse, format!("Disk {} is mounted by pod {}.", state.name, pod.name));
    }
    if state.stored.retired_claims.len() >= MAX_RETIRED_CLAIMS {
        let message =
            format!("Disk {} was rolled back {MAX_RETIRED_CLAIMS} times in 24h. Try again later.", state.name);
        return Progress::Failed(Reason::TooManyPoints, message);
    }
    let wanted = operation.spec.point().map(ObjectName::as_str).unwrap_or_default();
    let snapshot = match find_point(state, wanted) {
        Ok(snapshot) => snapshot,
        Err(progress) => return progress,
    };
    let current = match &state.claim {
        ClaimState::Found(claim) => Some(*claim),
        // The data is lost; the point brings it back.
        ClaimState::Missing(_) => None,
        ClaimState::NotCreated | ClaimState::Ambiguous(_) | ClaimState::Foreign(_) => {
            let message = format!("Disk {} has no claim that could be replaced.", state.name);
            return Progress::Failed(Reason::NotProvisioned, message);
        }
    };
    let bound = current.filter(|claim| claim.phase == ClaimPhase::Bound && !claim.is_deleting);
    if bound.is_some()
        && let Err(progress) = take_point(state, steps, operation, PointReason::Rollback)
    {
        return progress;
    }
    let Some(claim) = claim::own_claims(state).find(|claim| claim.name == new_name) else {
        let size = snapshot.restore_size.map_or(state.disk.spec.size, |size| size.max(state.disk.spec.size));
        let source = DataSource::Snapshot(&snapshot.name);
        steps.writes.push(Write::Create(claim::object(state, &new_name, size, Some(source))));
        return Progress::Wait(format!("Creating claim {new_name} from restore point {wanted}."));
    };
    let waits_for_consumer =
        claim::storage_class(state, claim.class.as_deref()).is_some_and(|class| class.waits_for_consumer);
    if claim.phase != ClaimPhase::Bound && !waits_for_consumer {
        return match remaining(READY_TIMEOUT, started_at(operation, state.now), state.now) {
            Some(rest) => {
                steps.requeue_after(rest);
                Progress::Wait(format!("Waiting for claim {new_name} to be bound."))
            }
            None => Progress::Failed(Reason::OperationTimeout, format!("Claim {new_name} was not bound in time.")),
        };
    }
    steps.status.claim = new_name.parse().ok();
    let retired = current.and_then(|claim| {
        let since = to_api_precision(state.now);
        Some(RetiredClaim { name: claim.name.parse().ok()?, uid: claim.uid.clone(), since })
    });
    steps.status.retired_claims.extend(retired);
    steps.requeue_after(Duration::ZERO);
    Progress::Wait(format!("Switching the disk to claim {new_name}."))
}

fn started_at(operation: &DiskOperation, now: Timestamp) -> Timestamp {
    operation.status.as_ref().and_then(|status| status.started_at.as_ref()).map_or(now, |at| at.0)
}

/// Creates a disk whose source is a verified point of this disk.
fn clone(state: &State<'_>, steps: &mut Steps, operation: &DiskOperation) -> Progress {
    let uid = operation.metadata.uid.as_deref().unwrap_or_default();
    let Some(name) = operation.spec.new_name() else {
        return Progress::Failed(Reason::Invalid, "The action Clone requires arguments.name.".into());
    };
    let created_for = |disk: &Disk| {
        let annotations = disk.metadata.annotations.as_ref();
        annotations.and_then(|annotations| annotations.get(annotation::OPERATION_UID).cloned())
    };
    let existing = state.observed.disks.iter().find(|disk| disk.metadata.name.as_deref() == Some(name.as_str()));
    match existing {
        Some(disk) if created_for(disk).as_deref() == Some(uid) => {
            let point = match &disk.spec.source {
                Some(DiskSource::Point { point, .. }) => Some(point.clone()),
                Some(DiskSource::Disk(_) | DiskSource::Claim(_)) | None => None,
            };
            return Progress::Done(Box::new(DiskOperationResult {
                disk: Some(name.clone()),
                point,
                ..Default::default()
            }));
        }
        Some(_) => {
            let message = format!("Disk {name} already exists. Choose another name.");
            return Progress::Failed(Reason::NameConflict, message);
        }
        None => {}
    }
    let found = match operation.spec.point() {
        Some(point) => find_point(state, point.as_str()),
        None => take_point(state, steps, operation, PointReason::OnDemand),
    };
    let snapshot = match found {
        Ok(snapshot) => snapshot,
        Err(progress) => return progress,
    };
    let (Ok(disk), Ok(point)) = (state.name.parse(), snapshot.name.parse()) else {
        return Progress::Failed(Reason::Invalid, format!("Disk {} has an invalid name.", state.name));
    };
    let size = snapshot.restore_size.map_or(state.disk.spec.size, |size| size.max(state.disk.spec.size));
    let spec = DiskSpec {
        display_name: None,
        size,
        storage_class: state.disk.spec.storage_class.clone(),
        source: Some(DiskSource::Point { disk, point }),
        schedule: state.disk.spec.schedule.clone(),
        retention: state.disk.spec.retention.clone(),
        deleted: false,
    };
    let mut copy = Disk::new(name.as_str(), spec);
    copy.metadata.namespace = Some(state.namespace.to_owned());
    copy.metadata.annotations = Some([(annotation::OPERATION_UID.to_owned(), uid.to_owned())].into());
    steps.writes.push(Write::Create(Object::new(Kind::Disk, &copy)));
    Progress::Wait(format!("Creating disk {name}."))
}

/// Deletes pods that mount the disk although their server has ended or does not exist. Their node is not waited for: the
/// owner has confirmed by the operation that nothing writes to the disk any more.
fn unlock(state: &State<'_>, steps: &mut Steps) -> Progress {
    let is_running = |uid: &str| {
        let mut servers = state.observed.servers.iter();
        servers.any(|server| {
            server.metadata.uid.as_deref() == Some(uid) && active_admission(server.status.as_ref()).is_some()
        })
    };
    let writers: Vec<&Pod> = state.writers().collect();
    for pod in &writers {
        let Some(uid) = pod.server.as_ref().and_then(|details| details.server_uid()) else {
            let message = format!("Pod {} mounts the disk and does not belong to a server. Delete it first.", pod.name);
            return Progress::Failed(Reason::DiskInUse, message);
        };
        if is_running(uid) {
            let message =
                format!("Pod {} belongs to a running server. Hibernate or delete the server instead.", pod.name);
            return Progress::Failed(Reason::DiskInUse, message);
        }
    }
    if writers.is_empty() {
        return Progress::Done(Box::default());
    }
    steps.writes.extend(writers.iter().map(|pod| Write::Delete(pods::target(pod, Some(0)))));
    Progress::Wait("Deleting remaining pods.".into())
}
