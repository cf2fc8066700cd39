//! Work that is not caused by messages: removal of old rows, and the length of the queues for metrics.

use std::time::Duration;

use jiff::Timestamp;
use odc_store::Store;
use odc_store::retention::Retention;
use tokio::time::{MissedTickBehavior, interval};

use super::metrics::Metrics;

const RETENTION_INTERVAL: Duration = Duration::from_secs(60 * 60);
/// With the reads of the queues and the removal of old rows, an idle worker has less than three statements a minute.
const DEPTH_INTERVAL: Duration = Duration::from_secs(75);

/// Removes old rows once an hour. Workers that do so at the same time do not disturb each other.
pub async fn enforce_retention(store: &Store, retention: Retention) {
    let mut ticks = interval(RETENTION_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if let Err(error) = store.enforce_retention(retention).await {
            tracing::warn!(error = &error as &dyn std::error::Error, "cannot remove old rows; trying again in an hour");
        }
    }
}

/// Measures the queues about once a minute, if this worker writes the projection. One worker suffices, and the others need
/// their statements to try to replace it.
pub async fn measure_queues(store: &Store, metrics: &Metrics) {
    let mut ticks = interval(DEPTH_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if metrics.projection_writer.get() == 0 {
            metrics.queue_messages.clear();
            metrics.oldest_message_seconds.clear();
            continue;
        }
        match store.queue_depths().await {
            Ok(depths) => metrics.record_depths(&depths, Timestamp::now()),
            Err(error) => tracing::warn!(error = &error as &dyn std::error::Error, "cannot measure the queues"),
        }
    }
}
