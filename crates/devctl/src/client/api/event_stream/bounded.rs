//! Limits of an event stream: the size of an event, and the time without any data.

use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, Stream, StreamExt as _};

/// An event has a whole server, which has at most 1.5 MiB in the cluster.
const MAX_EVENT_BYTES: usize = 4 << 20;

/// The API sends a comment every 15 seconds.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(50);

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("an event is larger than {MAX_EVENT_BYTES} bytes")]
    TooLarge,
    #[error("no data for {}s", SILENCE_TIMEOUT.as_secs())]
    Silent,
    #[error("the connection was lost")]
    Lost(#[source] kube::Error),
}

/// Ends a stream with an error if an event is too large, or if nothing arrives for too long.
pub fn bounded(
    body: impl Stream<Item = Result<Bytes, kube::Error>> + Send + Unpin + 'static,
) -> impl Stream<Item = Result<Bytes, Error>> + Send + Unpin + 'static {
    stream::unfold((body, Size::default()), |(mut body, mut size)| async move {
        let chunk = match tokio::time::timeout(SILENCE_TIMEOUT, body.next()).await {
            Err(_) => Err(Error::Silent),
            Ok(None) => return None,
            Ok(Some(Err(error))) => Err(Error::Lost(error)),
            Ok(Some(Ok(bytes))) if size.add(&bytes) > MAX_EVENT_BYTES => Err(Error::TooLarge),
            Ok(Some(Ok(bytes))) => Ok(bytes),
        };
        Some((chunk, (body, size)))
    })
    .boxed()
}

/// The bytes since the last empty line, which ends an event.
#[derive(Default)]
struct Size {
    bytes: usize,
    ends_with_newline: bool,
}

impl Size {
    /// Counts a chunk. Returns the size of the largest event in it so far.
    fn add(&mut self, chunk: &[u8]) -> usize {
        let mut largest = self.bytes;
        for byte in chunk {
            let is_newline = *byte == b'\n';
            self.bytes = if is_newline && self.ends_with_newline { 0 } else { self.bytes + 1 };
            if *byte != b'\r' {
                self.ends_with_newline = is_newline;
            }
            largest = largest.max(self.bytes);
        }
        largest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_starts_again_after_an_empty_line() {
        let mut size = Size::default();
        assert_eq!(size.add(b"data: 1\n"), 8);
        assert_eq!(size.add(b"\ndata: 2\n"), 8);
        assert_eq!(size.add(b"\r\n:\n\n"), 9);
        assert_eq!(size.bytes, 0);
    }

    #[tokio::test]
    async fn large_event_ends_the_stream() {
        let chunk = || Ok(Bytes::from(vec![b'x'; MAX_EVENT_BYTES / 2 + 1]));
        let mut stream = bounded(stream::iter([chunk(), chunk()]));
        assert!(stream.next().await.unwrap().is_ok());
        assert!(matches!(stream.next().await, Some(Err(Error::TooLarge))));
    }

    #[tokio::test(start_paused = true)]
    async fn silent_connection_ends_the_stream() {
        let mut stream = bounded(stream::pending());
        assert!(matches!(stream.next().await, Some(Err(Error::Silent))));
    }
}
