//! `odc migrate`: creates or upgrades the schema of the database.

use std::time::Duration;

use anyhow::Context as _;
use odc_store::Settings;
use odc_store::migrate::{Error, Migrated, ROLES_SQL, migrate};

use crate::database::DatabaseOptions;

const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Options of `odc migrate`.
#[derive(Clone, clap::Args)]
pub struct Options {
    #[command(flatten)]
    database: DatabaseOptions,
    /// Print the SQL that creates the roles of ODC, for an administrator of the database server
    #[arg(long)]
    print_roles: bool,
    /// How long to wait for the database, in seconds
    #[arg(long, env = "ODC_MIGRATE_TIMEOUT_SECONDS", default_value_t = 60, value_name = "SECONDS")]
    timeout_seconds: u64,
}

/// Migrates the database. Returns the text to print.
pub async fn run(options: Options) -> anyhow::Result<String> {
    let Options { database, print_roles, timeout_seconds } = options;
    if print_roles {
        return Ok(ROLES_SQL.to_owned());
    }
    let settings = database.settings("odc-migrate")?;
    let timeout = Duration::from_secs(timeout_seconds);
    let migrated = migrate_when_available(&settings, timeout).await?;
    Ok(format!("{}\n", message(migrated)))
}

/// Repeats the migration while the database is unavailable, as in a cluster that is starting.
async fn migrate_when_available(settings: &Settings, timeout: Duration) -> anyhow::Result<Migrated> {
    let deadline = tokio::time::Instant::now() + timeout;
    loop {
        match migrate(settings).await {
            Err(error) if error.is_unavailable() && tokio::time::Instant::now() + RETRY_INTERVAL < deadline => {
                tracing::info!(error = &error as &dyn std::error::Error, "waiting for the database");
                tokio::time::sleep(RETRY_INTERVAL).await;
            }
            Err(error) => {
                let hint = hint(&error);
                return Err(error).with_context(|| format!("cannot migrate the database of {settings:?}{hint}"));
            }
            Ok(migrated) => return Ok(migrated),
        }
    }
}

fn message(migrated: Migrated) -> String {
    match migrated {
        Migrated { from, to } if from == to => format!("The database is up to date (version {to})"),
        Migrated { from, to } => format!("Migrated the database from version {from} to {to}"),
    }
}

/// Returns the hint for an error, as a part of its message. Missing roles have their own.
fn hint(error: &Error) -> &'static str {
    match error {
        Error::Connect(_) => {
            "\nhint: check DATABASE_URL, or POSTGRES_HOST and the other variables; see `odc migrate --help`"
        }
        Error::MissingRoles(_) => "",
        Error::Queue(_) | Error::Migration(_) | Error::Grant(_) => {
            "\nhint: the role of the connection must own the database; then run this command again"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_names_both_versions() {
        assert_eq!(message(Migrated { from: 0, to: 5 }), "Migrated the database from version 0 to 5");
        assert_eq!(message(Migrated { from: 5, to: 5 }), "The database is up to date (version 5)");
    }
}
