//! Copies of servers, their phase transitions and their usage.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;
use uuid::Uuid;

use super::{Copied, Deleted, Writer, json};
use crate::page::{Page, Visible};
use crate::time::{self, to_sql};
use crate::{Result, Store};

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DevServerRow {
    #[serde(flatten)]
    pub copied: Copied,
    pub team: Option<String>,
    pub flavor: Option<String>,
    /// On all nodes.
    pub devices: u32,
    pub nodes: u32,
    pub phase: String,
    pub disk_name: Option<String>,
    pub started_at: Option<Timestamp>,
    pub expires_at: Option<Timestamp>,
    pub finished_at: Option<Timestamp>,
    pub failure_reason: Option<String>,
    pub oom_kills: i64,
}

/// A phase transition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TimelineRow {
    pub server_uid: Uuid,
    pub at: Timestamp,
    pub phase: String,
    pub reason: String,
}

/// A time during which a server held its devices.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct IntervalRow {
    pub server_uid: Uuid,
    pub started_at: Timestamp,
    /// Unset while it lasts.
    pub ended_at: Option<Timestamp>,
    /// Whether the interval may have started earlier: the status no longer has the transition. The stored start is kept.
    pub continued: bool,
    pub user_name: String,
    pub team: Option<String>,
    pub flavor: String,
    /// On all nodes.
    pub devices: u32,
    pub nodes: u32,
    pub price_per_device_hour_millionths: u64,
}

/// Servers that were observed together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServerBatch {
    pub servers: Vec<DevServerRow>,
    pub timeline: Vec<TimelineRow>,
    pub intervals: Vec<IntervalRow>,
}

/// Which servers to return.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerFilter {
    /// Any of these phases; all if empty.
    pub phases: Vec<String>,
    pub flavor: Option<String>,
    pub name: Option<String>,
    /// Whether to return only servers whose object is deleted.
    pub deleted: bool,
}

impl Writer {
    /// Inserts or updates servers, their phase transitions and usage intervals, and records changes that were not made
    /// through the API.
    pub async fn upsert_servers(&mut self, batch: &ServerBatch) -> Result<()> {
        let statement = sqlx::query!(
            r#"
            WITH observed AS (
                SELECT * FROM jsonb_to_recordset($1) AS r(uid uuid, namespace text, name text, user_name text,
                    request_id uuid, requested_by text, created_at timestamptz, generation bigint, changed_by text,
                    object jsonb, team text, flavor text, devices int, nodes int, phase text, disk_name text,
                    started_at timestamptz, expires_at timestamptz, finished_at timestamptz, failure_reason text,
                    oom_kills bigint)
            ), server AS (
                INSERT INTO devservers (uid, namespace, name, user_name, request_id, requested_by, created_at, generation,
                    audited_generation, object, team, flavor, devices, nodes, phase, disk_name, started_at, expires_at,
                    finished_at, failure_reason, oom_kills, observed_at)
                SELECT uid, namespace, name, user_name, request_id, requested_by, created_at, generation,
                    generation, object, team, flavor, devices, nodes, phase, disk_name, started_at, expires_at,
                    finished_at, failure_reason, oom_kills, now()
                FROM observed
                ON CONFLICT (uid) DO UPDATE SET request_id = EXCLUDED.request_id, requested_by = EXCLUDED.requested_by,
                    generation = EXCLUDED.generation, audited_generation = EXCLUDED.generation,
                    object = EXCLUDED.object, team = EXCLUDED.team, flavor = EXCLUDED.flavor,
                    devices = EXCLUDED.devices, nodes = EXCLUDED.nodes, phase = EXCLUDED.phase,
                    disk_name = EXCLUDED.disk_name, started_at = EXCLUDED.started_at, expires_at = EXCLUDED.expires_at,
                    finished_at = EXCLUDED.finished_at, failure_reason = EXCLUDED.failure_reason,
                    oom_kills = EXCLUDED.oom_kills, observed_at = now()
            ), transition AS (
                INSERT INTO devserver_timeline (server_uid, at, phase, reason)
                SELECT server_uid, at, phase, reason
                FROM ROWS FROM (jsonb_to_recordset($2) AS (server_uid uuid, at timestamptz, phase text, reason text))
                    WITH ORDINALITY AS t(server_uid, at, phase, reason, number)
                ORDER BY number
                ON CONFLICT (server_uid, at, phase) DO NOTHING
            ), interval AS (
                SELECT * FROM jsonb_to_recordset($3) AS i(server_uid uuid, started_at timestamptz, ended_at timestamptz,
                    continued boolean, user_name text, team text, flavor text, devices int, nodes int,
                    price_per_device_hour_millionths bigint)
            ), earlier AS (
                SELECT i.server_uid, u.started_at FROM interval i JOIN usage_intervals u ON u.server_uid = i.server_uid
                WHERE i.continued AND u.started_at <= i.started_at AND (u.ended_at IS NULL OR u.ended_at > i.started_at)
            ), used AS (
                INSERT INTO usage_intervals (server_uid, started_at, ended_at, user_name, team, flavor, devices, nodes,
                    price_per_device_hour_millionths)
                SELECT i.server_uid, COALESCE(e.started_at, i.started_at),
                    -- A server that is marked as deleted does not use devices again.
                    CASE WHEN COALESCE(i.ended_at, d.deleted_at) IS NOT NULL
                        THEN GREATEST(COALESCE(e.started_at, i.started_at), LEAST(i.ended_at, d.deleted_at)) END,
                    i.user_name, i.team, i.flavor, i.devices, i.nodes, i.price_per_device_hour_millionths
                FROM interval i LEFT JOIN earlier e ON i.continued AND e.server_uid = i.server_uid
                    LEFT JOIN devservers d ON d.uid = i.server_uid
                -- Intervals that ended come first, because a server has one without an end.
                ORDER BY i.server_uid, i.started_at
                ON CONFLICT (server_uid, started_at) DO UPDATE SET ended_at = EXCLUDED.ended_at
            )
            INSERT INTO audit_log (actor, actor_kind, user_name, action, object_kind, object_name, object_uid, result,
                before_hash, after_hash, details)
            SELECT o.changed_by, 'FieldManager', o.user_name,
                CASE WHEN o.generation = 1 THEN 'devserver.create' ELSE 'devserver.update' END,
                'DevServer', o.name, o.uid, 'Observed',
                sha256(convert_to((d.object -> 'spec')::text, 'UTF8')), sha256(convert_to((o.object -> 'spec')::text, 'UTF8')),
                jsonb_build_object('generation', o.generation)
            FROM observed o LEFT JOIN devservers d ON d.uid = o.uid
            WHERE o.changed_by IS NOT NULL AND o.generation > COALESCE(d.audited_generation, 0)
                AND NOT EXISTS (SELECT FROM audit_log a WHERE a.object_uid = o.uid AND a.result = 'Observed'
                    AND (a.details ->> 'generation')::bigint = o.generation)
            "#,
            json(&batch.servers),
            json(&batch.timeline),
            json(&batch.intervals)
        );
        self.execute(statement).await
    }

    /// Ends usage intervals whose end is unknown, because the status of the server no longer has the transition: they ended
    /// before the given time. To be called before [`Self::upsert_servers`].
    pub async fn end_intervals_before(&mut self, times: &[(Uuid, Timestamp)]) -> Result<()> {
        let uids: Vec<Uuid> = times.iter().map(|(uid, _)| *uid).collect();
        let times: Vec<time::Sql> = times.iter().map(|(_, at)| to_sql(*at)).collect();
        let statement = sqlx::query!(
            r#"
            UPDATE usage_intervals u SET ended_at = t.at
            FROM unnest($1::uuid[], $2::timestamptz[]) AS t(uid, at)
            WHERE u.server_uid = t.uid AND u.ended_at IS NULL AND u.started_at < t.at
            "#,
            &uids,
            &times as _
        );
        self.execute(statement).await
    }

    /// Marks servers as deleted, ends their usage and removes their environment variables. The operator deletes finished
    /// servers, which is not recorded.
    pub async fn mark_servers_deleted(&mut self, deleted: &[Deleted]) -> Result<()> {
        let statement = sqlx::query!(
            r#"
            WITH deleted AS (
                SELECT * FROM jsonb_to_recordset($1) AS r(uid uuid, at timestamptz, observed boolean, audit boolean)
            ), server AS (
                UPDATE devservers d SET deleted_at = r.at, observed_at = now(), object = d.object #- '{spec,env}'
                FROM deleted r, devservers old WHERE d.uid = r.uid AND old.uid = d.uid AND d.deleted_at IS NULL
                RETURNING d.uid, d.user_name, d.name, old.object, d.finished_at, r.audit,
                    -- A server whose end was not observed has ended when it expired, at the latest.
                    CASE WHEN r.observed THEN r.at ELSE LEAST(r.at, d.expires_at) END AS ended_at
            ), used AS (
                UPDATE usage_intervals u SET ended_at = GREATEST(u.started_at, s.ended_at)
                FROM server s WHERE u.server_uid = s.uid AND u.ended_at IS NULL
            )
            INSERT INTO audit_log (actor, actor_kind, user_name, action, object_kind, object_name, object_uid, result,
                before_hash)
            SELECT 'unknown', 'FieldManager', user_name, 'devserver.delete', 'DevServer', name, uid, 'Observed',
                sha256(convert_to((object -> 'spec')::text, 'UTF8'))
            FROM server WHERE audit AND finished_at IS NULL
            "#,
            json(deleted)
        );
        self.execute(statement).await
    }
}

impl Store {
    /// Returns the uids of the servers that are not marked as deleted.
    pub async fn live_server_uids(&self) -> Result<Vec<Uuid>> {
        Ok(sqlx::query_scalar!("SELECT uid FROM devservers WHERE deleted_at IS NULL").fetch_all(&self.pool).await?)
    }

    /// Returns the objects of servers, newest first, with the time and uid that identify the place in the list.
    pub async fn list_servers(
        &self,
        visible: &Visible,
        filter: &ServerFilter,
        page: &Page,
    ) -> Result<Vec<(Timestamp, Uuid, Value)>> {
        let rows = sqlx::query!(
            r#"
            SELECT created_at AS "created_at: time::Sql", uid, object FROM devservers
            WHERE ($1::text IS NULL OR user_name = $1)
                AND (cardinality($2::text[]) = 0 OR phase = ANY($2))
                AND ($3::text IS NULL OR flavor = $3)
                AND ($4::text IS NULL OR name = $4)
                AND (NOT $5 OR deleted_at IS NOT NULL)
                AND ($6::timestamptz IS NULL OR (created_at, uid) < ($6, $7::uuid))
            ORDER BY created_at DESC, uid DESC LIMIT $8
            "#,
            visible.user(),
            &filter.phases,
            filter.flavor.as_deref(),
            filter.name.as_deref(),
            filter.deleted,
            page.after.map(|(at, _)| to_sql(at)) as _,
            page.after.map(|(_, uid)| uid),
            page.limit()
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(rows.into_iter().map(|row| (row.created_at.to_jiff(), row.uid, row.object)).collect())
    }

    /// Returns the last phase transitions of a server, oldest first.
    pub async fn timeline(&self, server: Uuid, limit: u32) -> Result<Vec<TimelineRow>> {
        let rows = sqlx::query!(
            r#"
            SELECT at AS "at: time::Sql", phase, reason FROM devserver_timeline WHERE server_uid = $1
            ORDER BY at DESC, position DESC LIMIT $2
            "#,
            server,
            i64::from(limit)
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(rows
            .into_iter()
            .rev()
            .map(|row| TimelineRow { server_uid: server, at: row.at.to_jiff(), phase: row.phase, reason: row.reason })
            .collect())
    }
}
