//! Data that a client has sent on a channel and that is not consumed yet. The connection pushes without waiting, one
//! reader consumes; [`crate::serve::ssh::flow_control`] bounds the size.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use russh::ChannelId;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::sync::{Notify, watch};

/// Chunks are merged up to this size, so that single bytes cost little, and two packets of the usual size are consumed
/// at a time.
const MERGE_LIMIT: usize = 64 << 10;

#[derive(Debug)]
pub struct ReceiveBuffer {
    buffered: Mutex<Buffered>,
    changed: Notify,
    peer: watch::Sender<PeerState>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PeerState {
    Open,
    /// The client closed the channel: it receives nothing more, but its data is still processed.
    Closed,
    /// The connection is lost.
    Aborted,
}

#[derive(Debug, Default)]
struct Buffered {
    chunks: VecDeque<Vec<u8>>,
    bytes: usize,
    eof: bool,
}

impl Default for ReceiveBuffer {
    fn default() -> Self {
        Self { buffered: Mutex::default(), changed: Notify::new(), peer: watch::Sender::new(PeerState::Open) }
    }
}

impl ReceiveBuffer {
    pub fn push(&self, data: &[u8]) {
        let mut buffered = self.buffered();
        if buffered.eof {
            return;
        }
        buffered.bytes += data.len();
        match buffered.chunks.back_mut() {
            Some(last) if last.len() + data.len() <= MERGE_LIMIT => last.extend_from_slice(data),
            _ => buffered.chunks.push_back(data.to_vec()),
        }
        drop(buffered);
        self.changed.notify_one();
    }

    /// Records `SSH_MSG_CHANNEL_EOF`.
    pub fn set_eof(&self) {
        self.buffered().eof = true;
        self.changed.notify_one();
    }

    /// Records `SSH_MSG_CHANNEL_CLOSE`.
    pub fn close(&self) {
        self.set_eof();
        self.peer.send_if_modified(|peer| {
            let was_open = *peer == PeerState::Open;
            *peer = if was_open { PeerState::Closed } else { *peer };
            was_open
        });
    }

    /// Records the loss of the connection and drops the data.
    pub fn abort(&self) {
        *self.buffered() = Buffered { eof: true, ..Buffered::default() };
        self.peer.send_replace(PeerState::Aborted);
        self.changed.notify_one();
    }

    /// Waits until nothing can be sent to the client any more.
    pub async fn closed(&self) {
        // Cannot fail, because `self` holds the sender.
        let _ = self.peer.subscribe().wait_for(|peer| *peer != PeerState::Open).await;
    }

    /// Waits until the connection is lost.
    pub async fn aborted(&self) {
        let _ = self.peer.subscribe().wait_for(|peer| *peer == PeerState::Aborted).await;
    }

    pub fn bytes(&self) -> usize {
        self.buffered().bytes
    }

    /// Returns the next chunk, or nothing at the end. Supports one reader at a time.
    pub async fn next(&self) -> Option<Vec<u8>> {
        loop {
            {
                let mut buffered = self.buffered();
                if let Some(chunk) = buffered.chunks.pop_front() {
                    buffered.bytes -= chunk.len();
                    return Some(chunk);
                }
                if buffered.eof {
                    return None;
                }
            }
            self.changed.notified().await;
        }
    }

    /// Discards all data until the end.
    pub async fn discard(&self) {
        while self.next().await.is_some() {}
    }

    fn buffered(&self) -> MutexGuard<'_, Buffered> {
        self.buffered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The receive buffers of one connection, by channel.
#[derive(Clone, Debug, Default)]
pub struct ReceiveBuffers(Arc<Mutex<Channels>>);

#[derive(Debug, Default)]
struct Channels {
    buffers: HashMap<ChannelId, Arc<ReceiveBuffer>>,
    /// The connection is lost; a buffer opened now is aborted at once.
    closed: bool,
}

impl ReceiveBuffers {
    pub fn open(&self, id: ChannelId) -> Arc<ReceiveBuffer> {
        let mut channels = self.channels();
        if channels.closed {
            let buffer = Arc::<ReceiveBuffer>::default();
            buffer.abort();
            return buffer;
        }
        Arc::clone(channels.buffers.entry(id).or_default())
    }

    pub fn get(&self, id: ChannelId) -> Option<Arc<ReceiveBuffer>> {
        self.channels().buffers.get(&id).cloned()
    }

    pub fn remove(&self, id: ChannelId) {
        if let Some(buffer) = self.channels().buffers.remove(&id) {
            buffer.abort();
        }
    }

    pub fn remove_all(&self) {
        let mut channels = self.channels();
        channels.closed = true;
        for (_, buffer) in channels.buffers.drain() {
            buffer.abort();
        }
    }

    pub fn len(&self) -> usize {
        self.channels().buffers.len()
    }

    pub fn is_empty(&self) -> bool {
        self.channels().buffers.is_empty()
    }

    /// Returns the bytes of the fullest buffer.
    pub fn largest(&self) -> usize {
        self.channels().buffers.values().map(|buffer| buffer.bytes()).max().unwrap_or_default()
    }

    fn channels(&self) -> MutexGuard<'_, Channels> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads a receive buffer as a byte stream.
pub struct Reader {
    input: Arc<ReceiveBuffer>,
    chunk: Vec<u8>,
    consumed: usize,
    next: Option<NextChunk>,
}

type NextChunk = Pin<Box<dyn Future<Output = Option<Vec<u8>>> + Send>>;

impl Reader {
    pub fn new(input: Arc<ReceiveBuffer>) -> Self {
        Self { input, chunk: Vec::new(), consumed: 0, next: None }
    }
}

impl AsyncRead for Reader {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.consumed == self.chunk.len() {
            let input = Arc::clone(&self.input);
            let next = self.next.get_or_insert_with(|| Box::pin(async move { input.next().await }));
            let chunk = ready!(next.as_mut().poll(cx));
            self.next = None;
            self.chunk = chunk.unwrap_or_default();
            self.consumed = 0;
        }
        let count = buf.remaining().min(self.chunk.len() - self.consumed);
        buf.put_slice(&self.chunk[self.consumed..self.consumed + count]);
        self.consumed += count;
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn data_is_returned_in_sequence_until_eof() {
        let buffer = ReceiveBuffer::default();
        buffer.push(b"one ");
        buffer.push(b"two");
        buffer.push(&vec![b'x'; MERGE_LIMIT]);
        assert_eq!(buffer.bytes(), 7 + MERGE_LIMIT);
        buffer.set_eof();
        buffer.push(b"after EOF");
        assert_eq!(buffer.next().await.unwrap(), b"one two");
        assert_eq!(buffer.next().await.unwrap().len(), MERGE_LIMIT);
        assert_eq!(buffer.next().await, None);
        assert_eq!(buffer.bytes(), 0);
    }

    #[tokio::test]
    async fn data_sent_before_close_is_returned() {
        let buffer = ReceiveBuffer::default();
        buffer.push(b"before close");
        buffer.close();
        buffer.closed().await;
        assert_eq!(buffer.next().await.unwrap(), b"before close");
        assert_eq!(buffer.next().await, None);
    }

    #[tokio::test]
    async fn abort_drops_data() {
        let buffer = ReceiveBuffer::default();
        buffer.push(b"dropped");
        buffer.abort();
        buffer.close();
        buffer.aborted().await;
        assert_eq!((buffer.next().await, buffer.bytes()), (None, 0));
    }
}
