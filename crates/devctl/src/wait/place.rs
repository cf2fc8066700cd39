//! The place in the queue while one waits for a server.

use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use odc_api::queue::QueueEntry;

use crate::backend::{Backend, Live, Scope};
use crate::failure::Result;

/// The status of a server follows the queue too, more slowly; what is asked for here is only for those who look on.
const RHYTHM: Duration = Duration::from_secs(10);

/// What the queue says of one's own servers, at once and then now and again, for as long as somebody listens.
pub fn follow(backend: &dyn Backend) -> BoxStream<'_, Result<Live<Vec<QueueEntry>>>> {
    stream::unfold(false, move |asked| async move {
        if asked {
            tokio::time::sleep(RHYTHM).await;
        }
        Some((backend.entries(Scope::Own).await, true))
    })
    .boxed()
}
