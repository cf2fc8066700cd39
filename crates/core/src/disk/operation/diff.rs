//! Diff: a pod with copies of two restore points mounted read-only compares them.

use odc_api::name::ObjectName;
use odc_api::v1alpha1::condition::Reason;
use odc_api::v1alpha1::{DiskDiff, DiskOperation, DiskOperationResult};
use odc_control::TreeDiff;

use super::super::operation_pod::{self, Mount};
use super::super::{State, Steps, claim, temporary};
use super::job::{self, JOB_TIMEOUT};
use super::point_argument::{take_temporary_point, wait_for_point};
use super::{Progress, limit_wait};

pub(super) fn diff(state: &State<'_>, steps: &mut Steps, operation: &DiskOperation) -> Progress {
    let progress = run(state, steps, operation).unwrap_or_else(|progress| progress);
    limit_wait(state, steps, operation, JOB_TIMEOUT, progress)
}

fn run(state: &State<'_>, steps: &mut Steps, operation: &DiskOperation) -> Result<Progress, Progress> {
    if let Some(pod) = temporary::pod(state, operation) {
        let diff = parse(job::result(pod)?)?;
        return Ok(Progress::done(DiskOperationResult { diff: Some(diff), ..Default::default() }));
    }
    let point = operation.spec.point().map(ObjectName::as_str).unwrap_or_default();
    let earlier = wait_for_point(state, point)?;
    let later = match operation.spec.to() {
        Some(to) => wait_for_point(state, to.as_str())?,
        None => take_temporary_point(state, steps, operation)?,
    };
    let name = claim::name(state.name, temporary::uid(operation));
    // Both claims are provisioned at the same time.
    let earlier = job::restored_claim(state, steps, operation, &format!("{name}-from"), earlier);
    let later = job::restored_claim(state, steps, operation, &format!("{name}-to"), later);
    let mounts = [
        Mount { claim: earlier?, path: operation_pod::POINT_PATH, is_read_only: true },
        Mount { claim: later?, path: operation_pod::DATA_PATH, is_read_only: true },
    ];
    Ok(job::create_pod(state, steps, operation, operation_pod::diff_command(), &mounts))
}

/// Parses the result of the agent. It contains names of files of the user, so it is checked.
fn parse(message: &str) -> Result<DiskDiff, Progress> {
    let TreeDiff { added, removed, modified, paths, truncated } = TreeDiff::from_message(message).map_err(|error| {
        Progress::Failed(Reason::PodFailed, format!("The pod returned an invalid result: {error}."))
    })?;
    let truncated = truncated || paths.len() > TreeDiff::MAX_PATHS;
    let paths = paths.iter().take(TreeDiff::MAX_PATHS).map(|path| path.as_str().into()).collect();
    Ok(DiskDiff { added, removed, modified, paths, truncated })
}
