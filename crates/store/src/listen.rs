//! Notifications of the database.

use std::time::Duration;

use sqlx::postgres::PgListener;
use sqlx::{Acquire as _, Connection as _};
use tokio::time::timeout;

use crate::pool::Pool;
use crate::queue::{self, Queue};
use crate::{Error, Result, Store};

const QUEUE_CHANNEL: &str = "odc_queue";
const KEY_CHANNEL: &str = "odc_api_key";
/// How often a quiet connection is checked, which needs no statement, and how long the answer may take: the network can
/// lose a connection without an error. Together less than the time for which API keys are cached without notifications.
const CHECK_INTERVAL: Duration = Duration::from_secs(2);
const CHECK_TIMEOUT: Duration = Duration::from_secs(2);

/// A connection that receives notifications. It is not reestablished: notifications may have been missed, so the caller has
/// to read the current state after it listens again.
///
/// It does not belong to the pool, because the locks of its session must end with it.
#[derive(Debug)]
pub struct Listener {
    inner: PgListener,
    pool: Pool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notification {
    MessageSent(Queue),
    /// The key with this id was changed, revoked or deleted.
    KeyChanged(String),
}

impl Store {
    /// Listens for changes of API keys.
    pub async fn listen_for_key_changes(&self) -> Result<Listener> {
        self.listen(KEY_CHANNEL).await
    }

    /// Listens for messages, and marks this worker as connected. If it is the only one, messages that a crashed worker had
    /// read become visible; their number is returned. To be called before the first read: later it would expose messages
    /// that this worker handles.
    pub async fn listen_for_messages(&self) -> Result<(Listener, Option<u64>)> {
        let mut listener = self.listen(QUEUE_CHANNEL).await?;
        let recovered = self.pool.wait(queue::recover(&mut listener.inner)).await?;
        Ok((listener, recovered))
    }

    /// Listens for messages again after the connection was lost, and marks this worker as connected.
    pub async fn listen_again_for_messages(&self) -> Result<Listener> {
        let mut listener = self.listen(QUEUE_CHANNEL).await?;
        self.pool.wait(queue::mark_connected(&mut listener.inner)).await?;
        Ok(listener)
    }

    async fn listen(&self, channel: &str) -> Result<Listener> {
        let pool = self.pool.for_one_session();
        let mut inner = PgListener::connect_with(pool.inner()).await?;
        inner.eager_reconnect(false);
        pool.wait(inner.listen(channel)).await?;
        Ok(Listener { inner, pool })
    }
}

impl Listener {
    /// Waits for the next notification. Fails if the connection was lost.
    pub async fn next(&mut self) -> Result<Notification> {
        loop {
            let lost = || Error::Unavailable(sqlx::Error::WorkerCrashed);
            let Ok(received) = timeout(CHECK_INTERVAL, self.inner.try_recv()).await else {
                self.check().await?;
                continue;
            };
            let notification = received?.ok_or_else(lost)?;
            let payload = notification.payload();
            match notification.channel() {
                QUEUE_CHANNEL => {
                    if let Some(queue) = Queue::from_name(payload) {
                        return Ok(Notification::MessageSent(queue));
                    }
                    tracing::warn!(queue = payload, "ignored a notification of an unknown queue");
                }
                KEY_CHANNEL => return Ok(Notification::KeyChanged(payload.to_owned())),
                channel => tracing::warn!(channel, "ignored a notification of an unknown channel"),
            }
        }
    }

    /// Closes the connection, after which its locks are released.
    pub async fn close(self) {
        drop(self.inner);
        self.pool.inner().close().await;
    }

    /// Checks that the server still answers on the connection.
    async fn check(&mut self) -> Result<()> {
        let ping = async { self.inner.acquire().await?.ping().await };
        let stalled = |_| Err(sqlx::Error::Io(std::io::ErrorKind::TimedOut.into()));
        Ok(timeout(CHECK_TIMEOUT, ping).await.unwrap_or_else(stalled)?)
    }
}
