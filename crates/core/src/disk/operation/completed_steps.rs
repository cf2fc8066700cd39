//! How far an operation is: the number of its steps whose result exists.

use odc_api::v1alpha1::{DiskAction, DiskOperation};

use super::super::point::is_taken;
use super::super::{State, claim, temporary};
use crate::cluster::Snapshot;

/// Returns the number of completed steps and of all steps. The last step is complete when the operation has succeeded.
pub(super) fn count(state: &State<'_>, operation: &DiskOperation) -> (usize, usize) {
    let uid = temporary::uid(operation);
    let name = claim::name(state.name, uid);
    let snapshot = || {
        let points = state.points.as_ref()?;
        points.own.iter().chain(&points.temporary).copied().find(|snapshot| snapshot.name == name)
    };
    let is_verified = |snapshot: &Snapshot| state.points.as_ref().is_some_and(|points| points.is_verified(snapshot));
    let has_claim = || {
        let is_of_rollback = claim::own_claims(state).any(|claim| claim.name == name);
        is_of_rollback || claim::temporary_claims(state).any(|claim| claim.operation_uid.as_deref() == Some(uid))
    };
    let has_pod = || temporary::pod(state, operation).is_some();
    let steps = match operation.spec.action {
        DiskAction::Snapshot => vec![snapshot().is_some_and(is_taken)],
        DiskAction::Clone => vec![operation.spec.point().is_some() || snapshot().is_some_and(is_verified)],
        DiskAction::Rollback => vec![snapshot().is_some_and(is_verified), has_claim()],
        DiskAction::Restore => vec![snapshot().is_some_and(is_verified), has_claim(), has_pod()],
        DiskAction::Browse | DiskAction::Diff => vec![has_claim(), has_pod()],
        DiskAction::Unlock => vec![],
    };
    // A later result implies the earlier ones: a rollback of a lost claim, for example, takes no point.
    let completed = steps.iter().rposition(|is_complete| *is_complete).map_or(0, |last| last + 1);
    (completed, steps.len() + 1)
}
