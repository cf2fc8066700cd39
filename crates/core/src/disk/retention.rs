//! Which restore points are kept.
//!
//! Points are counted in the order in which they were taken and never compared with a clock, so a wrong clock removes
//! nothing. The newest verified point of the disk, and of each of its claims, is always kept.

use std::collections::BTreeSet;

use odc_api::name::ObjectName;
use odc_api::v1alpha1::{DiskSource, DiskSpec, PointReason};

use super::point::{self, Points};
use super::{State, Steps};
use crate::cluster::{Claim, ClaimPhase, Snapshot};

/// Points that are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Group {
    Stops,
    Hourly,
    Daily,
    Weekly,
    OnDemand,
}

impl Group {
    const ALL: [Self; 5] = [Self::Stops, Self::Hourly, Self::Daily, Self::Weekly, Self::OnDemand];

    const fn new(reason: PointReason) -> Self {
        match reason {
            PointReason::Stop | PointReason::Rollback => Self::Stops,
            PointReason::Hourly => Self::Hourly,
            PointReason::Daily => Self::Daily,
            PointReason::Weekly => Self::Weekly,
            PointReason::OnDemand => Self::OnDemand,
        }
    }

    const fn is_scheduled(self) -> bool {
        matches!(self, Self::Hourly | Self::Daily | Self::Weekly)
    }

    const fn limit(self, spec: &DiskSpec) -> u32 {
        match self {
            Self::Stops => spec.retention.stops,
            Self::Hourly => spec.schedule.hourly,
            Self::Daily => spec.schedule.daily,
            Self::Weekly => spec.schedule.weekly,
            Self::OnDemand => spec.retention.on_demand,
        }
    }
}

/// Deletes expired points, and retains the contents of all others.
pub(super) fn remove_expired(state: &State<'_>, steps: &mut Steps) {
    let Some(points) = &state.points else { return };
    let claims = state.observed.claims.iter().map(|claim| claim.uid.as_str()).collect();
    let expired = expired(points, &state.disk.spec, &pinned(state), &claims);
    for snapshot in &points.own {
        if expired.iter().any(|expired| expired.uid == snapshot.uid) {
            steps.writes.extend(point::delete(state, points, snapshot));
        } else if let Some(content) = points.content(snapshot).filter(|content| !content.is_retained)
            && !snapshot.is_deleting
        {
            steps.writes.push(point::set_deletion_policy(content, "Retain"));
        }
    }
}

/// Returns the points that are no longer needed. In each group the newest verified ones are kept, and those that are newer
/// than the oldest of them. A failed point is removed when a newer one is verified; of failed points on a schedule only the
/// newest is kept, so that they do not add up.
fn expired<'a>(
    points: &Points<'a>,
    spec: &DiskSpec,
    pinned: &BTreeSet<&str>,
    claims: &BTreeSet<&str>,
) -> Vec<&'a Snapshot> {
    let mut verified_claims = BTreeSet::new();
    // The newest verified point of the disk, and of each claim that exists.
    let last_copies: BTreeSet<&str> = points
        .own
        .iter()
        .filter(|snapshot| points.is_verified(snapshot))
        .filter(|snapshot| {
            let claim = snapshot.claim_uid.as_deref().unwrap_or_default();
            let is_first = verified_claims.is_empty();
            verified_claims.insert(claim) && (is_first || claims.contains(claim))
        })
        .map(|snapshot| snapshot.uid.as_str())
        .collect();
    let newest_verified = points.own.iter().position(|snapshot| points.is_verified(snapshot));
    let mut expired = Vec::new();
    for group in Group::ALL {
        let mut verified = 0;
        let mut failed = 0;
        let limit = group.limit(spec);
        for (position, snapshot) in points.own.iter().copied().enumerate() {
            if Group::new(snapshot.reason) != group {
                continue;
            }
            let is_surplus = verified >= limit;
            let has_failed = snapshot.error.is_some() && !points.is_verified(snapshot);
            let is_repeated = has_failed && failed > 0 && group.is_scheduled();
            let is_failed = has_failed && newest_verified.is_some_and(|newest| newest < position);
            verified += u32::from(points.is_verified(snapshot));
            failed += u32::from(has_failed);
            let is_needed = last_copies.contains(snapshot.uid.as_str()) || pinned.contains(snapshot.name.as_str());
            // Without a verified point nothing is removed: an unverified one may still become ready.
            if (is_surplus || is_failed || is_repeated) && !is_needed && newest_verified.is_some() {
                expired.push(snapshot);
            }
        }
    }
    expired
}

/// Returns the names of points that are not removed: those of [`needed`], and the one of the stop that is under way.
fn pinned<'a>(state: &State<'a>) -> BTreeSet<&'a str> {
    let of_release = state.stored.holder.as_ref().and_then(super::holder::stop_point_name_suffix).and_then(|suffix| {
        let points = state.points.as_ref()?;
        let name = format!("{}-{suffix}", state.name);
        points.find(&name).map(|snapshot| snapshot.name.as_str())
    });
    needed(state, |_| true).into_iter().chain(of_release).collect()
}

/// Returns the names of points that a claim or disk which is not provisioned yet, or an unfinished operation, needs. Of the
/// claims, only those that `counts` accepts are considered.
pub(super) fn needed<'a>(state: &State<'a>, counts: impl Fn(&Claim) -> bool) -> BTreeSet<&'a str> {
    let observed = state.observed;
    let unbound = observed.claims.iter().filter(|claim| claim.phase != ClaimPhase::Bound && counts(claim));
    let of_claims = unbound.filter_map(|claim| claim.snapshot.as_deref());
    let is_provisioned = |uid: Option<&str>| {
        let mut claims = observed.claims.iter();
        claims.any(|claim| {
            claim.disk_uid.as_deref() == uid && claim.operation_uid.is_none() && claim.phase == ClaimPhase::Bound
        })
    };
    let waiting = observed.disks.iter().filter(|disk| !is_provisioned(disk.metadata.uid.as_deref()));
    let of_disks = waiting.filter_map(|disk| match &disk.spec.source {
        Some(DiskSource::Point { point, .. }) => Some(point.as_str()),
        Some(DiskSource::Disk(_) | DiskSource::Claim(_)) | None => None,
    });
    let unfinished = observed.operations.iter().filter(|operation| !super::operation::is_finished(operation));
    let uids: BTreeSet<Option<&str>> = unfinished.clone().map(|operation| operation.metadata.uid.as_deref()).collect();
    let of_arguments = unfinished.flat_map(|operation| [operation.spec.point(), operation.spec.to()]);
    let of_arguments = of_arguments.flatten().map(ObjectName::as_str);
    let own = observed.snapshots.iter().flat_map(|snapshots| snapshots.snapshots.iter().copied());
    let of_operations = own
        .filter(|snapshot| snapshot.operation_uid.is_some() && uids.contains(&snapshot.operation_uid.as_deref()))
        .map(|snapshot| snapshot.name.as_str());
    of_claims.chain(of_disks).chain(of_arguments).chain(of_operations).collect()
}

#[cfg(test)]
mod tests;
