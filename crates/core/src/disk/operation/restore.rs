//! Restore: a pod copies files of a restore point to the disk.

use odc_api::name::ObjectName;
use odc_api::v1alpha1::condition::Reason;
use odc_api::v1alpha1::{DiskOperation, DiskOperationResult, PointReason};

use super::super::operation_pod::{self, Mount};
use super::super::{State, Steps, claim, temporary};
use super::job::{self, JOB_TIMEOUT};
use super::point_argument::{take_point, wait_for_point};
use super::{Progress, limit_wait};
use crate::cluster::ClaimPhase;

pub(super) fn restore(state: &State<'_>, steps: &mut Steps, operation: &DiskOperation) -> Progress {
    let progress = run(state, steps, operation).unwrap_or_else(|progress| progress);
    limit_wait(state, steps, operation, JOB_TIMEOUT, progress)
}

/// The pod is created after the current data is in a verified point, and while no server can get the disk.
fn run(state: &State<'_>, steps: &mut Steps, operation: &DiskOperation) -> Result<Progress, Progress> {
    let name = claim::name(state.name, temporary::uid(operation));
    if let Some(pod) = temporary::pod(state, operation) {
        job::result(pod).map_err(|progress| with_point(progress, &name))?;
        let result = DiskOperationResult { point: name.parse().ok(), ..Default::default() };
        return Ok(Progress::Done(
            Box::new(result),
            format!("The files were copied. Point {name} has the data before."),
        ));
    }
    if operation.spec.paths().is_empty() {
        return Err(Progress::Failed(Reason::Invalid, "The action Restore requires arguments.paths.".into()));
    }
    check_unused(state)?;
    let current = state.current_claim().filter(|claim| claim.phase == ClaimPhase::Bound && !claim.is_deleting);
    let Some(current) = current else {
        let message = format!("Disk {} has no bound claim to copy to. Roll back instead.", state.name);
        return Err(Progress::Failed(Reason::NotProvisioned, message));
    };
    let point = operation.spec.point().map(ObjectName::as_str).unwrap_or_default();
    let snapshot = wait_for_point(state, point)?;
    take_point(state, steps, operation, PointReason::Rollback)?;
    let copy = job::restored_claim(state, steps, operation, &name, snapshot)?;
    let mounts = [
        Mount { claim: copy, path: operation_pod::POINT_PATH, is_read_only: true },
        Mount { claim: current, path: operation_pod::DATA_PATH, is_read_only: false },
    ];
    Ok(job::create_pod(state, steps, operation, operation_pod::restore_command(operation), &mounts))
}

fn check_unused(state: &State<'_>) -> Result<(), Progress> {
    let user = match (&state.stored.holder, state.writers().next()) {
        (Some(holder), _) => format!("in use by server {}", holder.server),
        (None, Some(pod)) => format!("mounted by pod {}", pod.name),
        (None, None) => return Ok(()),
    };
    let message = format!(
        "Disk {} is {user}. Hibernate the server first, or browse the restore point and copy the files.",
        state.name
    );
    Err(Progress::Failed(Reason::DiskInUse, message))
}

/// Adds the point with the data before the operation to the message of a failure.
fn with_point(progress: Progress, point: &str) -> Progress {
    match progress {
        Progress::Failed(reason, message) => {
            let message = message.trim_end_matches('.');
            Progress::Failed(reason, format!("{message}. Point {point} has the data before the operation."))
        }
        other => other,
    }
}
