//! A PostgreSQL of the test's own.

use odc_local::bound::Bound;

use crate::bed;
use crate::finally::finally;

#[derive(Debug)]
pub struct Database {
    /// Of a plain role that owns the one database.
    pub url: String,
}

pub async fn with_database<T>(test: impl AsyncFnOnce(Database) -> anyhow::Result<T>) -> anyhow::Result<T> {
    crate::begin();
    let directory = tempfile::Builder::new().prefix(&bed::temporary()).tempdir()?;
    let server = Bound::database(directory.path()).await?;
    let database = Database { url: server.database_url()? };
    finally(test(database), async || server.end().await).await
}
