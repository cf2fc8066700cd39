//! Polls the queue position while waiting for a server.

use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use odc_api::queue::QueueEntry;

use crate::client::{Client, QueueResult, Scope};
use crate::error::Result;

/// The status of a server has the position too, but is updated less often.
const POLL_INTERVAL: Duration = Duration::from_secs(10);

/// Returns the queue entries of the user's servers, first immediately and then periodically.
pub fn poll_queue(client: &dyn Client) -> BoxStream<'_, Result<QueueResult<Vec<QueueEntry>>>> {
    stream::unfold(true, move |first| async move {
        if !first {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        Some((client.queue_entries(Scope::Own).await, false))
    })
    .boxed()
}
