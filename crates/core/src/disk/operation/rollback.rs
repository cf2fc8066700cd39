//! Rollback: replaces the claim by one that is restored from a point.

use std::time::Duration;

use odc_api::name::ObjectName;
use odc_api::time::to_api_precision;
use odc_api::v1alpha1::condition::Reason;
use odc_api::v1alpha1::{DiskOperation, DiskOperationResult, MAX_RETIRED_CLAIMS, PointReason, RetiredClaim};

use super::super::claim::{self, ClaimState, DataSource};
use super::super::{State, Steps};
use super::Progress;
use super::point_argument::{take_point, wait_for_point};
use crate::cluster::ClaimPhase;
use crate::plan::Write;

/// Replaces the claim: a point of the current data is verified, a claim is created from the old point, and the status
/// names the new claim. The old claim is kept for a day.
pub(super) fn roll_back(state: &State<'_>, steps: &mut Steps, operation: &DiskOperation) -> Result<Progress, Progress> {
    let uid = operation.metadata.uid.as_deref().unwrap_or_default();
    let new_name = claim::name(state.name, uid);
    if state.stored.claim.as_ref().is_some_and(|claim| claim.as_str() == new_name) {
        let point = state.points.as_ref().and_then(|points| points.find(&new_name));
        let point = point.and_then(|point| point.name.parse().ok());
        return Ok(Progress::done(DiskOperationResult { point, claim: new_name.parse().ok(), ..Default::default() }));
    }
    if let Some(holder) = &state.stored.holder {
        let message =
            format!("Disk {} is in use by server {}. Hibernate or delete it first.", state.name, holder.server);
        return Err(Progress::Failed(Reason::DiskInUse, message));
    }
    if let Some(pod) = state.writers().next() {
        let message = format!("Disk {} is mounted by pod {}.", state.name, pod.name);
        return Err(Progress::Failed(Reason::DiskInUse, message));
    }
    if state.stored.retired_claims.len() >= MAX_RETIRED_CLAIMS {
        let message =
            format!("Disk {} was rolled back {MAX_RETIRED_CLAIMS} times in 24h. Try again later.", state.name);
        return Err(Progress::Failed(Reason::TooManyRollbacks, message));
    }
    let wanted = operation.spec.point().map(ObjectName::as_str).unwrap_or_default();
    let snapshot = wait_for_point(state, wanted)?;
    let current = match &state.claim {
        ClaimState::Found(claim) => Some(*claim),
        // The data is lost; the point brings it back.
        ClaimState::Missing(_) => None,
        ClaimState::NotCreated | ClaimState::Ambiguous(_) | ClaimState::Foreign(_) => {
            let message = format!("Disk {} has no claim that could be replaced.", state.name);
            return Err(Progress::Failed(Reason::NotProvisioned, message));
        }
    };
    let bound = current.filter(|claim| claim.phase == ClaimPhase::Bound && !claim.is_deleting);
    if bound.is_some() {
        take_point(state, steps, operation, PointReason::Rollback)?;
    }
    let Some(claim) = claim::own_claims(state).find(|claim| claim.name == new_name) else {
        let size = snapshot.restore_size.map_or(state.disk.spec.size, |size| size.max(state.disk.spec.size));
        let claim = claim::object(state, &new_name, size, Some(DataSource::Snapshot(snapshot)));
        steps.operation_writes.push((uid.to_owned(), Write::Create(claim)));
        return Err(Progress::Wait(format!("Creating claim {new_name} from restore point {wanted}.")));
    };
    let waits_for_consumer =
        claim::storage_class(state, claim.class.as_deref()).is_some_and(|class| class.waits_for_consumer);
    if claim.phase != ClaimPhase::Bound && !waits_for_consumer {
        return Err(Progress::Wait(format!("Waiting for claim {new_name} to be bound.")));
    }
    steps.status.claim = new_name.parse().ok();
    let retired = current.and_then(|claim| {
        let since = to_api_precision(state.now);
        Some(RetiredClaim { name: claim.name.parse().ok()?, uid: claim.uid.clone(), since })
    });
    steps.status.retired_claims.extend(retired);
    steps.requeue_after(Duration::ZERO);
    Ok(Progress::Wait(format!("Switching the disk to claim {new_name}.")))
}
