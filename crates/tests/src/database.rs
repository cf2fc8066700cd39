//! A PostgreSQL server for one test.

use odc_local::ephemeral::EphemeralDatabase;

use crate::cleanup::with_cleanup;
use crate::shared_cluster;

#[derive(Debug)]
pub struct Database {
    /// Connects as an unprivileged role that owns the only database.
    pub url: String,
}

pub async fn with_database<T>(test: impl AsyncFnOnce(Database) -> anyhow::Result<T>) -> anyhow::Result<T> {
    crate::init();
    let directory = tempfile::Builder::new().prefix(&shared_cluster::temporary_directory_prefix()).tempdir()?;
    let server = EphemeralDatabase::start(directory.path()).await?;
    let database = Database { url: server.database_url()? };
    with_cleanup(test(database), async || server.stop().await).await
}
