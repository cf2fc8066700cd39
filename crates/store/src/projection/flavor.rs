//! Copies of flavors.

use serde::Serialize;
use serde_json::Value;

use super::{Writer, json};
use crate::{Result, Store};

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FlavorRow {
    pub name: String,
    pub object: Value,
}

impl Writer {
    /// Inserts or updates flavors.
    pub async fn upsert_flavors(&mut self, flavors: &[FlavorRow]) -> Result<()> {
        let statement = sqlx::query!(
            r#"
            INSERT INTO flavors (name, object, observed_at)
            SELECT name, object, now() FROM jsonb_to_recordset($1) AS r(name text, object jsonb)
            ON CONFLICT (name) DO UPDATE SET object = EXCLUDED.object, observed_at = now(), deleted_at = NULL
            "#,
            json(flavors)
        );
        self.execute(statement).await
    }

    /// Marks flavors as deleted.
    pub async fn mark_flavors_deleted(&mut self, names: &[String]) -> Result<()> {
        let statement =
            sqlx::query!("UPDATE flavors SET deleted_at = now() WHERE name = ANY($1) AND deleted_at IS NULL", names);
        self.execute(statement).await
    }
}

impl Store {
    /// Returns the names of the flavors that are not marked as deleted.
    pub async fn live_flavor_names(&self) -> Result<Vec<String>> {
        Ok(sqlx::query_scalar!("SELECT name FROM flavors WHERE deleted_at IS NULL").fetch_all(&self.pool).await?)
    }
}
