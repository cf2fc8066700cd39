//! The size of a disk: the user's limit on storage, and the expansion of the claim.

use std::collections::BTreeSet;

use odc_api::quantity::Quantity;
use odc_api::v1alpha1::condition::Reason;
use serde_json::json;

use super::claim::{self, ClaimState};
use super::{State, Steps, patch};
use crate::cluster::{Claim, ClaimPhase};
use crate::manifest::Kind;
use crate::plan::Write;

/// Whether the claim has the size of the disk.
pub(super) enum Expansion {
    /// The volume has the size.
    Done,
    /// The claim must request it.
    Needed,
    /// The claim requests it.
    Waiting,
    Impossible(Reason, String),
}

/// Checks that the disk does not exceed the user's limit. Counted are the current claims of disks, and claims whose disk
/// does not exist. The other claims of disks, from rollbacks and operations, are not charged.
pub(super) fn check_quota(state: &State<'_>) -> Result<(), (Reason, String)> {
    let Some(limit) = state.observed.owner.and_then(|owner| owner.spec.quota.storage) else { return Ok(()) };
    let others = state.observed.disks.iter().filter(|disk| disk.metadata.uid.as_deref() != Some(state.uid));
    let current: BTreeSet<&str> =
        others.filter_map(|disk| Some(disk.status.as_ref()?.claim.as_ref()?.as_str())).collect();
    let existing: BTreeSet<&str> =
        state.observed.disks.iter().filter_map(|disk| disk.metadata.uid.as_deref()).chain([state.uid]).collect();
    let has_disk = |claim: &Claim| claim.disk_uid.as_deref().is_some_and(|uid| existing.contains(uid));
    let is_charged = |claim: &Claim| !has_disk(claim) || current.contains(claim.name.as_str());
    let charged = state.observed.claims.iter().filter(|claim| is_charged(claim));
    let sizes = charged.filter_map(|claim| claim.size);
    let used = sizes.fold(Quantity::bytes(0), |sum, size| sum.checked_add(size).unwrap_or(limit));
    let size = state.disk.spec.size;
    if used.checked_add(size).is_some_and(|total| total <= limit) {
        return Ok(());
    }
    let message = format!(
        "Disk {} of {size} exceeds your limit on storage: {used} of {limit} are used. Run `devctl disk \
         delete NAME --purge` to free some, or ask an administrator for more.",
        state.name
    );
    Err((Reason::QuotaExceeded, message))
}

/// Requests the size of the disk from the storage system.
pub(super) fn expand(state: &State<'_>, steps: &mut Steps) {
    let Some((claim, Expansion::Needed)) = expansion(state) else { return };
    let body = json!({
        "metadata": {"name": claim.name, "namespace": claim.namespace, "uid": claim.uid},
        "spec": {"resources": {"requests": {"storage": state.disk.spec.size}}},
    });
    steps.disk_writes.push(Write::Apply(patch(Kind::PersistentVolumeClaim, Some(&claim.namespace), &claim.name, body)));
}

/// Returns the claim and its expansion, or `None` if there is no bound claim.
pub(super) fn expansion<'a>(state: &State<'a>) -> Option<(&'a Claim, Expansion)> {
    let ClaimState::Found(claim) = &state.claim else { return None };
    if claim.phase != ClaimPhase::Bound || claim.is_deleting {
        return None;
    }
    let size = state.disk.spec.size;
    let class = claim::storage_class(state, claim.class.as_deref());
    let expansion = if claim.size? >= size {
        // The capacity may be larger than requested. It is unknown before the first expansion.
        if claim.capacity.is_none_or(|capacity| capacity >= size) { Expansion::Done } else { Expansion::Waiting }
    } else if !class.is_some_and(|class| class.allows_expansion) {
        let class = class.map_or("of the claim", |class| class.name.as_str());
        let message = format!("StorageClass {class} does not allow expansion. Clone the disk to a larger one.");
        Expansion::Impossible(Reason::ExpansionUnsupported, message)
    } else {
        match check_quota(state) {
            Ok(()) => Expansion::Needed,
            Err((reason, message)) => Expansion::Impossible(reason, message),
        }
    };
    Some((claim, expansion))
}
