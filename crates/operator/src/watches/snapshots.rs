//! The watches of volume snapshots and their contents. A cluster without the external snapshotter does not have these
//! kinds.

use std::sync::Arc;
use std::time::Duration;

use kube::api::{DynamicObject, ListParams};
use odc_core::cluster::{Snapshot, SnapshotContent};
use odc_core::manifest::Kind;

use super::{config, enqueue_disks};
use crate::cache::Cache;
use crate::cache::projected;
use crate::context::Context;
use crate::dynamic_api::{api, with_timeout};
use crate::error::code;

/// How often to look for kinds that the API server does not have.
const ABSENT_POLL_INTERVAL: Duration = Duration::from_secs(60);
/// The delay after another error.
const RETRY_DELAY: Duration = Duration::from_secs(1);

pub(super) async fn watch(ctx: Arc<Context>) {
    let (kind, cache) = (Kind::VolumeSnapshot, &ctx.cluster.snapshots);
    let was_absent = wait_for_kind(&ctx, kind, cache).await;
    let project = |object: DynamicObject| {
        // Only those of disks are needed, but all of them count towards the limit of a namespace.
        Some(Snapshot::from_api(&serde_json::to_value(object).unwrap_or_default()))
    };
    let watch = projected::watch(api(&ctx.client, kind, None), config(), cache, project, |change| {
        if change.old != change.new {
            enqueue_disks(&ctx, &change.key.0);
        }
    });
    futures_util::join!(watch, enqueue_after_first_list(&ctx, cache, was_absent));
}

pub(super) async fn watch_contents(ctx: Arc<Context>) {
    let (kind, cache) = (Kind::VolumeSnapshotContent, &ctx.cluster.snapshot_contents);
    let was_absent = wait_for_kind(&ctx, kind, cache).await;
    let project =
        |object: DynamicObject| Some(SnapshotContent::from_api(&serde_json::to_value(object).unwrap_or_default()));
    let watch = projected::watch(api(&ctx.client, kind, None), config(), cache, project, |change| {
        let content = change.new.or(change.old).filter(|_| change.old != change.new);
        if let Some(namespace) = content.and_then(|content| content.snapshot_namespace.as_deref()) {
            enqueue_disks(&ctx, namespace);
        }
    });
    futures_util::join!(watch, enqueue_after_first_list(&ctx, cache, was_absent));
}

/// Waits until the API server has the kind. Returns true if it did not have it at first; the caches then count as synced.
async fn wait_for_kind<V>(ctx: &Context, kind: Kind, cache: &Cache<V>) -> bool {
    let one = ListParams::default().limit(1);
    let mut was_absent = false;
    loop {
        match with_timeout(api(&ctx.client, kind, None).list_metadata(&one)).await {
            Ok(_) => return was_absent,
            Err(error) if code(&error) == Some(404) => {
                if !was_absent {
                    tracing::info!(kind = kind.as_str(), "kind not found, restore points are unavailable");
                }
                was_absent = true;
                cache.mark_absent();
                tokio::time::sleep(ABSENT_POLL_INTERVAL).await;
            }
            Err(error) => {
                tracing::warn!(kind = kind.as_str(), error = &error as &dyn std::error::Error, "list failed, retrying");
                tokio::time::sleep(RETRY_DELAY).await;
            }
        }
    }
}

/// Enqueues all disks and users when the first list is complete: restore points have become available and are counted.
async fn enqueue_after_first_list<V>(ctx: &Context, cache: &Cache<V>, was_absent: bool) {
    if !was_absent {
        return;
    }
    while cache.relists() == 0 {
        tokio::time::sleep(RETRY_DELAY).await;
    }
    for disk in ctx.cluster.disks.state() {
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        ctx.work_queues.enqueue_disk(&text(&disk.metadata.namespace), &text(&disk.metadata.name));
    }
    for user in ctx.cluster.users.state() {
        ctx.work_queues.enqueue_user(user.metadata.name.as_deref().unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::fake;

    #[tokio::test(start_paused = true)]
    async fn absent_kind_is_polled_once_a_minute() {
        let mut lists = 0;
        let cluster = fake::api_server(move |_| {
            lists += 1;
            let list = json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList",
                "metadata": {}, "items": []});
            if lists > 2 { (200, list) } else { (404, Value::Null) }
        });
        let ctx = fake::context(cluster.client.clone());
        let started = tokio::time::Instant::now();
        assert!(wait_for_kind(&ctx, Kind::VolumeSnapshot, &ctx.cluster.snapshots).await);
        assert_eq!(started.elapsed().as_secs(), 120);
        assert_eq!(cluster.requests().len(), 3);
        // Controllers do not wait for the kind, and know that it is absent.
        ctx.cluster.snapshots.wait_for_sync().await;
        assert_eq!(ctx.cluster.snapshots.relists(), 0);
    }
}
