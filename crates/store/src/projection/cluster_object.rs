//! Changes of users, teams and flavors, for the audit log.

use serde::Serialize;
use serde_json::Value;
use uuid::Uuid;

use super::{Writer, json};
use crate::{Result, Store};

/// A user, team or flavor.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClusterObjectRow {
    /// Such as `Team`.
    pub kind: String,
    pub name: String,
    pub uid: Uuid,
    pub generation: i64,
    /// As in [`Copied`](super::Copied).
    pub changed_by: Option<String>,
    pub spec: Value,
}

impl Writer {
    /// Inserts or updates objects, and records changes that were not made through the API.
    pub async fn upsert_cluster_objects(&mut self, objects: &[ClusterObjectRow]) -> Result<()> {
        let statement = sqlx::query!(
            r#"
            WITH observed AS (
                SELECT * FROM jsonb_to_recordset($1) AS r(kind text, name text, uid uuid, generation bigint,
                    changed_by text, spec jsonb)
            ), object AS (
                INSERT INTO cluster_objects (kind, name, uid, generation, spec, observed_at)
                SELECT kind, name, uid, generation, spec, now() FROM observed
                ON CONFLICT (kind, name) DO UPDATE SET uid = EXCLUDED.uid, generation = EXCLUDED.generation,
                    spec = EXCLUDED.spec, deleted_at = NULL, observed_at = now()
            )
            INSERT INTO audit_log (actor, actor_kind, user_name, action, object_kind, object_name, object_uid, result,
                before_hash, after_hash, details)
            SELECT o.changed_by, 'FieldManager', CASE WHEN o.kind = 'DevServerUser' THEN o.name END,
                lower(replace(o.kind, 'DevServer', '')) || CASE WHEN o.generation = 1 THEN '.create' ELSE '.update' END,
                o.kind, o.name, o.uid, 'Observed',
                sha256(convert_to(c.spec::text, 'UTF8')), sha256(convert_to(o.spec::text, 'UTF8')),
                jsonb_build_object('generation', o.generation)
            FROM observed o LEFT JOIN cluster_objects c ON c.kind = o.kind AND c.name = o.name AND c.uid = o.uid
            WHERE o.changed_by IS NOT NULL AND o.generation > COALESCE(c.generation, 0)
                AND NOT EXISTS (SELECT FROM audit_log a WHERE a.object_uid = o.uid AND a.result = 'Observed'
                    AND (a.details ->> 'generation')::bigint = o.generation)
            "#,
            json(objects)
        );
        self.execute(statement).await
    }

    /// Marks objects as deleted, and records deletions that were not requested through the API.
    pub async fn mark_cluster_objects_deleted(&mut self, kind: &str, names: &[String]) -> Result<()> {
        let statement = sqlx::query!(
            r#"
            WITH object AS (
                UPDATE cluster_objects SET deleted_at = now(), observed_at = now()
                WHERE kind = $1 AND name = ANY($2) AND deleted_at IS NULL
                RETURNING *
            )
            INSERT INTO audit_log (actor, actor_kind, user_name, action, object_kind, object_name, object_uid, result,
                before_hash)
            SELECT 'unknown', 'FieldManager', CASE WHEN kind = 'DevServerUser' THEN name END,
                lower(replace(kind, 'DevServer', '')) || '.delete', kind, name, uid, 'Observed',
                sha256(convert_to(spec::text, 'UTF8'))
            FROM object o
            WHERE NOT EXISTS (SELECT FROM requests r WHERE r.object_kind = o.kind AND r.object_name = o.name
                AND r.action LIKE '%.delete' AND r.state IN ('Pending', 'Succeeded')
                AND r.created_at > now() - interval '1 day')
            "#,
            kind,
            names
        );
        self.execute(statement).await
    }
}

impl Store {
    /// Returns the names of the objects of a kind that are not marked as deleted.
    pub async fn live_cluster_object_names(&self, kind: &str) -> Result<Vec<String>> {
        let names =
            sqlx::query_scalar!("SELECT name FROM cluster_objects WHERE kind = $1 AND deleted_at IS NULL", kind);
        Ok(names.fetch_all(&self.pool).await?)
    }
}
