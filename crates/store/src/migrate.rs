//! Creation and upgrade of the schema.

use std::time::Duration;

use sqlx::migrate::{MigrateError, Migrator};
use sqlx::{Executor, PgPool, Postgres, Row as _};

use crate::{Settings, Store};

static MIGRATIONS: Migrator = sqlx::migrate!();

/// The roles that need privileges in the database.
pub const ROLES: [&str; 3] = ["odc_api", "odc_worker", "odc_auditor"];

/// Creates the roles. It must be executed by an administrator of the database server.
pub const ROLES_SQL: &str = include_str!("roles.sql");
const GRANTS_SQL: &str = include_str!("grants.sql");

/// Prevents concurrent migrations.
const MIGRATION_LOCK: i64 = 0x006f_6463_6d69_6772;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot connect to the database")]
    Connect(#[source] sqlx::Error),
    #[error(
        "missing roles in the database: {}\nhint: let an administrator of the database server run the output of \
         `odc migrate --print-roles`",
        .0.join(", ")
    )]
    MissingRoles(Vec<String>),
    #[error("installing PGMQ failed")]
    Queue(#[source] pgmq::PgmqError),
    #[error("a migration failed; it was rolled back")]
    Migration(#[source] MigrateError),
    #[error("granting privileges failed")]
    Grant(#[source] sqlx::Error),
}

impl Error {
    /// Reports whether the database could not be reached, so that the migration can succeed later.
    pub fn is_unavailable(&self) -> bool {
        matches!(self, Self::Connect(source) if crate::error::is_unavailable(source))
    }
}

/// What [`migrate`] has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Migrated {
    pub from: i64,
    pub to: i64,
}

/// Creates or upgrades the schema. The role of the connection must own the database. Can be repeated, also after it was
/// interrupted: each migration is a transaction.
pub async fn migrate(settings: &Settings) -> Result<Migrated, Error> {
    let mut settings = settings.clone();
    // Without a limit.
    settings.statement_timeout = Duration::ZERO;
    let options = settings.connect_options();
    // One connection holds the lock, the other one is used by PGMQ and the migrations.
    let pool =
        sqlx::postgres::PgPoolOptions::new().max_connections(2).connect_with(options).await.map_err(Error::Connect)?;
    let mut lock = pool.acquire().await.map_err(Error::Connect)?;
    lock.close_on_drop();
    sqlx::query("SELECT pg_advisory_lock($1)")
        .bind(MIGRATION_LOCK)
        .execute(&mut *lock)
        .await
        .map_err(Error::Connect)?;
    let missing = missing_roles(&pool).await.map_err(Error::Connect)?;
    if !missing.is_empty() {
        return Err(Error::MissingRoles(missing));
    }
    let from = applied_version(&pool).await.map_err(Error::Connect)?;
    pgmq::install::install_sql_from_embedded(&pool).await.map_err(Error::Queue)?;
    MIGRATIONS.run(&pool).await.map_err(Error::Migration)?;
    sqlx::raw_sql(GRANTS_SQL).execute(&pool).await.map_err(Error::Grant)?;
    Ok(Migrated { from, to: latest_version() })
}

/// Returns the version of the schema that this executable was built for.
pub fn latest_version() -> i64 {
    MIGRATIONS.iter().map(|migration| migration.version).max().unwrap_or_default()
}

async fn missing_roles(pool: &PgPool) -> sqlx::Result<Vec<String>> {
    let rows = sqlx::query("SELECT role FROM unnest($1::text[]) role WHERE role NOT IN (SELECT rolname FROM pg_roles)")
        .bind(ROLES.as_slice())
        .fetch_all(pool)
        .await?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

/// Returns the version of the schema, or 0 if there is none.
async fn applied_version<'e>(pool: impl Executor<'e, Database = Postgres> + Copy) -> sqlx::Result<i64> {
    let exists: bool = sqlx::query("SELECT to_regclass('_sqlx_migrations') IS NOT NULL").fetch_one(pool).await?.get(0);
    if !exists {
        return Ok(0);
    }
    let version = sqlx::query("SELECT COALESCE(max(version), 0) FROM _sqlx_migrations WHERE success");
    Ok(version.fetch_one(pool).await?.get(0))
}

impl Store {
    /// Reports whether the schema is as new as this executable. A newer schema works with an older executable.
    pub async fn is_migrated(&self) -> crate::Result<bool> {
        Ok(applied_version(&self.pool).await? >= latest_version())
    }
}
