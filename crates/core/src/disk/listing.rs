//! Listings of the content of a disk, each in a `ConfigMap` with the name of its restore point.
//!
//! An agent reports a listing when its server stops, and when it flushes the disk. It is kept in memory until the point
//! exists; if the operator is restarted in between, the point has none. The `ConfigMap` is owned by the `VolumeSnapshot`, so
//! it is deleted with it. An annotation of the `VolumeSnapshot` records it, because `ConfigMap`s are not watched.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use k8s_openapi::jiff::Timestamp;
use odc_api::annotation;
use odc_api::quantity::Quantity;
use odc_api::time::to_api_precision;
use odc_api::v1alpha1::{Consistency, LISTING_KEY, PointListing, PointReason};
use odc_control::HomeContent;
use serde_json::json;

use super::point::{NewPoint, Points};
use super::{State, Steps, patch};
use crate::cluster::{Claim, Snapshot, StoredListing};
use crate::manifest::{Kind, Object};
use crate::plan::{Target, Write};
use crate::time::remaining;

/// The newest points with a listing that keep it.
const MAX_LISTINGS: usize = 3;
/// A point gets a listing that is at most this old. The pod of a server that stops is deleted in this time.
const MAX_AGE: Duration = Duration::from_secs(2 * 60);
/// How long a listing is kept in memory.
const MEMORY_TTL: Duration = Duration::from_secs(5 * 60);

/// The content of a home as its agent reported it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedListing {
    /// The name of the claim with the home.
    pub claim: String,
    pub at: Timestamp,
    pub home: Arc<HomeContent>,
}

impl RecordedListing {
    fn id(&self) -> String {
        self.at.to_string()
    }
}

/// What happens to listings. Nothing depends on these writes, so they are the last ones, and may fail.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ListingPlan {
    pub store: Vec<NewListing>,
    /// In order, for each listing: the `ConfigMap` is deleted before its annotation is removed.
    pub remove: Vec<Write>,
    /// Whether the listing in memory, of this time, is no longer needed.
    pub forget: Option<Timestamp>,
}

/// A listing to store: first the `ConfigMap`, then the annotation that records it.
#[derive(Clone, Debug, PartialEq)]
pub struct NewListing {
    pub config_map: Object,
    namespace: String,
    point: String,
    point_uid: String,
    used_bytes: u64,
    files: u64,
}

impl NewListing {
    fn new(state: &State<'_>, snapshot: &Snapshot, home: &HomeContent) -> Self {
        let metadata = ObjectMeta {
            name: Some(snapshot.name.clone()),
            namespace: Some(state.namespace.to_owned()),
            labels: Some(state.labels()),
            owner_references: Some(vec![OwnerReference {
                api_version: Kind::VolumeSnapshot.api_version().into(),
                kind: Kind::VolumeSnapshot.as_str().into(),
                name: snapshot.name.clone(),
                uid: snapshot.uid.clone(),
                ..OwnerReference::default()
            }]),
            ..ObjectMeta::default()
        };
        let content = ByteString(home.listing.as_bytes().to_vec());
        let config_map = ConfigMap {
            metadata,
            binary_data: Some([(LISTING_KEY.to_owned(), content)].into()),
            immutable: Some(true),
            ..ConfigMap::default()
        };
        Self {
            config_map: Object::new(Kind::ConfigMap, &config_map),
            namespace: state.namespace.to_owned(),
            point: snapshot.name.clone(),
            point_uid: snapshot.uid.clone(),
            used_bytes: home.used_bytes,
            files: home.files,
        }
    }

    /// Returns the write that records the `ConfigMap` with this uid at its point.
    pub fn record(&self, uid: &str) -> Write {
        let stored = StoredListing { uid: uid.to_owned(), used_bytes: self.used_bytes, files: self.files };
        // Serialization to text cannot fail.
        let value = serde_json::to_string(&stored).unwrap_or_default();
        annotate(&self.namespace, &self.point, &self.point_uid, &json!({annotation::LISTING: value}))
    }
}

/// Returns a write that sets the annotations of a point that this operator has applied. Those of its creation are kept.
fn annotate(namespace: &str, point: &str, uid: &str, annotations: &serde_json::Value) -> Write {
    let metadata = json!({"name": point, "namespace": namespace, "uid": uid, "annotations": annotations});
    Write::Apply(patch(Kind::VolumeSnapshot, Some(namespace), point, json!({"metadata": metadata})))
}

/// Returns the id of the listing in memory if it describes the content of a new point: of a stop, or of a running server.
/// Other points may be taken after an operation has changed the data.
pub(super) fn id_for(state: &State<'_>, claim: &Claim, new: &NewPoint<'_>) -> Option<String> {
    let recorded = state.observed.disk_state.listing.as_ref()?;
    let is_from_agent = new.reason == PointReason::Stop || new.consistency == Consistency::CrashConsistent;
    let is_recent = remaining(MAX_AGE, recorded.at, state.now).is_some();
    let fits = is_from_agent && is_recent && new.temporary.is_none() && recorded.claim == claim.name;
    fits.then(|| recorded.id())
}

/// Stores the listing in memory for the points that were taken with it, and removes those of older points.
pub(super) fn advance(state: &State<'_>, steps: &mut Steps) {
    let recorded = state.observed.disk_state.listing.as_ref();
    if let Some(recorded) = recorded {
        match remaining(MEMORY_TTL, recorded.at, state.now) {
            Some(rest) => steps.requeue_after(rest),
            None => steps.listings.forget = Some(recorded.at),
        }
    }
    let Some(points) = &state.points else { return };
    let id = recorded.map(RecordedListing::id);
    let mut kept = 0;
    for snapshot in &points.own {
        let is_removed = |write: &Write| matches!(write, Write::Delete(target) if target.uid == snapshot.uid);
        if snapshot.is_deleting || steps.writes.iter().any(is_removed) {
            continue;
        }
        let recorded = recorded.filter(|_| snapshot.listing_id.is_some() && snapshot.listing_id == id);
        match (&snapshot.listing, recorded) {
            (None, None) => continue,
            (Some(stored), _) if kept >= MAX_LISTINGS => steps.listings.remove.extend(remove(state, snapshot, stored)),
            (None, Some(recorded)) if kept < MAX_LISTINGS => {
                steps.listings.store.push(NewListing::new(state, snapshot, &recorded.home));
            }
            (Some(_), _) | (None, Some(_)) => {}
        }
        kept += 1;
    }
}

fn remove(state: &State<'_>, snapshot: &Snapshot, stored: &StoredListing) -> [Write; 2] {
    let target = Target::new(Kind::ConfigMap, Some(state.namespace), &snapshot.name, &stored.uid);
    [Write::Delete(target), annotate(state.namespace, &snapshot.name, &snapshot.uid, &json!({}))]
}

/// Returns the listing of a point for the status.
pub(super) fn describe(snapshot: &Snapshot) -> Option<PointListing> {
    let stored = snapshot.listing.as_ref()?;
    Some(PointListing { used: quantity(stored.used_bytes), files: i64::try_from(stored.files).unwrap_or(i64::MAX) })
}

/// Returns the usage of the current claim at its newest point with a listing, and the time of that point.
pub(super) fn usage(state: &State<'_>, points: &Points<'_>) -> Option<(Quantity, Option<Time>)> {
    let claim = state.current_claim()?;
    let mut of_claim = points.own.iter().filter(|snapshot| snapshot.claim_uid.as_deref() == Some(&claim.uid));
    of_claim.find_map(|snapshot| Some((describe(snapshot)?.used, snapshot.taken_at.map(to_api_precision))))
}

/// Returns an amount of bytes, rounded up to mebibytes.
fn quantity(bytes: u64) -> Quantity {
    let rounded = bytes.div_ceil(1 << 20).saturating_mul(1 << 20);
    Quantity::bytes(i64::try_from(rounded).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests;
