//! Listings of the content of disks: records what agents report, and executes the writes for them.

use std::sync::Arc;

use jiff::Timestamp;
use odc_api::v1alpha1::Disk;
use odc_control::HomeContent;
use odc_core::cluster::Pod;
use odc_core::disk::{ListingPlan, NewListing, RecordedListing};
use odc_core::plan::Write;

use crate::apply::apply;
use crate::context::Context;
use crate::error::{Class, Error};

/// Records the listing of the home in a pod, if the home is a disk.
pub fn record(ctx: &Context, namespace: &str, pod_uid: &str, home: HomeContent, now: Timestamp) {
    let pods = ctx.cluster.pods.in_namespace(namespace);
    let Some(pod) = pods.iter().find(|pod| pod.uid == pod_uid) else { return };
    let disks = ctx.cluster.disks_in_namespace(namespace);
    let Some((disk, claim)) = disks.iter().find_map(|disk| Some((disk, held_claim(disk, pod)?))) else { return };
    let listing = RecordedListing { claim, at: now, home: Arc::new(home) };
    let uid = disk.metadata.uid.as_deref().unwrap_or_default();
    ctx.soft_states.update_disk(uid, |state| state.listing = Some(listing));
    ctx.work_queues.enqueue_disk(namespace, disk.metadata.name.as_deref().unwrap_or_default());
}

/// Returns the claim of a disk if the pod belongs to its holder and mounts it.
fn held_claim(disk: &Disk, pod: &Pod) -> Option<String> {
    let status = disk.status.as_ref()?;
    let claim = status.claim.as_ref()?.as_str();
    let is_of_holder = pod.server.as_ref()?.belongs_to(&status.holder.as_ref()?.uid);
    (is_of_holder && pod.claims.iter().any(|mounted| &**mounted == claim)).then(|| claim.to_owned())
}

/// Executes the writes for listings. Errors, such as missing permissions, do not fail the reconciliation of the disk.
/// Returns whether all writes succeeded.
pub async fn execute(ctx: &Context, disk: &Disk, plan: ListingPlan) -> Result<bool, Error> {
    let uid = disk.metadata.uid.as_deref().unwrap_or_default();
    if let Some(at) = plan.forget {
        ctx.soft_states.update_disk(uid, |state| state.forget_listing(at));
    }
    match write(ctx, &plan).await {
        Ok(()) => Ok(true),
        Err(error) if error.class() == Class::Conflict || matches!(error, Error::NotLeader) => Err(error),
        Err(error) => {
            tracing::info!(error = &error as &dyn std::error::Error, uid, "failed to write the listing of a disk");
            Ok(false)
        }
    }
}

async fn write(ctx: &Context, plan: &ListingPlan) -> Result<(), Error> {
    for listing in &plan.store {
        store(ctx, listing).await?;
    }
    for write in &plan.remove {
        apply(ctx, write).await?;
    }
    Ok(())
}

/// Creates the `ConfigMap`, then records it at its point.
async fn store(ctx: &Context, listing: &NewListing) -> Result<(), Error> {
    let stored = apply(ctx, &Write::Create(listing.config_map.clone())).await?.unwrap_or_default();
    let uid = stored["metadata"]["uid"].as_str().unwrap_or_default();
    apply(ctx, &listing.record(uid)).await.map(drop)
}

#[cfg(test)]
mod tests {
    use odc_api::{annotation, label};
    use odc_control::Listing;
    use odc_core::cluster::Snapshot;
    use odc_core::disk::{self, DiskState, Observed, ObservedSnapshots};
    use serde_json::{Value, json};

    use super::*;
    use crate::fake;

    const POINT: &str = "/apis/snapshot.storage.k8s.io/v1/namespaces/dev-ada/volumesnapshots/home-1";
    const CONFIG_MAPS: &str = "/api/v1/namespaces/dev-ada/configmaps";

    fn home() -> HomeContent {
        Listing { used_bytes: 5, files: 2, ..Listing::default() }.compress()
    }

    fn disk() -> Disk {
        serde_json::from_value(json!({"apiVersion": "odc.dev/v1alpha1", "kind": "Disk",
            "metadata": {"name": "home", "namespace": "dev-ada", "uid": "u1", "resourceVersion": "7"},
            "spec": {"size": "1Gi"},
            "status": {"claim": "home-x",
                "holder": {"server": "box", "uid": "s1", "since": "2026-01-01T00:00:00Z"}}}))
        .unwrap()
    }

    /// Returns the plan for a point that was taken with a listing in memory.
    fn plan() -> ListingPlan {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let snapshot = Snapshot::from_api(&json!({"metadata": {"name": "home-1", "uid": "p1",
            "labels": {label::DISK_UID: "u1"},
            "annotations": {annotation::CLAIM_UID: "c1", annotation::LISTING_ID: now.to_string()}}}));
        let listing = RecordedListing { claim: "home-x".into(), at: now, home: Arc::new(home()) };
        let observed = Observed {
            snapshots: Some(ObservedSnapshots { snapshots: vec![&snapshot], ..ObservedSnapshots::default() }),
            disk_state: DiskState { listing: Some(listing), ..DiskState::default() },
            ..Observed::default()
        };
        let ctx = fake::context(fake::api_server(|_| (404, Value::Null)).client);
        disk::reconcile(&disk(), &observed, &ctx.config.server, now).listings
    }

    #[tokio::test]
    async fn listing_is_stored_before_it_is_recorded() {
        let cluster = fake::api_server(|request| match request.path.as_str() {
            CONFIG_MAPS => (201, json!({"metadata": {"name": "home-1", "namespace": "dev-ada", "uid": "m1"}})),
            _ => (200, json!({"metadata": {"name": "home-1", "namespace": "dev-ada", "uid": "p1"}})),
        });
        let ctx = fake::context(cluster.client.clone());
        assert!(execute(&ctx, &disk(), plan()).await.unwrap());
        let requests = cluster.requests();
        let [create, record] = requests.as_slice() else { panic!("{requests:?}") };
        assert_eq!((create.path.as_str(), record.path.as_str()), (CONFIG_MAPS, POINT));
        let recorded = record.body["metadata"]["annotations"][annotation::LISTING].as_str().unwrap();
        let recorded: Value = serde_json::from_str(recorded).unwrap();
        assert_eq!(recorded, json!({"uid": "m1", "usedBytes": 5, "files": 2}));
    }

    #[tokio::test]
    async fn refused_listing_does_not_fail_the_reconciliation() {
        let cluster = fake::api_server(|_| (403, Value::Null));
        let ctx = fake::context(cluster.client.clone());
        assert!(!execute(&ctx, &disk(), plan()).await.unwrap());
        assert_eq!(cluster.requests().len(), 1, "a listing that is not stored is not recorded");
    }

    #[test]
    fn listing_belongs_to_the_disk_that_the_server_holds() {
        let pod = |owner: &str, claim: &str| {
            let pod = json!({"metadata": {"name": "box-0", "uid": "pod", "annotations": {annotation::SERVER_UID: owner}},
                "spec": {"containers": [],
                    "volumes": [{"name": "home", "persistentVolumeClaim": {"claimName": claim}}]}});
            Pod::from_api(&serde_json::from_value(pod).unwrap())
        };
        assert_eq!(held_claim(&disk(), &pod("s1", "home-x")).as_deref(), Some("home-x"));
        assert_eq!(held_claim(&disk(), &pod("s1", "data")), None);
        assert_eq!(held_claim(&disk(), &pod("s2", "home-x")), None);
    }
}
