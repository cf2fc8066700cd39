//! Operations on a disk: one at a time, in the order of their creation. Browse operations run beside them, because they
//! need only a copy of a restore point.

mod browse;
mod clone;
mod completed_steps;
mod diff;
mod job;
mod pod_state;
mod point_argument;
mod restore;
mod rollback;
mod unlock;

use std::cmp::Reverse;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use odc_api::time::to_api_precision;
use odc_api::v1alpha1::condition::{self, Reason, Status, Type};
use odc_api::v1alpha1::{
    DiskAction, DiskOperation, DiskOperationPhase, DiskOperationResult, DiskOperationStatus, PointReason,
};

use super::holder::Holding;
use super::{State, Steps, claim, holder, point};
use crate::manifest::Kind;
use crate::plan::Target;
use crate::time::{is_far_ahead, remaining};
use point_argument::take_point;

/// How long a finished operation is kept.
const FINISHED_TTL: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// The number of finished operations that are kept in a namespace.
pub const MAX_FINISHED_OPERATIONS: usize = 50;
/// How long an operation waits for a snapshot, a claim or a pod to become ready.
const READY_TIMEOUT: Duration = Duration::from_secs(30 * 60);

/// The next state of a running operation.
#[derive(Debug)]
pub(super) enum Progress {
    /// Waits for what the message says.
    Wait(String),
    /// Continues to run; the result can be used meanwhile.
    Serve(Box<DiskOperationResult>, String),
    Failed(Reason, String),
    Done(Box<DiskOperationResult>, String),
}

impl Progress {
    fn done(result: DiskOperationResult) -> Self {
        Self::Done(Box::new(result), "The operation has succeeded.".into())
    }
}

pub(super) fn is_finished(operation: &DiskOperation) -> bool {
    let phase = operation.status.as_ref().and_then(|status| status.phase);
    phase.is_some_and(DiskOperationPhase::is_terminal)
}

fn is_started(operation: &DiskOperation) -> bool {
    operation.status.as_ref().is_some_and(|status| status.started_at.is_some())
}

fn creation_order(operation: &DiskOperation) -> (Option<i64>, Option<&str>) {
    let created = operation.metadata.creation_timestamp.as_ref().map(|time| time.0.as_second());
    (created, operation.metadata.uid.as_deref())
}

/// Returns the unfinished operations on the disk, in the order of their creation.
pub(super) fn unfinished<'a>(state: &State<'a>) -> Vec<&'a DiskOperation> {
    let is_own = |operation: &&DiskOperation| operation.spec.disk.as_str() == state.name && !is_finished(operation);
    let mut unfinished: Vec<&DiskOperation> = state.observed.operations.iter().copied().filter(is_own).collect();
    // One that has started is not overtaken by one of the same second.
    unfinished.sort_by_key(|operation| (!is_started(operation), creation_order(operation)));
    unfinished
}

/// Advances the Browse operations and the first of the others, and reports the rest as pending.
pub(super) fn advance(state: &State<'_>, steps: &mut Steps) -> Holding {
    let is_browse = |operation: &&DiskOperation| operation.spec.action == DiskAction::Browse;
    let (browses, others): (Vec<_>, Vec<_>) = unfinished(state).into_iter().partition(is_browse);
    for browse in browses {
        advance_one(state, steps, browse);
    }
    let Some((first, others)) = others.split_first() else { return Holding::Allowed };
    for other in others {
        let message =
            format!("Waiting for operation {} on the same disk.", first.metadata.name.as_deref().unwrap_or_default());
        let pending = update(other, DiskOperationPhase::Pending, Reason::OperationPending, &message, state.now);
        report(steps, other, pending);
    }
    if advance_one(state, steps, first) { blocks_holder(state, first) } else { Holding::Allowed }
}

/// Advances an operation. Returns whether it is still running.
fn advance_one(state: &State<'_>, steps: &mut Steps, operation: &DiskOperation) -> bool {
    let started = operation.status.as_ref().and_then(|status| status.started_at.as_ref());
    let progress = if started.is_some() {
        progress(state, steps, operation)
    } else {
        // Stored before anything is done, so that the time of the start is known.
        steps.requeue_after(Duration::ZERO);
        Progress::Wait("The operation has started.".into())
    };
    let (phase, reason, message, result) = match progress {
        Progress::Wait(message) => (DiskOperationPhase::Running, Reason::OperationRunning, message, None),
        Progress::Serve(result, message) => {
            (DiskOperationPhase::Running, Reason::OperationRunning, message, Some(result))
        }
        Progress::Failed(reason, message) => (DiskOperationPhase::Failed, reason, message, None),
        Progress::Done(result, message) => (DiskOperationPhase::Succeeded, Reason::Succeeded, message, Some(result)),
    };
    let mut status = update(operation, phase, reason, &message, state.now);
    let (completed, all) = completed_steps::count(state, operation);
    match phase {
        DiskOperationPhase::Pending | DiskOperationPhase::Running => {
            status.progress = Some(format!("{completed}/{all}").into());
        }
        DiskOperationPhase::Succeeded => status.progress = Some(format!("{all}/{all}").into()),
        // Its last progress.
        DiskOperationPhase::Failed => {}
    }
    status.result = result.map(|result| *result).or(status.result);
    report(steps, operation, status);
    !phase.is_terminal()
}

/// Fails the operations on a disk that is being deleted.
pub(super) fn fail_unfinished(state: &State<'_>, steps: &mut Steps) {
    for operation in unfinished(state) {
        let message = format!("Disk {} is being deleted.", state.name);
        let failed = update(operation, DiskOperationPhase::Failed, Reason::Deleting, &message, state.now);
        report(steps, operation, failed);
    }
}

/// A server waits for a rollback or restore, and until the point of an unused disk is taken.
fn blocks_holder(state: &State<'_>, operation: &DiskOperation) -> Holding {
    let is_taken = || {
        let uid = operation.metadata.uid.as_deref().unwrap_or_default();
        let snapshot = state.points.as_ref().and_then(|points| points.find(&claim::name(state.name, uid)));
        operation.spec.point().is_some() || snapshot.is_some_and(point::is_taken)
    };
    match operation.spec.action {
        DiskAction::Rollback | DiskAction::Restore => Holding::Blocked,
        DiskAction::Unlock | DiskAction::Browse | DiskAction::Diff => Holding::Allowed,
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
        // A time in the future, from a clock that was ahead, would keep a timeout from ever expiring.
        let started = status.started_at.take().filter(|started| !is_far_ahead(started.0, now.0));
        status.started_at = Some(started.unwrap_or_else(|| now.clone()));
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
    Target::from_metadata(Kind::DiskOperation, &operation.metadata)
}

fn progress(state: &State<'_>, steps: &mut Steps, operation: &DiskOperation) -> Progress {
    let action = operation.spec.action;
    let is_releasing = state.stored.holder.as_ref().is_some_and(|holder| holder.releasing_since.is_some());
    if is_releasing && action != DiskAction::Browse {
        return Progress::Wait("Waiting for the restore point of a stop that is in progress.".into());
    }
    if matches!(action, DiskAction::Rollback | DiskAction::Restore)
        && let Some(server) = holder::stopping_server(state)
    {
        let progress = Progress::Wait(format!("Waiting for server {server} to stop."));
        return limit_wait(state, steps, operation, READY_TIMEOUT, progress);
    }
    if state.disk.spec.deleted && action != DiskAction::Unlock {
        let message = format!("Disk {} is marked as deleted. Set spec.deleted to false first.", state.name);
        return Progress::Failed(Reason::Deleted, message);
    }
    match action {
        DiskAction::Snapshot => match take_point(state, steps, operation, PointReason::OnDemand) {
            Ok(point) => Progress::done(DiskOperationResult { point: point.name.parse().ok(), ..Default::default() }),
            Err(progress) => progress,
        },
        DiskAction::Rollback => {
            let progress = rollback::roll_back(state, steps, operation).unwrap_or_else(|progress| progress);
            limit_wait(state, steps, operation, READY_TIMEOUT, progress)
        }
        DiskAction::Clone => {
            let progress = clone::clone(state, steps, operation).unwrap_or_else(|progress| progress);
            limit_wait(state, steps, operation, READY_TIMEOUT, progress)
        }
        DiskAction::Unlock => {
            let progress = unlock::unlock(state, steps);
            limit_wait(state, steps, operation, READY_TIMEOUT, progress)
        }
        DiskAction::Browse => browse::browse(state, steps, operation),
        DiskAction::Diff => diff::diff(state, steps, operation),
        DiskAction::Restore => restore::restore(state, steps, operation),
    }
}

fn started_at(operation: &DiskOperation, now: Timestamp) -> Timestamp {
    operation.status.as_ref().and_then(|status| status.started_at.as_ref()).map_or(now, |at| at.0)
}

/// Returns why the last write for the operation was refused.
fn write_error<'a>(state: &'a State<'_>, operation: &DiskOperation) -> Option<&'a str> {
    let uid = operation.metadata.uid.as_deref().unwrap_or_default();
    state.observed.operation_states.get(uid).and_then(|state| state.error.as_deref())
}

/// Fails an operation that has waited for longer than a timeout. Adds why the last write for it failed.
fn limit_wait(
    state: &State<'_>,
    steps: &mut Steps,
    operation: &DiskOperation,
    timeout: Duration,
    progress: Progress,
) -> Progress {
    let Progress::Wait(mut message) = progress else { return progress };
    if let Some(error) = write_error(state, operation).filter(|error| !message.contains(error)) {
        message.push_str(&format!(" {error}"));
    }
    match remaining(timeout, started_at(operation, state.now), state.now) {
        Some(rest) => {
            steps.requeue_after(rest);
            Progress::Wait(message)
        }
        None => Progress::Failed(Reason::OperationTimeout, format!("The operation did not finish in time. {message}")),
    }
}
