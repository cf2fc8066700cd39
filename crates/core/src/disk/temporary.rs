//! Temporary objects of operations: claims with a copy of a restore point, pods, and snapshots of the current data.
//!
//! They have the uids of the disk and of the operation as labels. The disk controller deletes them when the operation has
//! ended or does not exist. They are also owned by the operation, so that they are garbage collected with it if the disk
//! is gone. Secrets are not watched; a Secret is owned by the claim of its operation, and garbage collected with that.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Affinity, NodeAffinity};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use odc_api::label;
use odc_api::v1alpha1::DiskOperation;
use odc_api::v1alpha1::condition::Reason;

use super::claim::{self, DataSource};
use super::operation::{self, Progress};
use super::{State, Steps, point};
use crate::cluster::{Claim, ClaimPhase, Pod, Snapshot};
use crate::devserver::pods;
use crate::manifest::Kind;
use crate::plan::Write;

pub(super) fn uid(operation: &DiskOperation) -> &str {
    operation.metadata.uid.as_deref().unwrap_or_default()
}

pub(super) fn labels(state: &State<'_>, operation: &DiskOperation) -> BTreeMap<String, String> {
    let mut labels = state.labels();
    labels.insert(label::OPERATION_UID.to_owned(), uid(operation).to_owned());
    labels
}

pub(super) fn owner_reference(operation: &DiskOperation) -> OwnerReference {
    OwnerReference {
        api_version: odc_api::API_VERSION.into(),
        kind: Kind::DiskOperation.as_str().into(),
        name: operation.metadata.name.clone().unwrap_or_default(),
        uid: uid(operation).to_owned(),
        controller: Some(true),
        block_owner_deletion: None,
    }
}

pub(super) fn metadata(state: &State<'_>, operation: &DiskOperation, name: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        namespace: Some(state.namespace.to_owned()),
        labels: Some(labels(state, operation)),
        owner_references: Some(vec![owner_reference(operation)]),
        ..ObjectMeta::default()
    }
}

/// Returns the pod of an operation.
pub(super) fn pod<'a>(state: &State<'a>, operation: &DiskOperation) -> Option<&'a Pod> {
    let name = claim::name(state.name, uid(operation));
    pods(state).find(|pod| {
        let details = pod.operation.as_deref();
        pod.name == name && details.is_some_and(|details| details.operation_uid == uid(operation))
    })
}

fn pods<'a>(state: &State<'a>) -> impl Iterator<Item = &'a Pod> {
    let disk = state.uid;
    let is_own = move |pod: &&Pod| {
        let details = pod.operation.as_deref();
        details.is_some_and(|details| details.disk_uid.as_deref() == Some(disk))
    };
    state.observed.pods.iter().copied().filter(is_own)
}

/// Returns the temporary claim of this name of an operation, if it exists.
pub(super) fn claim<'a>(state: &State<'a>, operation: &DiskOperation, name: &str) -> Option<&'a Claim> {
    let is_own = |claim: &&Claim| claim.name == name && claim.operation_uid.as_deref() == Some(uid(operation));
    claim::temporary_claims(state).find(is_own)
}

/// Creates a temporary claim from a point.
pub(super) fn create_claim(
    state: &State<'_>,
    steps: &mut Steps,
    operation: &DiskOperation,
    name: &str,
    snapshot: &Snapshot,
) -> Progress {
    let size = snapshot.restore_size.map_or(state.disk.spec.size, |size| size.max(state.disk.spec.size));
    let source = DataSource::Snapshot(snapshot);
    let object = claim::object_with(state, metadata(state, operation, name), size, Some(source));
    steps.operation_writes.push((uid(operation).to_owned(), Write::Create(object)));
    Progress::Wait(format!("Creating claim {name} from restore point {}.", snapshot.name))
}

/// Checks whether a pod can mount a temporary claim: it is bound, or is bound when the pod is scheduled.
pub(super) fn check_mountable(state: &State<'_>, claim: &Claim) -> Result<(), Progress> {
    let name = &claim.name;
    if claim.is_deleting || claim.phase == ClaimPhase::Lost {
        let message = format!("Claim {name} was deleted, or its volume is lost.");
        return Err(Progress::Failed(Reason::DiskUnavailable, message));
    }
    if claim.phase == ClaimPhase::Bound || waits_for_consumer(state, claim) {
        return Ok(());
    }
    Err(Progress::Wait(format!("Waiting for claim {name} to be bound.")))
}

fn waits_for_consumer(state: &State<'_>, claim: &Claim) -> bool {
    claim::storage_class(state, claim.class.as_deref()).is_some_and(|class| class.waits_for_consumer)
}

/// Returns the affinity of a pod whose claims are not bound yet, so that their volumes are created where their restore
/// points are. A bound claim needs none, because the kube-scheduler applies the affinity of its volume.
pub(super) fn affinity(claims: &[&Claim]) -> Option<Affinity> {
    let mut unbound = claims.iter().filter(|claim| claim.phase != ClaimPhase::Bound);
    let nodes = unbound.find_map(|claim| claim.source_affinity.node_selector())?;
    Some(Affinity {
        node_affinity: Some(NodeAffinity {
            required_during_scheduling_ignored_during_execution: Some(nodes),
            ..NodeAffinity::default()
        }),
        ..Affinity::default()
    })
}

/// Deletes the temporary objects of operations that have ended or do not exist.
pub(super) fn remove_unused(state: &State<'_>, steps: &mut Steps) {
    let unfinished = operation::unfinished(state);
    let used: BTreeSet<&str> = unfinished.iter().map(|operation| uid(operation)).collect();
    remove(state, steps, |operation| !used.contains(operation));
}

/// Deletes the temporary objects of operations whose uid is selected. Pods first: a claim exists until its pods are gone.
pub(super) fn remove(state: &State<'_>, steps: &mut Steps, is_selected: impl Fn(&str) -> bool) {
    for pod in pods(state).filter(|pod| pod.deletion_timestamp.is_none()) {
        if pod.operation.as_deref().is_some_and(|details| is_selected(&details.operation_uid)) {
            steps.writes.push(Write::Delete(pods::target(pod, None)));
        }
    }
    for claim in claim::temporary_claims(state) {
        if claim.operation_uid.as_deref().is_some_and(&is_selected) {
            claim::delete(state, steps, claim);
        }
    }
    let Some(points) = &state.points else { return };
    for snapshot in &points.temporary {
        if snapshot.operation_uid.as_deref().is_none_or(&is_selected) {
            steps.writes.extend(point::delete(state, points, snapshot));
        } else if let Some(content) = points.content(snapshot).filter(|content| content.is_retained) {
            // It is deleted with the snapshot, also by the garbage collector.
            steps.writes.push(point::set_deletion_policy(content, "Delete"));
        }
    }
}
