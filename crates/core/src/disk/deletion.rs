//! Deletion: 30 days after `spec.deleted`, or at once if the owner confirmed it by name.

use std::time::Duration;

use odc_api::annotation;
use odc_api::time::to_api_precision;
use odc_api::v1alpha1::condition::Reason;
use odc_api::v1alpha1::{Disk, DiskDeletion};

use super::point;
use super::{Plan, SNAPSHOT_TIMEOUT, State, Steps, claim, operation, retention, temporary};
use crate::cluster::{ClaimPhase, Snapshot};
use crate::plan::{Event, Target, Write};
use crate::time::remaining;

/// How many days the data of a deleted disk is kept.
const RETENTION_DAYS: u32 = 30;
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Counts the days since `spec.deleted` was set, and deletes the disk after the last one. Days are counted one by one, so
/// that a clock which is set forward by years shortens the retention by a day at most.
pub(super) fn count_days(state: &State<'_>, steps: &mut Steps) {
    if !state.disk.spec.deleted {
        steps.status.deletion = None;
        return;
    }
    let now = to_api_precision(state.now);
    let mut deletion = state.stored.deletion.clone().unwrap_or_else(|| DiskDeletion {
        since: now.clone(),
        days: 0,
        counted_at: now.clone(),
    });
    if deletion.counted_at.0 > now.0 {
        // The clock was ahead.
        deletion.counted_at = now.clone();
    }
    let rest = remaining(DAY, deletion.counted_at.0, state.now);
    if rest.is_none() {
        deletion.days = deletion.days.saturating_add(1);
        deletion.counted_at = now;
    }
    steps.requeue_after(rest.unwrap_or(DAY));
    let is_used = state.stored.holder.is_some() || state.writers().next().is_some();
    // The stored number, so that the deletion is confirmed by the status before it starts.
    if state.stored.deletion.as_ref().is_some_and(|stored| stored.days >= RETENTION_DAYS) && !is_used {
        // Not if `spec.deleted` is set to false at the same time.
        let resource_version = state.disk.metadata.resource_version.clone();
        steps.writes.push(Write::Delete(Target { resource_version, ..state.target() }));
    }
    steps.status.deletion = Some(deletion);
}

/// Reports whether the data of a deleted object may be deleted.
fn is_confirmed(disk: &Disk) -> bool {
    let annotations = disk.metadata.annotations.as_ref();
    let confirmation = annotations.and_then(|annotations| annotations.get(annotation::CONFIRM_DELETE));
    let is_expired = disk.status.as_ref().and_then(|status| status.deletion.as_ref());
    let is_expired = disk.spec.deleted && is_expired.is_some_and(|deletion| deletion.days >= RETENTION_DAYS);
    is_expired || confirmation.is_some() && confirmation == disk.metadata.name.as_ref()
}

/// Deletes the data of a disk whose object is being deleted: first the restore points, then the claims. If the deletion is
/// not confirmed, or the namespace is being deleted, the volumes and snapshot contents are kept.
pub(super) fn finalize(state: &State<'_>) -> Plan {
    let mut steps = Steps::new(state);
    if !state.has_finalizer() {
        return steps.into_plan(state);
    }
    operation::fail_unfinished(state, &mut steps);
    // In a namespace that is being deleted the operator may have no permissions any more, and nothing is left.
    if !state.observed.is_namespace_deleting {
        if let Some((_, rest)) = unfinished_point(state) {
            steps.requeue_after(rest);
            return steps.into_plan(state);
        }
        temporary::remove(state, &mut steps, |_| true);
    }
    if state.observed.is_namespace_deleting || !is_confirmed(state.disk) {
        // The volumes must be retained before the claims can go.
        claim::retain(state, &mut steps);
        retain_contents(state, &mut steps);
        steps.events.push(Event {
            warning: false,
            reason: Reason::Deleted,
            action: "Delete",
            note: format!("Deleted disk {} and kept its volumes", state.name),
        });
        return remove_finalizer(state, steps);
    }
    if state.writers().next().is_some() || source_of_unprovisioned_disk(state).is_some() {
        return steps.into_plan(state);
    }
    steps.status.holder = None;
    // A snapshot exists until the claims that are created from it are provisioned or deleted.
    let unprovisioned = claim::own_claims(state).filter(|claim| claim.phase == ClaimPhase::Pending);
    let unprovisioned: Vec<_> = unprovisioned.collect();
    if !unprovisioned.is_empty() {
        for claim in unprovisioned {
            claim::delete(state, &mut steps, claim);
        }
        return steps.into_plan(state);
    }
    if let Some(points) = &state.points
        && !points.own.is_empty()
    {
        for snapshot in &points.own {
            steps.writes.extend(point::delete(state, points, snapshot));
        }
        return steps.into_plan(state);
    }
    let claims: Vec<_> = claim::own_claims(state).collect();
    for claim in &claims {
        claim::delete(state, &mut steps, claim);
    }
    let has_temporary_points = state.points.as_ref().is_some_and(|points| !points.temporary.is_empty());
    let has_temporary = has_temporary_points || claim::temporary_claims(state).next().is_some();
    if claims.is_empty() && !has_temporary { remove_finalizer(state, steps) } else { steps.into_plan(state) }
}

/// Removes the finalizer and leaves the status as it is, because the object is gone afterwards.
fn remove_finalizer(state: &State<'_>, mut steps: Steps) -> Plan {
    steps.writes.push(state.write_finalizer(false));
    Plan { status: state.stored.clone(), ..steps.into_plan(state) }
}

fn retain_contents(state: &State<'_>, steps: &mut Steps) {
    let Some(points) = &state.points else { return };
    let contents = points.own.iter().filter_map(|snapshot| points.content(snapshot));
    let deleted = contents.filter(|content| !content.is_retained);
    steps.writes.extend(deleted.map(|content| point::set_deletion_policy(content, "Retain")));
}

/// Returns a restore point of this disk that another disk still needs.
pub(super) fn source_of_unprovisioned_disk(state: &State<'_>) -> Option<String> {
    let points = state.points.as_ref()?;
    // Claims of this disk are deleted.
    let needed = retention::needed(state, |claim| claim.disk_uid.as_deref() != Some(state.uid));
    points.own.iter().find(|snapshot| needed.contains(snapshot.name.as_str())).map(|snapshot| snapshot.name.clone())
}

/// Returns a snapshot that is being taken, or whose content was not observed yet, and how long it is waited for. If it were
/// deleted now, its content would be left, because it is retained until the operator changes that.
pub(super) fn unfinished_point<'a>(state: &'a State<'_>) -> Option<(&'a Snapshot, Duration)> {
    let deleted_at = state.disk.metadata.deletion_timestamp.as_ref()?;
    let rest = remaining(SNAPSHOT_TIMEOUT, deleted_at.0, state.now)?;
    let points = state.points.as_ref()?;
    let is_unfinished = |snapshot: &&&Snapshot| {
        let is_being_taken = !point::is_taken(snapshot) && snapshot.error.is_none();
        !snapshot.is_deleting && (is_being_taken || points.content(snapshot).is_none())
    };
    let unfinished = points.own.iter().chain(&points.temporary).find(is_unfinished)?;
    Some((unfinished, rest))
}
