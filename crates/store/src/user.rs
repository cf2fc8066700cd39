//! Copies of users.

use serde::Serialize;
use uuid::Uuid;

use crate::projection::Writer;
use crate::{Result, Store};

/// A user, as observed in the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct User {
    pub name: String,
    pub uid: Uuid,
    pub display_name: Option<String>,
    pub github_user: Option<String>,
    /// `User`, `Admin` or `Auditor`.
    pub role: String,
}

impl Writer {
    /// Inserts or updates users.
    pub async fn upsert_users(&mut self, users: &[User]) -> Result<()> {
        let statement = sqlx::query!(
            r#"
            INSERT INTO users (name, uid, display_name, github_user, role)
            SELECT name, uid, display_name, github_user, role
            FROM jsonb_to_recordset($1) AS r(name text, uid uuid, display_name text, github_user text, role text)
            ON CONFLICT (name) DO UPDATE SET uid = EXCLUDED.uid, display_name = EXCLUDED.display_name,
                github_user = EXCLUDED.github_user, role = EXCLUDED.role, deleted_at = NULL, observed_at = now()
            "#,
            crate::projection::json(users)
        );
        self.execute(statement).await
    }

    /// Marks a user as deleted. The keys of a deleted user are not accepted.
    pub async fn mark_users_deleted(&mut self, names: &[String]) -> Result<()> {
        let statement = sqlx::query!(
            "UPDATE users SET deleted_at = now(), observed_at = now() WHERE name = ANY($1) AND deleted_at IS NULL",
            names
        );
        self.execute(statement).await
    }
}

impl Store {
    /// Returns the names of the users that are not marked as deleted.
    pub async fn live_user_names(&self) -> Result<Vec<String>> {
        Ok(sqlx::query_scalar!("SELECT name FROM users WHERE deleted_at IS NULL").fetch_all(&self.pool).await?)
    }
}
