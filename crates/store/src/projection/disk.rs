//! Copies of disks and of the operations on them.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;
use uuid::Uuid;

use super::{Copied, Deleted, Writer, json};
use crate::page::{Page, Visible};
use crate::time::{self, to_sql};
use crate::{Result, Store};

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DiskRow {
    #[serde(flatten)]
    pub copied: Copied,
    pub display_name: Option<String>,
    pub phase: String,
    pub size_bytes: i64,
    pub used_bytes: Option<i64>,
    pub storage_class: Option<String>,
    pub claim: Option<String>,
    /// The server that uses the disk.
    pub holder: Option<String>,
    pub points: u32,
    pub last_point_at: Option<Timestamp>,
    pub last_used_at: Option<Timestamp>,
    /// Whether the disk is in its retention period before it is deleted.
    pub is_deleted: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DiskOperationRow {
    #[serde(flatten)]
    pub copied: Copied,
    pub disk_name: String,
    pub action: String,
    pub phase: String,
    pub message: Option<String>,
    pub finished_at: Option<Timestamp>,
}

impl Writer {
    /// Inserts or updates disks, and records changes that were not made through the API.
    pub async fn upsert_disks(&mut self, disks: &[DiskRow]) -> Result<()> {
        let statement = sqlx::query!(
            r#"
            WITH observed AS (
                SELECT * FROM jsonb_to_recordset($1) AS r(uid uuid, namespace text, name text, user_name text,
                    request_id uuid, requested_by text, created_at timestamptz, generation bigint, changed_by text,
                    object jsonb, display_name text, phase text, size_bytes bigint, used_bytes bigint,
                    storage_class text, claim text, holder text, points int, last_point_at timestamptz,
                    last_used_at timestamptz, is_deleted boolean)
            ), disk AS (
                INSERT INTO disks (uid, namespace, name, user_name, request_id, requested_by, created_at, generation,
                    audited_generation, object, display_name, phase, size_bytes, used_bytes, storage_class, claim,
                    holder, points, last_point_at, last_used_at, is_deleted, observed_at)
                SELECT uid, namespace, name, user_name, request_id, requested_by, created_at, generation,
                    generation, object, display_name, phase, size_bytes, used_bytes, storage_class, claim,
                    holder, points, last_point_at, last_used_at, is_deleted, now()
                FROM observed
                ON CONFLICT (uid) DO UPDATE SET request_id = EXCLUDED.request_id, requested_by = EXCLUDED.requested_by,
                    generation = EXCLUDED.generation, audited_generation = EXCLUDED.generation,
                    object = EXCLUDED.object, display_name = EXCLUDED.display_name, phase = EXCLUDED.phase,
                    size_bytes = EXCLUDED.size_bytes, used_bytes = EXCLUDED.used_bytes,
                    storage_class = EXCLUDED.storage_class, claim = EXCLUDED.claim, holder = EXCLUDED.holder,
                    points = EXCLUDED.points, last_point_at = EXCLUDED.last_point_at,
                    last_used_at = EXCLUDED.last_used_at, is_deleted = EXCLUDED.is_deleted, observed_at = now()
            )
            INSERT INTO audit_log (actor, actor_kind, user_name, action, object_kind, object_name, object_uid, result,
                before_hash, after_hash, details)
            SELECT o.changed_by, 'FieldManager', o.user_name,
                CASE WHEN o.generation = 1 THEN 'disk.create' ELSE 'disk.update' END,
                'Disk', o.name, o.uid, 'Observed',
                sha256(convert_to((d.object -> 'spec')::text, 'UTF8')), sha256(convert_to((o.object -> 'spec')::text, 'UTF8')),
                jsonb_build_object('generation', o.generation)
            FROM observed o LEFT JOIN disks d ON d.uid = o.uid
            WHERE o.changed_by IS NOT NULL AND o.generation > COALESCE(d.audited_generation, 0)
                AND NOT EXISTS (SELECT FROM audit_log a WHERE a.object_uid = o.uid AND a.result = 'Observed'
                    AND (a.details ->> 'generation')::bigint = o.generation)
            "#,
            json(disks)
        );
        self.execute(statement).await
    }

    /// Inserts or updates operations, and records those that were not requested through the API.
    pub async fn upsert_disk_operations(&mut self, operations: &[DiskOperationRow]) -> Result<()> {
        let statement = sqlx::query!(
            r#"
            WITH observed AS (
                SELECT * FROM jsonb_to_recordset($1) AS r(uid uuid, namespace text, name text, user_name text,
                    request_id uuid, requested_by text, created_at timestamptz, generation bigint, changed_by text,
                    object jsonb, disk_name text, action text, phase text, message text, finished_at timestamptz)
            ), operation AS (
                INSERT INTO disk_operations (uid, namespace, name, user_name, request_id, requested_by, created_at,
                    generation, audited_generation, object, disk_name, action, phase, message, finished_at,
                    observed_at)
                SELECT uid, namespace, name, user_name, request_id, requested_by, created_at, generation,
                    generation, object, disk_name, action, phase, message, finished_at, now()
                FROM observed
                ON CONFLICT (uid) DO UPDATE SET generation = EXCLUDED.generation,
                    audited_generation = EXCLUDED.generation, object = EXCLUDED.object, phase = EXCLUDED.phase,
                    message = EXCLUDED.message, finished_at = EXCLUDED.finished_at, observed_at = now()
            )
            INSERT INTO audit_log (actor, actor_kind, user_name, action, object_kind, object_name, object_uid, result,
                before_hash, after_hash, details)
            SELECT o.changed_by, 'FieldManager', o.user_name, 'disk.' || lower(o.action), 'Disk', o.disk_name, o.uid,
                'Observed',
                sha256(convert_to((d.object -> 'spec')::text, 'UTF8')), sha256(convert_to((o.object -> 'spec')::text, 'UTF8')),
                jsonb_build_object('generation', o.generation, 'operation', o.name)
            FROM observed o LEFT JOIN disk_operations d ON d.uid = o.uid
            WHERE o.changed_by IS NOT NULL AND o.generation > COALESCE(d.audited_generation, 0)
                AND NOT EXISTS (SELECT FROM audit_log a WHERE a.object_uid = o.uid AND a.result = 'Observed'
                    AND (a.details ->> 'generation')::bigint = o.generation)
            "#,
            json(operations)
        );
        self.execute(statement).await
    }

    /// Marks disks as deleted. The operator deletes disks after their retention period, which is not recorded.
    pub async fn mark_disks_deleted(&mut self, deleted: &[Deleted]) -> Result<()> {
        let statement = sqlx::query!(
            r#"
            WITH deleted AS (
                SELECT * FROM jsonb_to_recordset($1) AS r(uid uuid, at timestamptz, audit boolean)
            ), disk AS (
                UPDATE disks d SET deleted_at = r.at, observed_at = now()
                FROM deleted r WHERE d.uid = r.uid AND d.deleted_at IS NULL
                RETURNING d.uid, d.user_name, d.name, d.object, d.is_deleted, r.audit
            )
            INSERT INTO audit_log (actor, actor_kind, user_name, action, object_kind, object_name, object_uid, result,
                before_hash)
            SELECT 'unknown', 'FieldManager', user_name, 'disk.delete', 'Disk', name, uid, 'Observed',
                sha256(convert_to((object -> 'spec')::text, 'UTF8'))
            FROM disk WHERE audit AND NOT is_deleted
            "#,
            json(deleted)
        );
        self.execute(statement).await
    }

    /// Marks operations as deleted. They are deleted after seven days, which is not recorded.
    pub async fn mark_disk_operations_deleted(&mut self, deleted: &[Deleted]) -> Result<()> {
        let statement = sqlx::query!(
            r#"
            UPDATE disk_operations o SET deleted_at = r.at, observed_at = now()
            FROM jsonb_to_recordset($1) AS r(uid uuid, at timestamptz)
            WHERE o.uid = r.uid AND o.deleted_at IS NULL
            "#,
            json(deleted)
        );
        self.execute(statement).await
    }
}

impl Store {
    /// Returns the uids of the disks that are not marked as deleted.
    pub async fn live_disk_uids(&self) -> Result<Vec<Uuid>> {
        Ok(sqlx::query_scalar!("SELECT uid FROM disks WHERE deleted_at IS NULL").fetch_all(&self.pool).await?)
    }

    /// Returns the uids of the operations that are not marked as deleted.
    pub async fn live_disk_operation_uids(&self) -> Result<Vec<Uuid>> {
        Ok(sqlx::query_scalar!("SELECT uid FROM disk_operations WHERE deleted_at IS NULL")
            .fetch_all(&self.pool)
            .await?)
    }

    /// Returns the operations on a disk, newest first, with the time and uid that identify the place in the list.
    pub async fn list_disk_operations(
        &self,
        visible: &Visible,
        namespace: &str,
        disk: &str,
        page: &Page,
    ) -> Result<Vec<(Timestamp, Uuid, Value)>> {
        let rows = sqlx::query!(
            r#"
            SELECT created_at AS "created_at: time::Sql", uid, object FROM disk_operations
            WHERE ($1::text IS NULL OR user_name = $1) AND namespace = $2 AND disk_name = $3
                AND ($4::timestamptz IS NULL OR (created_at, uid) < ($4, $5::uuid))
            ORDER BY created_at DESC, uid DESC LIMIT $6
            "#,
            visible.user(),
            namespace,
            disk,
            page.after.map(|(at, _)| to_sql(at)) as _,
            page.after.map(|(_, uid)| uid),
            page.limit()
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(rows.into_iter().map(|row| (row.created_at.to_jiff(), row.uid, row.object)).collect())
    }
}
