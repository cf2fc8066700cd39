//! Writes changes in batches.

use jiff::Timestamp;
use odc_api::annotation::CONFIRM_DELETE;
use odc_store::projection::{Deleted, ServerBatch, Writer};
use odc_store::{Result, Store};
use uuid::Uuid;

use super::kind::Kind;
use super::managed_fields::is_annotated_by_worker;
use super::pending::{Change, Pending};
use super::row::{self, Flavors, InvalidObject};
use crate::worker::metrics::{KindLabels, Metrics};

/// The maximum number of rows in a statement.
const MAX_BATCH: usize = 500;

/// The number of rows in the next statement of a kind. It is halved after a row that the database rejects, until this row
/// is alone, so that one object does not block the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchSize(usize);

impl Default for BatchSize {
    fn default() -> Self {
        Self(MAX_BATCH)
    }
}

impl BatchSize {
    fn grow(&mut self) {
        self.0 = (self.0 * 2).min(MAX_BATCH);
    }

    fn shrink(&mut self, rows: usize) {
        self.0 = (rows / 2).max(1);
    }
}

/// Writes one batch of changes of a kind. Returns an error if the statement cannot be executed now; the changes are kept.
pub async fn write_batch(
    store: &Store,
    writer: &mut Writer,
    kind: Kind,
    pending: &mut Pending,
    flavors: &Flavors,
    size: &mut BatchSize,
    metrics: &Metrics,
) -> Result<()> {
    if pending.has_unchecked_list(kind) {
        let live = live_keys(store, kind).await?;
        pending.delete_missing(kind, live, Timestamp::now());
    }
    let changes = pending.take(kind, size.0);
    if changes.is_empty() {
        return Ok(());
    }
    match write(writer, kind, &changes, flavors, metrics).await {
        Ok(()) => {
            size.grow();
            let written = u64::try_from(changes.len()).unwrap_or(u64::MAX);
            metrics.projected_objects.get_or_create(&KindLabels { kind: kind.as_str() }).inc_by(written);
            Ok(())
        }
        Err(error) if !error.is_caused_by_data() => {
            pending.put_back(kind, changes);
            Err(error)
        }
        Err(error) if changes.len() > 1 => {
            tracing::warn!(kind = kind.as_str(), error = &error as &dyn std::error::Error, "retrying smaller batches");
            size.shrink(changes.len());
            pending.put_back(kind, changes);
            Ok(())
        }
        Err(error) => {
            let key = changes.first().map(|(key, _)| key.as_str()).unwrap_or_default();
            tracing::error!(kind = kind.as_str(), key, error = &error as &dyn std::error::Error, "skipped an object");
            metrics.skipped_objects.get_or_create(&KindLabels { kind: kind.as_str() }).inc();
            Ok(())
        }
    }
}

async fn live_keys(store: &Store, kind: Kind) -> Result<Vec<String>> {
    let texts = |uids: Vec<Uuid>| uids.iter().map(Uuid::to_string).collect();
    Ok(match kind {
        Kind::Flavor => store.live_flavor_names().await?,
        Kind::User => store.live_user_names().await?,
        Kind::Team => store.live_cluster_object_names(kind.as_str()).await?,
        Kind::Server => texts(store.live_server_uids().await?),
        Kind::Disk => texts(store.live_disk_uids().await?),
        Kind::DiskOperation => texts(store.live_disk_operation_uids().await?),
    })
}

/// Writes the rows of changed objects, then the deletions.
async fn write(
    writer: &mut Writer,
    kind: Kind,
    changes: &[(String, Change)],
    flavors: &Flavors,
    metrics: &Metrics,
) -> Result<()> {
    let rows = Rows { kind, changes, metrics };
    match kind {
        Kind::Flavor => writer.upsert_flavors(&rows.convert(row::flavor)).await?,
        Kind::User => writer.upsert_users(&rows.convert(row::user)).await?,
        Kind::Team => {}
        Kind::Server => write_servers(writer, rows.convert(|object| row::server(object, flavors))).await?,
        Kind::Disk => writer.upsert_disks(&rows.convert(row::disk)).await?,
        Kind::DiskOperation => writer.upsert_disk_operations(&rows.convert(row::disk_operation)).await?,
    }
    let is_cluster_scoped = matches!(kind, Kind::Flavor | Kind::User | Kind::Team);
    if is_cluster_scoped {
        writer.upsert_cluster_objects(&rows.convert(|object| row::cluster_object(kind, object))).await?;
    }
    if changes.iter().all(|(_, change)| change.deleted_at.is_none()) {
        return Ok(());
    }
    if is_cluster_scoped {
        writer.mark_cluster_objects_deleted(kind.as_str(), &rows.deleted_keys()).await?;
    }
    match kind {
        Kind::Flavor => writer.mark_flavors_deleted(&rows.deleted_keys()).await,
        Kind::User => writer.mark_users_deleted(&rows.deleted_keys()).await,
        Kind::Team => Ok(()),
        Kind::Server => writer.mark_servers_deleted(&rows.deleted()).await,
        Kind::Disk => writer.mark_disks_deleted(&rows.deleted()).await,
        Kind::DiskOperation => writer.mark_disk_operations_deleted(&rows.deleted()).await,
    }
}

async fn write_servers(writer: &mut Writer, servers: Vec<row::ServerRows>) -> Result<()> {
    let mut batch = ServerBatch::default();
    let mut ended = vec![];
    for row::ServerRows { server, timeline, intervals, ended_by } in servers {
        ended.extend(ended_by.map(|at| (server.copied.uid, at)));
        batch.servers.push(server);
        batch.timeline.extend(timeline);
        batch.intervals.extend(intervals);
    }
    if !ended.is_empty() {
        writer.end_intervals_before(&ended).await?;
    }
    writer.upsert_servers(&batch).await
}

/// The changes of a batch.
struct Rows<'a> {
    kind: Kind,
    changes: &'a [(String, Change)],
    metrics: &'a Metrics,
}

impl Rows<'_> {
    /// Converts the objects. Invalid ones are reported and have no row.
    fn convert<T>(
        &self,
        convert: impl Fn(&kube::api::DynamicObject) -> std::result::Result<T, InvalidObject>,
    ) -> Vec<T> {
        let objects = self.changes.iter().filter_map(|(_, change)| change.object.as_deref());
        let row = |object: &kube::api::DynamicObject| match convert(object) {
            Ok(row) => Some(row),
            Err(error) => {
                let (kind, metadata) = (self.kind.as_str(), &object.metadata);
                let (namespace, name) = (metadata.namespace.as_deref(), metadata.name.as_deref());
                tracing::warn!(kind, namespace, name, error = &error as &dyn std::error::Error, "skipped an object");
                self.metrics.skipped_objects.get_or_create(&KindLabels { kind }).inc();
                None
            }
        };
        objects.filter_map(row).collect()
    }

    fn deleted_keys(&self) -> Vec<String> {
        let deleted = self.changes.iter().filter(|(_, change)| change.deleted_at.is_some());
        deleted.map(|(key, _)| key.clone()).collect()
    }

    fn deleted(&self) -> Vec<Deleted> {
        let deleted = |(key, change): &(String, Change)| {
            let observed = change.object.is_some();
            let audit = !is_deleted_by_worker(change);
            Some(Deleted { uid: key.parse().ok()?, at: change.deleted_at?, observed, audit })
        };
        self.changes.iter().filter_map(deleted).collect()
    }
}

/// Reports whether the worker deleted the object, whose requests are recorded when they are accepted. It deletes disks
/// only after it has confirmed the deletion, and servers only if they are finished.
fn is_deleted_by_worker(change: &Change) -> bool {
    change.object.as_ref().is_some_and(|object| is_annotated_by_worker(&object.metadata, CONFIRM_DELETE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejected_row_is_isolated_in_a_few_statements() {
        let mut size = BatchSize::default();
        let mut statements = 0;
        let mut rows = 500;
        while rows > 1 {
            size.shrink(rows);
            rows = size.0;
            statements += 1;
        }
        assert!(statements < 10, "{statements}");
        size.grow();
        assert_eq!(size, BatchSize(2));
        (0..20).for_each(|_| size.grow());
        assert_eq!(size, BatchSize::default());
    }
}
