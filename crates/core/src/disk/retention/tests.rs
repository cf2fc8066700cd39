use odc_api::quantity::Quantity;
use odc_api::v1alpha1::{Consistency, Disk};
use proptest::prelude::*;

use super::*;
use crate::cluster::{SnapshotContent, VolumeAffinity};
use crate::disk::ObservedSnapshots;

const DISK: &str = "uid-disk-home";

fn snapshot(sequence: u64, reason: PointReason, is_ready: bool, claim: &str) -> Snapshot {
    Snapshot {
        name: format!("point-{sequence}"),
        uid: format!("uid-{sequence}"),
        is_deleting: false,
        disk_uid: Some(DISK.into()),
        disk: Some("disk-home".into()),
        claim_uid: Some(claim.into()),
        sequence,
        reason,
        consistency: Consistency::Clean,
        note: None,
        is_temporary: false,
        operation_uid: None,
        taken_at: None,
        is_ready,
        error: (!is_ready).then(|| "no space".into()),
        content: is_ready.then(|| format!("content-{sequence}")),
        restore_size: is_ready.then(|| Quantity::bytes(1)),
        class: None,
        affinity: VolumeAffinity::default(),
        listing_id: None,
        listing: None,
    }
}

fn content(snapshot: &Snapshot) -> SnapshotContent {
    SnapshotContent {
        name: format!("content-{}", snapshot.sequence),
        uid: format!("uid-content-{}", snapshot.sequence),
        snapshot_namespace: Some("dev-ada".into()),
        snapshot_uid: Some(snapshot.uid.clone()),
        has_handle: true,
        is_retained: true,
    }
}

fn expired_sequences(snapshots: &[Snapshot], spec: &DiskSpec, pinned: &[&str]) -> Vec<u64> {
    let contents: Vec<SnapshotContent> = snapshots.iter().map(content).collect();
    let observed = ObservedSnapshots {
        snapshots: snapshots.iter().collect(),
        contents: contents.iter().map(|content| (content.name.as_str(), content)).collect(),
    };
    let points = Points::new(DISK, &observed);
    let pinned = pinned.iter().copied().collect();
    let claims = ["c", "old", "claim-1", "claim-2"].into();
    let mut expired: Vec<u64> =
        expired(&points, spec, &pinned, &claims).iter().map(|snapshot| snapshot.sequence).collect();
    expired.sort_unstable();
    expired
}

fn spec(stops: u32, on_demand: u32) -> DiskSpec {
    let mut spec = Disk::test().spec;
    spec.retention.stops = stops;
    spec.retention.on_demand = on_demand;
    spec
}

#[test]
fn newest_verified_points_of_each_group_are_kept() {
    let stop = |sequence| snapshot(sequence, PointReason::Stop, true, "c");
    let demand = |sequence| snapshot(sequence, PointReason::OnDemand, true, "c");
    let points = [stop(1), demand(2), stop(3), stop(4), demand(5)];
    assert_eq!(expired_sequences(&points, &spec(2, 1), &[]), [1, 2]);
    assert_eq!(expired_sequences(&points, &spec(2, 1), &["point-1"]), [2]);
    assert_eq!(expired_sequences(&points, &spec(5, 5), &[]), [0_u64; 0]);
}

#[test]
fn failed_points_do_not_displace_verified_ones() {
    let stop = |sequence, is_ready| snapshot(sequence, PointReason::Stop, is_ready, "c");
    // The failed ones are newer than the only good copy.
    let points = [stop(1, true), stop(2, false), stop(3, false)];
    assert_eq!(expired_sequences(&points, &spec(1, 1), &[]), [0_u64; 0]);
    let points = [stop(1, true), stop(2, false), stop(3, true)];
    assert_eq!(expired_sequences(&points, &spec(1, 1), &[]), [1, 2]);
    // No good copy at all.
    assert_eq!(expired_sequences(&[stop(1, false), stop(2, false)], &spec(1, 1), &[]), [0_u64; 0]);
}

#[test]
fn last_point_of_each_claim_is_kept() {
    let old = snapshot(1, PointReason::Rollback, true, "old");
    let new = snapshot(2, PointReason::Stop, true, "new");
    let newer = snapshot(3, PointReason::Stop, true, "new");
    assert_eq!(expired_sequences(&[old.clone(), new.clone(), newer.clone()], &spec(1, 1), &[]), [2]);
    // Unless the claim does not exist any more.
    let of_deleted = Snapshot { claim_uid: Some("deleted".into()), reason: PointReason::Stop, ..old };
    assert_eq!(expired_sequences(&[of_deleted, new, newer], &spec(1, 1), &[]), [1, 2]);
}

#[test]
fn failed_points_on_a_schedule_do_not_add_up() {
    let hourly = |sequence, is_ready| snapshot(sequence, PointReason::Hourly, is_ready, "c");
    let mut spec = spec(1, 1);
    spec.schedule.hourly = 2;
    let points = [hourly(1, true), hourly(2, false), hourly(3, false), hourly(4, false)];
    assert_eq!(expired_sequences(&points, &spec, &[]), [2, 3]);
}

#[test]
fn points_of_a_disabled_schedule_expire() {
    let hourly = snapshot(1, PointReason::Hourly, true, "c");
    let stop = snapshot(2, PointReason::Stop, true, "c");
    assert_eq!(expired_sequences(&[hourly.clone(), stop], &spec(1, 1), &[]), [1]);
    // Unless it is the last copy.
    assert_eq!(expired_sequences(&[hourly], &spec(1, 1), &[]), [0_u64; 0]);
}

#[test]
fn points_of_other_disks_are_ignored() {
    let mut other = snapshot(1, PointReason::Stop, true, "c");
    other.disk_uid = Some("uid-other".into());
    let own = snapshot(2, PointReason::Stop, true, "c");
    let newer = snapshot(3, PointReason::Stop, true, "c");
    assert_eq!(expired_sequences(&[other, own, newer], &spec(1, 1), &[]), [2]);
}

fn any_point() -> impl Strategy<Value = (PointReason, bool, bool)> {
    let reasons: Vec<PointReason> = PointReason::ALL.to_vec();
    (proptest::sample::select(reasons), any::<bool>(), any::<bool>())
}

proptest! {
    /// Whatever was taken, failed or pinned, the newest verified point survives, and a second run removes nothing.
    #[test]
    fn newest_verified_point_is_never_removed(
        points in proptest::collection::vec(any_point(), 0..40), stops in 1..5_u32, on_demand in 1..5_u32
    ) {
        let mut snapshots: Vec<Snapshot> = (1..).zip(points).map(|(sequence, (reason, is_ready, first))| {
            snapshot(sequence, reason, is_ready, if first { "claim-1" } else { "claim-2" })
        }).collect();
        let newest = snapshots.iter().filter(|snapshot| snapshot.is_ready).map(|snapshot| snapshot.sequence).max();
        let expired = expired_sequences(&snapshots, &spec(stops, on_demand), &[]);
        prop_assert!(newest.is_none_or(|newest| !expired.contains(&newest)));
        prop_assert!(newest.is_some() || expired.is_empty());
        snapshots.retain(|snapshot| !expired.contains(&snapshot.sequence));
        prop_assert_eq!(expired_sequences(&snapshots, &spec(stops, on_demand), &[]), Vec::<u64>::new());
    }
}
