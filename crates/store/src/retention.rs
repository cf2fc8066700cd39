//! Removal of old rows. The worker calls it once an hour.

use crate::{Result, Store};

/// Numbers of days after which rows are removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Finished requests, archived messages, and keys that are expired or revoked.
    pub request_days: u16,
    /// At least 30.
    pub audit_days: u16,
    /// Deleted servers with their phase transitions and usage, deleted disks and operations, and token usage.
    pub history_days: u16,
}

impl Default for Retention {
    fn default() -> Self {
        Self { request_days: 90, audit_days: 365, history_days: 730 }
    }
}

/// How long a repeated idempotency key returns the first request.
pub const IDEMPOTENCY_HOURS: u32 = 24;
/// Rows changed per statement, so that no statement holds locks for long.
const BATCH: u32 = 1_000;

/// The parts of [`Store::enforce_retention`] that remove rows in batches.
#[derive(Clone, Copy, Debug)]
enum Rows {
    IdempotencyKeys,
    Requests,
    ArchivedMessages,
    Keys,
    DevServers,
    Disks,
    DiskOperations,
    TokenUsage,
    Connections,
}

impl Rows {
    const ALL: [Self; 9] = [
        Self::IdempotencyKeys,
        Self::Requests,
        Self::ArchivedMessages,
        Self::Keys,
        Self::DevServers,
        Self::Disks,
        Self::DiskOperations,
        Self::TokenUsage,
        Self::Connections,
    ];
}

impl Store {
    /// Creates the next partition of the audit log, and removes old partitions and rows. Consists of many transactions, each
    /// of which can be the last. A part that fails does not keep the others from being executed; the first error is returned.
    pub async fn enforce_retention(&self, retention: Retention) -> Result<()> {
        let mut result = self.rotate_audit_partitions(retention.audit_days).await;
        for rows in Rows::ALL {
            result = result.and(self.remove(rows, retention).await);
        }
        result
    }

    async fn rotate_audit_partitions(&self, days: u16) -> Result<()> {
        sqlx::query!("SELECT create_audit_partitions()").fetch_one(&self.pool).await?;
        sqlx::query!("SELECT drop_audit_partitions($1)", i32::from(days.max(30))).fetch_one(&self.pool).await?;
        Ok(())
    }

    async fn remove(&self, rows: Rows, retention: Retention) -> Result<()> {
        while self.remove_batch(rows, retention).await? >= u64::from(BATCH) {}
        Ok(())
    }

    /// Removes up to [`BATCH`] rows. Returns their number.
    async fn remove_batch(&self, rows: Rows, retention: Retention) -> Result<u64> {
        let limit = i64::from(BATCH);
        let request_days = i32::from(retention.request_days);
        let history_days = i32::from(retention.history_days);
        let statement = match rows {
            // The key of a pending request is kept, so that a repetition does not execute it twice.
            Rows::IdempotencyKeys => sqlx::query!(
                r#"
                UPDATE requests SET idempotency_key = NULL WHERE id IN (
                    SELECT id FROM requests
                    WHERE idempotency_key IS NOT NULL AND state <> 'Pending'
                        AND created_at < now() - make_interval(hours => $1) ORDER BY created_at LIMIT $2)
                "#,
                i32::try_from(IDEMPOTENCY_HOURS).unwrap_or(i32::MAX),
                limit
            ),
            Rows::Requests => sqlx::query!(
                r#"
                DELETE FROM requests WHERE id IN (
                    SELECT id FROM requests
                    WHERE state <> 'Pending' AND created_at < now() - make_interval(days => $1)
                    ORDER BY created_at LIMIT $2)
                "#,
                request_days,
                limit
            ),
            Rows::ArchivedMessages => return self.remove_archived_messages(request_days, limit).await,
            Rows::Keys => sqlx::query!(
                r#"
                DELETE FROM api_keys WHERE id IN (
                    SELECT id FROM api_keys
                    WHERE LEAST(expires_at, revoked_at) < now() - make_interval(days => $1) LIMIT $2)
                "#,
                request_days,
                limit
            ),
            // Its phase transitions and usage are removed with it.
            Rows::DevServers => sqlx::query!(
                r#"
                DELETE FROM devservers WHERE uid IN (
                    SELECT uid FROM devservers WHERE deleted_at < now() - make_interval(days => $1)
                    ORDER BY deleted_at LIMIT $2)
                "#,
                history_days,
                limit
            ),
            Rows::Disks => sqlx::query!(
                r#"
                DELETE FROM disks WHERE uid IN (
                    SELECT uid FROM disks WHERE deleted_at < now() - make_interval(days => $1)
                    ORDER BY deleted_at LIMIT $2)
                "#,
                history_days,
                limit
            ),
            Rows::DiskOperations => sqlx::query!(
                r#"
                DELETE FROM disk_operations WHERE uid IN (
                    SELECT uid FROM disk_operations WHERE deleted_at < now() - make_interval(days => $1)
                    ORDER BY deleted_at LIMIT $2)
                "#,
                history_days,
                limit
            ),
            Rows::TokenUsage => sqlx::query!(
                r#"
                DELETE FROM token_usage WHERE (provider, provider_request_id) IN (
                    SELECT provider, provider_request_id FROM token_usage
                    WHERE at < now() - make_interval(days => $1) ORDER BY at LIMIT $2)
                "#,
                history_days,
                limit
            ),
            Rows::Connections => sqlx::query!(
                r#"
                DELETE FROM connections WHERE id IN (
                    SELECT id FROM connections WHERE connected_at < now() - make_interval(days => $1)
                    ORDER BY connected_at LIMIT $2)
                "#,
                history_days,
                limit
            ),
        };
        Ok(statement.execute(&self.pool).await?.rows_affected())
    }

    async fn remove_archived_messages(&self, days: i32, limit: i64) -> Result<u64> {
        let removed = sqlx::query_scalar!(
            r#"
            WITH reservation AS (
                DELETE FROM pgmq.a_gpu_reservations WHERE msg_id IN (
                    SELECT msg_id FROM pgmq.a_gpu_reservations
                    WHERE archived_at < now() - make_interval(days => $1) ORDER BY archived_at LIMIT $2)
                RETURNING msg_id
            ), disk_operation AS (
                DELETE FROM pgmq.a_disk_operations WHERE msg_id IN (
                    SELECT msg_id FROM pgmq.a_disk_operations
                    WHERE archived_at < now() - make_interval(days => $1) ORDER BY archived_at LIMIT $2)
                RETURNING msg_id
            ), admin_operation AS (
                DELETE FROM pgmq.a_admin_operations WHERE msg_id IN (
                    SELECT msg_id FROM pgmq.a_admin_operations
                    WHERE archived_at < now() - make_interval(days => $1) ORDER BY archived_at LIMIT $2)
                RETURNING msg_id
            )
            SELECT (SELECT count(*) FROM reservation) + (SELECT count(*) FROM disk_operation)
                + (SELECT count(*) FROM admin_operation) AS "removed!"
            "#,
            days,
            limit
        )
        .fetch_one(&self.pool)
        .await?;
        Ok(removed.unsigned_abs())
    }
}
