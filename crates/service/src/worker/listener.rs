//! Notifications of new messages.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use odc_store::listen::Listener;
use odc_store::{Error, Store};
use tokio::sync::Notify;
use tokio::time::sleep;

use super::metrics::Metrics;

/// The longest wait before listening again. The poll interval can be an hour.
const MAX_RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// What the consumer knows of new messages.
#[derive(Clone, Debug, Default)]
pub struct Notifications {
    changed: Arc<Notify>,
    listening: Arc<AtomicBool>,
}

impl Notifications {
    /// Reports whether new messages are notified at present.
    pub fn is_listening(&self) -> bool {
        self.listening.load(Ordering::Relaxed)
    }

    /// Waits until messages may have been sent, or notifications have started or stopped.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    fn set_listening(&self, listening: bool, metrics: &Metrics) {
        self.listening.store(listening, Ordering::Relaxed);
        metrics.listening.set(listening.into());
        // The queues have to be read: messages may have been sent while nothing was notified.
        self.changed.notify_one();
    }
}

/// Starts to listen, and makes messages visible that a crashed worker had read. To be called before this worker reads any.
/// Without a connection to listen, the queues are polled.
pub async fn start(store: &Store) -> Option<Listener> {
    match store.listen_for_messages().await {
        Ok((listener, recovered)) => {
            tracing::info!(recovered, "listening for messages");
            Some(listener)
        }
        Err(error) => {
            report(&error);
            None
        }
    }
}

/// Listens for ever, and connects again when the connection was lost.
pub async fn listen(
    store: &Store,
    mut listener: Option<Listener>,
    notifications: &Notifications,
    retry_interval: Duration,
    metrics: &Metrics,
) {
    loop {
        if let Some(listener) = listener.take() {
            notifications.set_listening(true, metrics);
            report(&notify_until_lost(listener, notifications).await);
            notifications.set_listening(false, metrics);
        }
        sleep(retry_interval.min(MAX_RETRY_INTERVAL)).await;
        match store.listen_again_for_messages().await {
            Ok(again) => {
                tracing::info!("listening for messages again");
                listener = Some(again);
            }
            Err(error) => report(&error),
        }
    }
}

async fn notify_until_lost(mut listener: Listener, notifications: &Notifications) -> Error {
    loop {
        match listener.next().await {
            Ok(_) => notifications.changed.notify_one(),
            Err(error) => return error,
        }
    }
}

fn report(error: &Error) {
    tracing::warn!(error = error as &dyn std::error::Error, "cannot listen for messages; polling the queues");
}
