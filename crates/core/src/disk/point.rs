//! Restore points: the snapshots of a disk, found by its uid, and when they can be relied on.

use std::collections::BTreeMap;

use odc_api::annotation;
use odc_api::time::to_api_precision;
use odc_api::v1alpha1::{Consistency, Disk, DiskOperation, MAX_LISTED_POINTS, PointReason, RestorePoint};
use serde_json::json;

use super::{ObservedSnapshots, State, claim, listing, patch, temporary};
use crate::cluster::{Claim, Snapshot, SnapshotContent};
use crate::manifest::Kind;
use crate::plan::{Target, Write};

/// From this number of snapshots in a namespace on, points are taken only at stops and before rollbacks.
pub(super) const MAX_SNAPSHOTS_BEFORE_STOPS: usize = 450;

/// The snapshots of a namespace, seen from one disk.
pub(super) struct Points<'a> {
    /// The points of the disk, newest first.
    pub(super) own: Vec<&'a Snapshot>,
    /// The snapshots of operations on the disk. They are not restore points.
    pub(super) temporary: Vec<&'a Snapshot>,
    all: &'a [&'a Snapshot],
    contents: &'a BTreeMap<&'a str, &'a SnapshotContent>,
}

/// A point to take.
pub(super) struct NewPoint<'a> {
    pub(super) name: &'a str,
    pub(super) reason: PointReason,
    pub(super) consistency: Consistency,
    pub(super) operation_uid: Option<&'a str>,
    pub(super) note: Option<&'a str>,
    /// The operation it is deleted with, if it is not a restore point.
    pub(super) temporary: Option<&'a DiskOperation>,
}

impl<'a> Points<'a> {
    pub(super) fn new(disk_uid: &str, observed: &'a ObservedSnapshots<'a>) -> Self {
        let is_own =
            |snapshot: &&&Snapshot| snapshot.disk_uid.as_deref() == Some(disk_uid) && snapshot.claim_uid.is_some();
        let of_disk = observed.snapshots.iter().filter(is_own).copied();
        let (temporary, mut own): (Vec<&Snapshot>, Vec<&Snapshot>) =
            of_disk.partition(|snapshot| snapshot.is_temporary);
        own.sort_by(|one, other| (other.sequence, &other.name).cmp(&(one.sequence, &one.name)));
        Self { own, temporary, all: &observed.snapshots, contents: &observed.contents }
    }

    /// Returns the number of snapshots in the namespace.
    pub(super) fn count_in_namespace(&self) -> usize {
        self.all.len()
    }

    pub(super) fn find(&self, name: &str) -> Option<&'a Snapshot> {
        self.own.iter().copied().find(|snapshot| snapshot.name == name)
    }

    /// Reports whether a snapshot of this name exists, whatever its owner.
    pub(super) fn is_name_taken(&self, name: &str) -> bool {
        self.all.iter().any(|snapshot| snapshot.name == name)
    }

    /// Returns the points of any disk of the namespace. Points of a disk that does not exist any more are found by its name.
    pub(super) fn of_disk(&self, disks: &[&Disk], name: &str) -> Vec<&'a Snapshot> {
        let disk = disks.iter().find(|disk| disk.metadata.name.as_deref() == Some(name));
        let is_of_disk = |snapshot: &&Snapshot| match disk {
            Some(disk) => snapshot.disk_uid.is_some() && snapshot.disk_uid == disk.metadata.uid,
            None => snapshot.disk.as_deref() == Some(name),
        };
        self.all.iter().copied().filter(|snapshot| is_of_disk(snapshot) && !snapshot.is_temporary).collect()
    }

    pub(super) fn newest_verified(&self, points: Vec<&'a Snapshot>) -> Option<&'a Snapshot> {
        let verified = points.into_iter().filter(|snapshot| self.is_verified(snapshot));
        verified.max_by_key(|snapshot| (snapshot.sequence, &snapshot.name))
    }

    pub(super) fn newest_verified_of_claim(&self, claim_uid: &str) -> Option<&'a Snapshot> {
        let mut own = self.own.iter().copied();
        own.find(|snapshot| snapshot.claim_uid.as_deref() == Some(claim_uid) && self.is_verified(snapshot))
    }

    /// Returns the content that is bound to exactly this snapshot.
    pub(super) fn content(&self, snapshot: &Snapshot) -> Option<&'a SnapshotContent> {
        let content = self.contents.get(snapshot.content.as_deref()?).copied()?;
        (content.snapshot_uid.as_deref() == Some(&snapshot.uid)).then_some(content)
    }

    /// Reports whether data can be restored from the snapshot: it is ready, has a bound content that the storage system
    /// knows, a size, and no error. A snapshot can get an error after it was ready.
    pub(super) fn is_verified(&self, snapshot: &Snapshot) -> bool {
        let has_content = self.content(snapshot).is_some_and(|content| content.has_handle);
        let has_size = snapshot.restore_size.is_some_and(|size| size.nanos() > 0);
        snapshot.is_ready && snapshot.error.is_none() && !snapshot.is_deleting && has_content && has_size
    }

    fn next_sequence(&self) -> u64 {
        self.own.iter().map(|snapshot| snapshot.sequence).max().unwrap_or(0).saturating_add(1)
    }

    /// Returns the points for the status.
    pub(super) fn describe(&self) -> Vec<RestorePoint> {
        let point = |snapshot: &&Snapshot| {
            Some(RestorePoint {
                name: snapshot.name.parse().ok()?,
                at: snapshot.taken_at.map(to_api_precision),
                reason: snapshot.reason,
                size: snapshot.restore_size,
                ready: self.is_verified(snapshot),
                consistency: snapshot.consistency,
                note: snapshot.note.as_deref().map(Into::into),
                listing: listing::describe(snapshot),
            })
        };
        self.own.iter().filter_map(point).take(MAX_LISTED_POINTS).collect()
    }
}

/// Reports whether the storage system has taken the snapshot. Pods may write to the volume from then on.
pub(super) fn is_taken(snapshot: &Snapshot) -> bool {
    snapshot.taken_at.is_some() || snapshot.is_ready
}

/// Returns a write that takes a point of a claim.
pub(super) fn create(state: &State<'_>, points: &Points<'_>, claim: &Claim, new: &NewPoint<'_>) -> Write {
    let mut annotations = json!({
        annotation::CLAIM_UID: claim.uid,
        annotation::POINT_SEQUENCE: points.next_sequence().to_string(),
        annotation::POINT_REASON: new.reason.as_str(),
        annotation::POINT_CONSISTENCY: new.consistency.as_str(),
    });
    let affinity = claim::affinity(state, claim).to_annotation();
    let listing_id = listing::id_for(state, claim, new);
    let optional = [
        (annotation::OPERATION_UID, new.operation_uid),
        (annotation::POINT_NOTE, new.note),
        (annotation::STORAGE_CLASS, claim.class.as_deref()),
        (annotation::VOLUME_AFFINITY, affinity.as_deref()),
        (annotation::LISTING_ID, listing_id.as_deref()),
    ];
    for (name, value) in optional {
        if let Some(value) = value {
            annotations[name] = value.into();
        }
    }
    let mut metadata = json!({
        "name": new.name, "namespace": state.namespace, "labels": state.labels(), "annotations": annotations,
    });
    if let Some(operation) = new.temporary {
        metadata["labels"] = json!(temporary::labels(state, operation));
        metadata["ownerReferences"] = json!([temporary::owner_reference(operation)]);
    }
    let body = json!({"metadata": metadata, "spec": {"source": {"persistentVolumeClaimName": claim.name}}});
    Write::Create(patch(Kind::VolumeSnapshot, Some(state.namespace), new.name, body))
}

/// Returns the writes that delete a point with its data. The policy of the content is changed before, so that the storage
/// is freed.
pub(super) fn delete(state: &State<'_>, points: &Points<'_>, snapshot: &Snapshot) -> Vec<Write> {
    if snapshot.is_deleting {
        return vec![];
    }
    let content = points.content(snapshot).filter(|content| content.is_retained);
    let target = Target::new(Kind::VolumeSnapshot, Some(state.namespace), &snapshot.name, &snapshot.uid);
    content.map(|content| set_deletion_policy(content, "Delete")).into_iter().chain([Write::Delete(target)]).collect()
}

pub(super) fn set_deletion_policy(content: &SnapshotContent, policy: &str) -> Write {
    let body = json!({
        "metadata": {"name": content.name, "uid": content.uid},
        "spec": {"deletionPolicy": policy},
    });
    Write::Apply(patch(Kind::VolumeSnapshotContent, None, &content.name, body))
}
