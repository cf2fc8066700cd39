//! PostgreSQL: the schema, its migrations, and all SQL of ODC.
//!
//! Stored here: API keys, accepted requests with their idempotency keys, the message queues of the worker, the audit log,
//! and the history of servers, disks and usage. Not stored here: the desired and observed state of servers and disks, which
//! is in the custom resources. The tables that copy them can be rebuilt.
//!
//! Each function is one statement, committed on its own, unless its documentation says otherwise. Queries are checked at
//! compile time against the schema; `./dev sqlx` updates the checked-in descriptions in `.sqlx`.

#[cfg(feature = "queries")]
pub mod audit;
pub mod error;
#[cfg(feature = "queries")]
pub mod key;
#[cfg(feature = "queries")]
pub mod listen;
pub mod migrate;
#[cfg(feature = "queries")]
pub mod page;
mod pool;
#[cfg(feature = "queries")]
pub mod projection;
#[cfg(feature = "queries")]
pub mod queue;
#[cfg(feature = "queries")]
pub mod request;
#[cfg(feature = "queries")]
pub mod retention;
pub mod settings;
#[cfg(feature = "queries")]
mod time;
#[cfg(feature = "queries")]
pub mod usage;
#[cfg(feature = "queries")]
pub mod user;

use pool::Pool;

pub use error::{Error, Result};
pub use settings::Settings;

/// A connection pool.
#[derive(Clone, Debug)]
pub struct Store {
    pool: Pool,
}

impl Store {
    /// Returns a pool that connects on first use, so that a process can start while the database is unavailable.
    pub fn new(settings: &Settings) -> Self {
        Self { pool: Pool::new(settings) }
    }

    /// Checks that the database answers.
    pub async fn ping(&self) -> Result<()> {
        sqlx::query("SELECT").execute(&self.pool).await?;
        Ok(())
    }

    /// Closes all connections, after running statements have ended.
    pub async fn close(&self) {
        self.pool.inner().close().await;
    }
}
