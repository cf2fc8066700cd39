//! Ensures that one worker at a time writes the projection.

use sqlx::pool::PoolConnection;
use sqlx::{Connection as _, Execute, Executor as _, Postgres};

use crate::pool::Pool;
use crate::{Result, Store};

/// The advisory lock of the worker that writes the projection.
const PROJECTION_LOCK: i64 = 0x6f64_6370_726f_6a65;

/// The right to write the projection, until it is dropped or its connection is lost.
///
/// All writes use the connection that holds the lock. So the server releases the lock only after the last of them, and a
/// worker that was suspended cannot replace the rows of its successor by older ones.
#[derive(Debug)]
pub struct Writer {
    connection: PoolConnection<Postgres>,
    pool: Pool,
}

impl Store {
    /// Returns the right to write the projection, unless another worker has it.
    pub async fn try_become_writer(&self) -> Result<Option<Writer>> {
        let mut connection = self.pool.inner().acquire().await?;
        // The lock belongs to the session, so the connection must not return to the pool.
        connection.close_on_drop();
        let lock = sqlx::query_scalar!(r#"SELECT pg_try_advisory_lock($1) AS "locked!""#, PROJECTION_LOCK);
        let locked = self.pool.wait(lock.fetch_one(&mut *connection)).await?;
        Ok(locked.then(|| Writer { connection, pool: self.pool.clone() }))
    }
}

impl Writer {
    /// Checks that the server still answers on the connection.
    pub async fn check(&mut self) -> Result<()> {
        self.pool.wait(self.connection.ping()).await?;
        Ok(())
    }

    /// Executes a statement that changes the projection.
    pub(crate) async fn execute<'q>(&mut self, statement: impl Execute<'q, Postgres> + 'q) -> Result<()> {
        self.pool.wait(self.connection.execute(statement)).await?;
        Ok(())
    }
}
