//! API keys.

use jiff::Timestamp;

use crate::audit::Entry;
use crate::time::{self, to_sql};
use crate::{Result, Store};

/// A stored key. The key itself is not stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    pub id: String,
    pub user: String,
    pub description: String,
    pub scopes: Vec<String>,
    pub created_at: Timestamp,
    pub created_by: String,
    pub expires_at: Timestamp,
    pub last_used_at: Option<Timestamp>,
    pub revoked_at: Option<Timestamp>,
}

/// What is needed to authenticate a request by a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credential {
    pub user: String,
    pub hash: [u8; 32],
    pub scopes: Vec<String>,
    pub expires_at: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewKey<'a> {
    pub id: &'a str,
    pub user: &'a str,
    pub hash: [u8; 32],
    pub description: &'a str,
    pub scopes: &'a [String],
    pub expires_at: Timestamp,
}

/// The outcome of [`Store::create_key`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Created {
    Created,
    /// The user has as many valid keys as allowed.
    TooMany,
}

impl Store {
    /// Creates a key and its audit entry. The user has at most `max` valid keys; concurrent calls may exceed it by the
    /// number of calls.
    pub async fn create_key(&self, key: &NewKey<'_>, max: u32, entry: &Entry<'_>) -> Result<Created> {
        let entry = entry.columns();
        let created = sqlx::query_scalar!(
            r#"
            WITH owner AS (
                INSERT INTO users (name) VALUES ($2) ON CONFLICT (name) DO NOTHING
            ), key AS (
                INSERT INTO api_keys (id, user_name, hash, description, scopes, expires_at, created_by)
                SELECT $1, $2, $3, $4, $5, $6, $8
                WHERE (SELECT count(*) FROM api_keys
                       WHERE user_name = $2 AND revoked_at IS NULL AND expires_at > now()) < $7
                RETURNING id
            ), entry AS (
                INSERT INTO audit_log (actor, actor_kind, key_id, user_name, action, object_kind, object_name, result,
                    request_id, client_ip, user_agent, details)
                SELECT $8, $9, $10, $2, $11, $12, id, $13, $14, $15::text::inet, $16, $17 FROM key
            )
            SELECT EXISTS (SELECT FROM key) AS "created!"
            "#,
            key.id,
            key.user,
            key.hash.as_slice(),
            key.description,
            key.scopes,
            to_sql(key.expires_at) as _,
            i64::from(max),
            entry.actor,
            entry.actor_kind,
            entry.key_id,
            entry.action,
            entry.object_kind,
            entry.result,
            entry.request_id,
            entry.client_ip,
            entry.user_agent,
            entry.details
        )
        .fetch_one(&self.pool)
        .await?;
        Ok(if created { Created::Created } else { Created::TooMany })
    }

    /// Returns the credential of a key that is neither expired nor revoked and whose user is not deleted.
    pub async fn find_credential(&self, id: &str) -> Result<Option<Credential>> {
        let row = sqlx::query!(
            r#"
            SELECT k.user_name, k.hash, k.scopes, k.expires_at AS "expires_at: time::Sql"
            FROM api_keys k JOIN users u ON u.name = k.user_name
            WHERE k.id = $1 AND k.revoked_at IS NULL AND k.expires_at > now() AND u.deleted_at IS NULL
            "#,
            id
        )
        .fetch_optional(&self.pool)
        .await?;
        Ok(row.and_then(|row| {
            Some(Credential {
                user: row.user_name,
                hash: row.hash.try_into().ok()?,
                scopes: row.scopes,
                expires_at: row.expires_at.to_jiff(),
            })
        }))
    }

    /// Returns the keys of a user, valid ones first, then newest first.
    pub async fn list_keys(&self, user: &str, limit: u32) -> Result<Vec<Key>> {
        let rows = sqlx::query!(
            r#"
            SELECT id, user_name, description, scopes, created_by, created_at AS "created_at: time::Sql",
                expires_at AS "expires_at: time::Sql", last_used_at AS "last_used_at: time::Sql",
                revoked_at AS "revoked_at: time::Sql"
            FROM api_keys WHERE user_name = $1
            ORDER BY revoked_at IS NULL AND expires_at > now() DESC, created_at DESC, id LIMIT $2
            "#,
            user,
            i64::from(limit)
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(rows
            .into_iter()
            .map(|row| Key {
                id: row.id,
                user: row.user_name,
                description: row.description,
                scopes: row.scopes,
                created_at: row.created_at.to_jiff(),
                created_by: row.created_by,
                expires_at: row.expires_at.to_jiff(),
                last_used_at: row.last_used_at.map(time::Sql::to_jiff),
                revoked_at: row.revoked_at.map(time::Sql::to_jiff),
            })
            .collect())
    }

    /// Revokes a key of a user and records it. All replicas are notified. Returns whether the user has a key of this id;
    /// one that was revoked before is not recorded again.
    pub async fn revoke_key(&self, user: &str, id: &str, entry: &Entry<'_>) -> Result<bool> {
        let entry = entry.columns();
        let found = sqlx::query_scalar!(
            r#"
            WITH key AS (
                UPDATE api_keys SET revoked_at = now() WHERE id = $1 AND user_name = $2 AND revoked_at IS NULL
                RETURNING id
            ), entry AS (
                INSERT INTO audit_log (actor, actor_kind, key_id, user_name, action, object_kind, object_name, result,
                    request_id, client_ip, user_agent, details)
                SELECT $3, $4, $5, $2, $6, $7, id, $8, $9, $10::text::inet, $11, $12 FROM key
            )
            SELECT EXISTS (SELECT FROM api_keys WHERE id = $1 AND user_name = $2) AS "found!"
            "#,
            id,
            user,
            entry.actor,
            entry.actor_kind,
            entry.key_id,
            entry.action,
            entry.object_kind,
            entry.result,
            entry.request_id,
            entry.client_ip,
            entry.user_agent,
            entry.details
        )
        .fetch_one(&self.pool)
        .await?;
        Ok(found)
    }

    /// Records when keys were last used. Callers collect uses and write them together.
    pub async fn record_key_uses(&self, ids: &[String]) -> Result<()> {
        sqlx::query!("UPDATE api_keys SET last_used_at = now() WHERE id = ANY($1)", ids).execute(&self.pool).await?;
        Ok(())
    }
}
