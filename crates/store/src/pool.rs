//! A connection pool that does not wait for a server that stopped answering.

use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream, TryStreamExt as _};
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgPoolOptions, PgQueryResult, PgRow, PgStatement, PgTypeInfo};
use sqlx::{Describe, Either, Error, Execute, Executor, PgPool, Postgres, SqlStr};

use crate::Settings;

/// How much longer than the statement timeout a client waits, since the server reports the timeout itself.
const ANSWER_MARGIN: Duration = Duration::from_secs(2);

/// Connections whose statements have a time limit on this side, too: the server's limit does not help if the network
/// loses its answer. A connection without an answer is closed, because the pool would wait for the answer forever.
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    inner: PgPool,
    answer_timeout: Duration,
}

impl Pool {
    /// Returns a pool that connects on first use.
    pub fn new(settings: &Settings) -> Self {
        let inner = PgPoolOptions::new()
            .max_connections(settings.max_connections)
            .acquire_timeout(settings.acquire_timeout)
            .connect_lazy_with(settings.connect_options());
        Self { inner, answer_timeout: settings.statement_timeout + ANSWER_MARGIN }
    }

    /// Returns a pool for one connection whose session has locks. It is closed with the pool, not used for something else.
    #[cfg(feature = "queries")]
    pub fn for_one_session(&self) -> Self {
        let inner = PgPoolOptions::new()
            .max_connections(1)
            .max_lifetime(None)
            .idle_timeout(None)
            .acquire_timeout(self.inner.options().get_acquire_timeout())
            .connect_lazy_with(self.inner.connect_options().as_ref().clone());
        Self { inner, answer_timeout: self.answer_timeout }
    }

    pub fn inner(&self) -> &PgPool {
        &self.inner
    }

    /// Returns a connection that is closed if it is dropped before a statement has ended.
    async fn acquire(&self) -> Result<Lease, Error> {
        Ok(Lease { connection: self.inner.acquire().await?, is_idle: false })
    }

    /// Waits for an answer of the server.
    pub async fn wait<T>(&self, answer: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let timed_out = |_| Err(Error::Io(std::io::ErrorKind::TimedOut.into()));
        tokio::time::timeout(self.answer_timeout, answer).await.unwrap_or_else(timed_out)
    }
}

struct Lease {
    connection: PoolConnection<Postgres>,
    is_idle: bool,
}

impl Drop for Lease {
    fn drop(&mut self) {
        if !self.is_idle {
            self.connection.close_on_drop();
        }
    }
}

impl<'p> Executor<'p> for &'_ Pool {
    type Database = Postgres;

    /// Collects all rows first; every query has a limit.
    fn fetch_many<'e, 'q: 'e, E>(self, query: E) -> BoxStream<'e, Result<Either<PgQueryResult, PgRow>, Error>>
    where
        'p: 'e,
        E: 'q + Execute<'q, Postgres>,
    {
        let pool = self.clone();
        let items = async move {
            let mut lease = pool.acquire().await?;
            let items: Vec<_> = pool.wait(lease.connection.fetch_many(query).try_collect()).await?;
            lease.is_idle = true;
            Ok::<_, Error>(stream::iter(items.into_iter().map(Ok)))
        };
        Box::pin(stream::once(items).try_flatten())
    }

    fn fetch_optional<'e, 'q: 'e, E>(self, query: E) -> BoxFuture<'e, Result<Option<PgRow>, Error>>
    where
        'p: 'e,
        E: 'q + Execute<'q, Postgres>,
    {
        let pool = self.clone();
        Box::pin(async move {
            let mut lease = pool.acquire().await?;
            let row = pool.wait(lease.connection.fetch_optional(query)).await?;
            lease.is_idle = true;
            Ok(row)
        })
    }

    fn prepare_with<'e>(self, sql: SqlStr, types: &'e [PgTypeInfo]) -> BoxFuture<'e, Result<PgStatement, Error>>
    where
        'p: 'e,
    {
        let pool = self.clone();
        Box::pin(async move { pool.inner.acquire().await?.prepare_with(sql, types).await })
    }

    fn describe<'e>(self, sql: SqlStr) -> BoxFuture<'e, Result<Describe<Postgres>, Error>>
    where
        'p: 'e,
    {
        let pool = self.clone();
        Box::pin(async move { pool.inner.acquire().await?.describe(sql).await })
    }
}
