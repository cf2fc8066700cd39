//! The claim of a disk: found by the uid of the disk, created at the first use, retained, expanded, and removed after a
//! rollback.

use std::time::Duration;

use k8s_openapi::api::core::v1::{
    PersistentVolumeClaim, PersistentVolumeClaimSpec, TypedLocalObjectReference, VolumeResourceRequirements,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use odc_api::annotation;
use odc_api::quantity::Quantity;
use odc_api::time::to_api_precision;
use odc_api::v1alpha1::condition::Reason;
use odc_api::v1alpha1::{Disk, DiskSource, DiskStatus};
use serde_json::json;

use super::{State, Steps, operation, patch, size};
use crate::cluster::{Claim, ClaimPhase, Snapshot, StorageClass, Volume, VolumeAffinity};
use crate::manifest::{Kind, Object};
use crate::plan::{Target, Write};
use crate::time::remaining;

/// How long the claim that a rollback replaced is kept.
const RETIRED_CLAIM_TTL: Duration = Duration::from_secs(24 * 60 * 60);
/// Characters of a uid in names.
const UID_LENGTH: usize = 8;

/// Where the data of a disk is.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ClaimState<'a> {
    /// The disk was never used.
    NotCreated,
    Found(&'a Claim),
    /// The claim in the status does not exist. It is not created again, because it would be empty.
    Missing(String),
    /// The status names no claim and several claims have the uid of the disk.
    Ambiguous(Vec<&'a str>),
    /// A claim with the name of the disk's claim belongs to another owner.
    Foreign(&'a str),
}

/// What a new claim is created from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DataSource<'a> {
    Snapshot(&'a Snapshot),
    Claim(&'a Claim),
}

impl<'a> DataSource<'a> {
    fn class(self) -> Option<&'a str> {
        match self {
            Self::Snapshot(snapshot) => snapshot.class.as_deref(),
            Self::Claim(claim) => claim.class.as_deref(),
        }
    }
}

/// Finds the claim of a disk. A claim without an entry in the status was created right before a crash.
pub(super) fn find<'a>(disk: &Disk, stored: &DiskStatus, claims: &[&'a Claim]) -> ClaimState<'a> {
    let uid = disk.metadata.uid.as_deref();
    let is_own = |claim: &Claim| claim.disk_uid.as_deref() == uid && claim.operation_uid.is_none();
    let named = |name: &str| claims.iter().copied().find(|claim| claim.name == name);
    if let Some(name) = &stored.claim {
        return match named(name.as_str()) {
            Some(claim) if is_own(claim) => ClaimState::Found(claim),
            Some(claim) => ClaimState::Foreign(&claim.name),
            None => ClaimState::Missing(name.to_string()),
        };
    }
    let own: Vec<&Claim> = claims.iter().copied().filter(|claim| is_own(claim)).collect();
    match own.as_slice() {
        [claim] => ClaimState::Found(claim),
        [] => match named(&first_name(disk)) {
            Some(claim) => ClaimState::Foreign(&claim.name),
            None => ClaimState::NotCreated,
        },
        several => ClaimState::Ambiguous(several.iter().map(|claim| claim.name.as_str()).collect()),
    }
}

/// Returns the name of the first claim of a disk.
fn first_name(disk: &Disk) -> String {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    name(&text(&disk.metadata.name), &text(&disk.metadata.uid))
}

/// Returns the name of an object of the disk that is created once for the object with this uid.
pub(super) fn name(disk: &str, uid: &str) -> String {
    let short: String = uid.chars().filter(char::is_ascii_alphanumeric).take(UID_LENGTH).collect();
    format!("{disk}-{}", short.to_ascii_lowercase())
}

/// Retains the volumes of all claims of the disk, except those that [`remove_retired`] is deleting. Volumes of temporary
/// claims are deleted with them, whatever the storage class says.
pub(super) fn retain(state: &State<'_>, steps: &mut Steps) {
    let is_removed =
        |claim: &Claim| claim.is_deleting && state.stored.retired_claims.iter().any(|retired| retired.uid == claim.uid);
    for claim in own_claims(state).filter(|claim| !is_removed(claim)) {
        let unprotected = volume(state, claim).filter(|volume| !volume.is_retained);
        steps.writes.extend(unprotected.map(|volume| set_reclaim_policy(volume, "Retain")));
    }
    let temporary = temporary_claims(state).filter_map(|claim| volume(state, claim));
    steps
        .writes
        .extend(temporary.filter(|volume| volume.is_retained).map(|volume| set_reclaim_policy(volume, "Delete")));
}

/// Returns the claims with data of the disk.
pub(super) fn own_claims<'a>(state: &State<'a>) -> impl Iterator<Item = &'a Claim> {
    all_claims(state).filter(|claim| claim.operation_uid.is_none())
}

/// Returns the claims of operations on the disk. They contain copies only.
pub(super) fn temporary_claims<'a>(state: &State<'a>) -> impl Iterator<Item = &'a Claim> {
    all_claims(state).filter(|claim| claim.operation_uid.is_some())
}

fn all_claims<'a>(state: &State<'a>) -> impl Iterator<Item = &'a Claim> {
    let uid = state.uid;
    state.observed.claims.iter().copied().filter(move |claim| claim.disk_uid.as_deref() == Some(uid))
}

/// Returns the volume that is bound to exactly this claim.
pub(super) fn volume<'a>(state: &State<'a>, claim: &Claim) -> Option<&'a Volume> {
    let volume = state.observed.volumes.get(claim.volume.as_deref()?).copied()?;
    (volume.claim_uid.as_deref() == Some(&claim.uid)).then_some(volume)
}

pub(super) fn set_reclaim_policy(volume: &Volume, policy: &str) -> Write {
    let body = json!({
        "metadata": {"name": volume.name, "uid": volume.uid},
        "spec": {"persistentVolumeReclaimPolicy": policy},
    });
    Write::Apply(patch(Kind::PersistentVolume, None, &volume.name, body))
}

/// Creates the claim when the disk has a holder, and expands it.
pub(super) fn ensure(state: &State<'_>, steps: &mut Steps) {
    match &state.claim {
        ClaimState::NotCreated if steps.status.holder.is_some() => {
            if let Ok(source) = resolve_source(state) {
                ensure_finalizer(state, steps);
                let name = first_name(state.disk);
                steps.disk_writes.push(Write::Create(object(state, &name, state.disk.spec.size, source)));
            }
        }
        ClaimState::Found(claim) => {
            ensure_finalizer(state, steps);
            // Unless a rollback just switched to another claim.
            if steps.status.claim.is_none() {
                steps.status.claim = claim.name.parse().ok();
            }
            size::expand(state, steps);
        }
        ClaimState::NotCreated | ClaimState::Missing(_) | ClaimState::Ambiguous(_) | ClaimState::Foreign(_) => {}
    }
}

/// Sets the finalizer, unless it is set. It is set before the first claim is created, so that no data exists without it,
/// and again if it was removed.
fn ensure_finalizer(state: &State<'_>, steps: &mut Steps) {
    if !state.has_finalizer() {
        steps.writes.push(state.write_finalizer(true));
    }
}

/// Returns the named class, or the default one.
pub(super) fn storage_class<'a>(state: &State<'a>, name: Option<&str>) -> Option<&'a StorageClass> {
    let mut classes = state.observed.classes.iter().copied();
    classes.find(|class| name.map_or(class.is_default, |name| class.name == name))
}

/// Returns what the first claim is created from, or why that is not possible.
pub(super) fn resolve_source<'a>(state: &State<'a>) -> Result<Option<DataSource<'a>>, (Reason, String)> {
    let unavailable = |message: String| Err((Reason::SourceUnavailable, message));
    size::check_quota(state)?;
    let (disk, point) = match &state.disk.spec.source {
        None => return Ok(None),
        Some(DiskSource::Claim(name)) => return resolve_claim(state, name.as_str()).map(Some),
        Some(DiskSource::Disk(disk)) => (disk, None),
        Some(DiskSource::Point { disk, point }) => (disk, Some(point)),
    };
    let Some(points) = &state.points else {
        return unavailable(format!(
            "Source disk {disk} cannot be used: the cluster has no VolumeSnapshot API. Install a CSI driver with snapshots."
        ));
    };
    let source = points.of_disk(&state.observed.disks, disk.as_str());
    let found = match point {
        Some(point) => source.into_iter().find(|snapshot| snapshot.name == point.as_str()),
        None => points.newest_verified(source),
    };
    let Some(snapshot) = found else {
        let wanted = point.map_or_else(|| "any restore point".to_owned(), |point| format!("restore point {point}"));
        return unavailable(format!("Source disk {disk} does not have {wanted}. Create the disk with another source."));
    };
    if !points.is_verified(snapshot) {
        return unavailable(format!("Restore point {} is not ready yet.", snapshot.name));
    }
    check_size(state, &format!("restore point {}", snapshot.name), snapshot.restore_size)?;
    Ok(Some(DataSource::Snapshot(snapshot)))
}

fn resolve_claim<'a>(state: &State<'a>, name: &str) -> Result<DataSource<'a>, (Reason, String)> {
    let found = state.observed.claims.iter().copied().find(|claim| claim.name == name);
    match found {
        Some(claim) if claim.is_block => {
            let message = format!("Source claim {name} is a block device. Use a claim with volumeMode Filesystem.");
            Err((Reason::SourceUnavailable, message))
        }
        Some(claim) if claim.phase == ClaimPhase::Bound && !claim.is_deleting => {
            check_size(state, &format!("claim {name}"), claim.size)?;
            Ok(DataSource::Claim(claim))
        }
        Some(_) => Err((Reason::SourceUnavailable, format!("Source claim {name} is not bound."))),
        None => Err((
            Reason::SourceUnavailable,
            format!("Source claim {name} not found in this namespace. Create the disk with another source."),
        )),
    }
}

fn check_size(state: &State<'_>, source: &str, minimum: Option<Quantity>) -> Result<(), (Reason, String)> {
    let size = state.disk.spec.size;
    match minimum {
        Some(minimum) if size < minimum => {
            let message = format!("Size {size} is below {minimum}, the size of {source}. Raise spec.size.");
            Err((Reason::SizeTooSmall, message))
        }
        _ => Ok(()),
    }
}

/// Returns the manifest of a claim of the disk.
pub(super) fn object(state: &State<'_>, name: &str, size: Quantity, source: Option<DataSource<'_>>) -> Object {
    let metadata = ObjectMeta {
        name: Some(name.to_owned()),
        namespace: Some(state.namespace.to_owned()),
        labels: Some(state.labels()),
        ..ObjectMeta::default()
    };
    object_with(state, metadata, size, source)
}

/// Returns the affinity of the volume of a claim or, before it has one, of the volume that its data is copied from.
pub(super) fn affinity<'a>(state: &State<'a>, claim: &'a Claim) -> &'a VolumeAffinity {
    volume(state, claim).map_or(&claim.source_affinity, |volume| &volume.affinity)
}

fn source_affinity<'a>(state: &State<'a>, source: DataSource<'a>) -> &'a VolumeAffinity {
    match source {
        DataSource::Snapshot(snapshot) => &snapshot.affinity,
        DataSource::Claim(claim) => affinity(state, claim),
    }
}

pub(super) fn object_with(
    state: &State<'_>,
    mut metadata: ObjectMeta,
    size: Quantity,
    source: Option<DataSource<'_>>,
) -> Object {
    let affinity = source.and_then(|source| source_affinity(state, source).to_annotation());
    if let Some(affinity) = affinity {
        metadata.annotations.get_or_insert_default().insert(annotation::VOLUME_AFFINITY.to_owned(), affinity);
    }
    // A copy must have the class of its source: the default class may have changed, and another driver has no snapshots
    // of this one.
    let class = state.disk.spec.storage_class.as_ref().map(ToString::to_string);
    let class = class.or_else(|| source.and_then(DataSource::class).map(str::to_owned));
    let single_pod = storage_class(state, class.as_deref()).is_none_or(StorageClass::supports_single_pod);
    let mode = if single_pod { "ReadWriteOncePod" } else { "ReadWriteOnce" };
    let reference = |group: Option<&str>, kind: &str, name: &str| TypedLocalObjectReference {
        api_group: group.map(str::to_owned),
        kind: kind.to_owned(),
        name: name.to_owned(),
    };
    let data_source = source.map(|source| match source {
        DataSource::Snapshot(source) => reference(Some("snapshot.storage.k8s.io"), "VolumeSnapshot", &source.name),
        DataSource::Claim(source) => reference(None, "PersistentVolumeClaim", &source.name),
    });
    let requests = [("storage".to_owned(), size.into())].into();
    let claim = PersistentVolumeClaim {
        metadata,
        spec: Some(PersistentVolumeClaimSpec {
            access_modes: Some(vec![mode.to_owned()]),
            storage_class_name: class,
            resources: Some(VolumeResourceRequirements { requests: Some(requests), ..Default::default() }),
            data_source,
            ..PersistentVolumeClaimSpec::default()
        }),
        ..PersistentVolumeClaim::default()
    };
    Object::new(Kind::PersistentVolumeClaim, &claim)
}

/// Removes claims that a rollback replaced: after a day, when the disk has its new volume, and only if a verified restore
/// point of the claim exists. A claim that never had a volume, because no server started on it, is removed at once.
pub(super) fn remove_retired(state: &State<'_>, steps: &mut Steps) {
    let current = steps.status.claim.clone();
    let mut kept = Vec::new();
    for mut retired in std::mem::take(&mut steps.status.retired_claims) {
        let found = own_claims(state).find(|claim| claim.uid == retired.uid);
        let Some(claim) = found.filter(|_| current.as_ref() != Some(&retired.name)) else { continue };
        if retired.since.0 > state.now {
            // The clock was ahead.
            retired.since = to_api_precision(state.now);
        }
        match remaining(RETIRED_CLAIM_TTL, retired.since.0, state.now) {
            _ if is_empty(claim) && current == state.stored.claim => delete(state, steps, claim),
            Some(rest) => steps.requeue_after(rest),
            None if current == state.stored.claim && is_replaced(state, claim) => delete(state, steps, claim),
            None => {}
        }
        kept.push(retired);
    }
    steps.status.retired_claims = kept;
}

/// Reports whether a claim has never had a volume.
fn is_empty(claim: &Claim) -> bool {
    claim.phase == ClaimPhase::Pending && claim.volume.is_none()
}

/// Removes claims of rollbacks that have failed or were deleted. They are copies of a restore point, and were never used:
/// servers use a disk by its name.
pub(super) fn remove_abandoned(state: &State<'_>, steps: &mut Steps) {
    let (Some(current), Some(points)) = (&steps.status.claim, &state.points) else { return };
    let running: Vec<String> = operation::unfinished(state)
        .into_iter()
        .map(|operation| name(state.name, operation.metadata.uid.as_deref().unwrap_or_default()))
        .collect();
    let is_retired = |claim: &Claim| steps.status.retired_claims.iter().any(|retired| retired.uid == claim.uid);
    let is_copy = |claim: &Claim| {
        let source = claim.snapshot.as_ref().and_then(|snapshot| points.find(snapshot));
        source.is_some_and(|snapshot| points.is_verified(snapshot))
    };
    let abandoned: Vec<&Claim> = own_claims(state)
        .filter(|claim| claim.name != current.as_str() && Some(current) == state.stored.claim.as_ref())
        .filter(|claim| !is_retired(claim) && !running.contains(&claim.name) && is_copy(claim))
        .filter(|claim| !state.observed.pods.iter().any(|pod| crate::volume_in_use::may_write(pod, &claim.name)))
        .collect();
    for claim in abandoned {
        delete(state, steps, claim);
    }
}

/// Reports whether a claim is no longer needed: its data is in a verified restore point, the disk has another volume, and
/// no pod uses it.
fn is_replaced(state: &State<'_>, claim: &Claim) -> bool {
    let has_copy = state.points.as_ref().is_some_and(|points| points.newest_verified_of_claim(&claim.uid).is_some());
    let is_mounted = state.observed.pods.iter().any(|pod| crate::volume_in_use::may_write(pod, &claim.name));
    has_copy && !is_mounted && state.current_claim().is_some_and(|current| current.phase == ClaimPhase::Bound)
}

/// Deletes a claim with its volume. The policy of the volume is changed before, so that the storage is freed.
pub(super) fn delete(state: &State<'_>, steps: &mut Steps, claim: &Claim) {
    if claim.is_deleting {
        return;
    }
    // The volume was just to be retained.
    let volume = volume(state, claim);
    steps.writes.retain(|write| volume.is_none_or(|volume| write.name() != volume.name));
    steps.writes.extend(volume.map(|volume| set_reclaim_policy(volume, "Delete")));
    let target = Target::new(Kind::PersistentVolumeClaim, Some(&claim.namespace), &claim.name, &claim.uid);
    steps.writes.push(Write::Delete(target));
}
