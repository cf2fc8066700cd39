//! What a client sent on a channel and nobody has read yet. The connection puts in without waiting, one reader takes out;
//! how much there may be is up to [`crate::serve::flow`].

use std::collections::{HashMap, VecDeque};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use russh::ChannelId;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::sync::{Notify, watch};

/// Small pieces are put together up to this size, so that a client who sends single bytes costs no more than others, and
/// packets of the usual size are handed on two at a time.
const PIECE: usize = 64 << 10;

#[derive(Debug)]
pub struct Inbox {
    kept: Mutex<Kept>,
    changed: Notify,
    client: watch::Sender<Client>,
}

/// Whether somebody is at the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Client {
    There,
    /// Closed the channel: takes nothing any more, but what it had sent counts.
    Closed,
    Gone,
}

#[derive(Debug, Default)]
struct Kept {
    pieces: VecDeque<Vec<u8>>,
    bytes: usize,
    ended: bool,
}

impl Default for Inbox {
    fn default() -> Self {
        Self { kept: Mutex::default(), changed: Notify::new(), client: watch::Sender::new(Client::There) }
    }
}

impl Inbox {
    pub fn put(&self, data: &[u8]) {
        let mut kept = self.kept();
        if kept.ended {
            return;
        }
        kept.bytes += data.len();
        match kept.pieces.back_mut() {
            Some(last) if last.len() + data.len() <= PIECE => last.extend_from_slice(data),
            _ => kept.pieces.push_back(data.to_vec()),
        }
        drop(kept);
        self.changed.notify_one();
    }

    /// The client has sent all.
    pub fn end(&self) {
        self.kept().ended = true;
        self.changed.notify_one();
    }

    /// The client has closed the channel.
    pub fn close(&self) {
        self.end();
        self.client.send_if_modified(|client| {
            let was_there = *client == Client::There;
            *client = if was_there { Client::Closed } else { *client };
            was_there
        });
    }

    /// There is no client any more, so what it sent is of no use.
    pub fn drop_all(&self) {
        *self.kept() = Kept { ended: true, ..Kept::default() };
        self.client.send_replace(Client::Gone);
        self.changed.notify_one();
    }

    /// Waits until nothing can be sent to the client any more.
    pub async fn closed(&self) {
        // We hold the sender, so there is nothing to fail.
        let _ = self.client.subscribe().wait_for(|client| *client != Client::There).await;
    }

    /// Waits until there is nobody for whom anything would be done.
    pub async fn gone(&self) {
        let _ = self.client.subscribe().wait_for(|client| *client == Client::Gone).await;
    }

    pub fn bytes(&self) -> usize {
        self.kept().bytes
    }

    /// The next piece, or nothing at the end. For one reader at a time.
    pub async fn next(&self) -> Option<Vec<u8>> {
        loop {
            {
                let mut kept = self.kept();
                if let Some(piece) = kept.pieces.pop_front() {
                    kept.bytes -= piece.len();
                    return Some(piece);
                }
                if kept.ended {
                    return None;
                }
            }
            self.changed.notified().await;
        }
    }

    /// Lets everything go that comes from now on.
    pub async fn discard(&self) {
        while self.next().await.is_some() {}
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The channels of one connection.
#[derive(Clone, Debug, Default)]
pub struct Inboxes(Arc<Mutex<Channels>>);

#[derive(Debug, Default)]
struct Channels {
    inboxes: HashMap<ChannelId, Arc<Inbox>>,
    /// The connection is gone: whatever opens now ends at once.
    closed: bool,
}

impl Inboxes {
    pub fn open(&self, id: ChannelId) -> Arc<Inbox> {
        let mut all = self.all();
        if all.closed {
            let inbox = Arc::<Inbox>::default();
            inbox.drop_all();
            return inbox;
        }
        Arc::clone(all.inboxes.entry(id).or_default())
    }

    pub fn get(&self, id: ChannelId) -> Option<Arc<Inbox>> {
        self.all().inboxes.get(&id).cloned()
    }

    /// Nobody reads it any more.
    pub fn remove(&self, id: ChannelId) {
        if let Some(inbox) = self.all().inboxes.remove(&id) {
            inbox.drop_all();
        }
    }

    pub fn remove_all(&self) {
        let mut all = self.all();
        all.closed = true;
        for (_, inbox) in all.inboxes.drain() {
            inbox.drop_all();
        }
    }

    pub fn len(&self) -> usize {
        self.all().inboxes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.all().inboxes.is_empty()
    }

    /// What is kept for the channel that is read least.
    pub fn worst(&self) -> usize {
        self.all().inboxes.values().map(|inbox| inbox.bytes()).max().unwrap_or_default()
    }

    fn all(&self) -> MutexGuard<'_, Channels> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An inbox as a stream of bytes.
pub struct Reader {
    inbox: Arc<Inbox>,
    piece: Vec<u8>,
    taken: usize,
    next: Option<Next>,
}

type Next = Pin<Box<dyn Future<Output = Option<Vec<u8>>> + Send>>;

impl Reader {
    pub fn new(inbox: Arc<Inbox>) -> Self {
        Self { inbox, piece: Vec::new(), taken: 0, next: None }
    }
}

impl AsyncRead for Reader {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.taken == self.piece.len() {
            let inbox = Arc::clone(&self.inbox);
            let next = self.next.get_or_insert_with(|| Box::pin(async move { inbox.next().await }));
            let piece = ready!(next.as_mut().poll(cx));
            self.next = None;
            self.piece = piece.unwrap_or_default();
            self.taken = 0;
        }
        let count = buf.remaining().min(self.piece.len() - self.taken);
        buf.put_slice(&self.piece[self.taken..self.taken + count]);
        self.taken += count;
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_was_put_in_comes_out_in_order_and_then_the_end() {
        let inbox = Inbox::default();
        inbox.put(b"one ");
        inbox.put(b"two");
        inbox.put(&vec![b'x'; PIECE]);
        assert_eq!(inbox.bytes(), 7 + PIECE);
        inbox.end();
        inbox.put(b"too late");
        assert_eq!(inbox.next().await.unwrap(), b"one two");
        assert_eq!(inbox.next().await.unwrap().len(), PIECE);
        assert_eq!(inbox.next().await, None);
        assert_eq!(inbox.bytes(), 0);
    }

    #[tokio::test]
    async fn what_was_sent_before_the_channel_was_closed_counts() {
        let inbox = Inbox::default();
        inbox.put(b"last words");
        inbox.close();
        inbox.closed().await;
        assert_eq!(inbox.next().await.unwrap(), b"last words");
        assert_eq!(inbox.next().await, None);
    }

    #[tokio::test]
    async fn who_is_gone_has_nothing_to_say() {
        let inbox = Inbox::default();
        inbox.put(b"never read");
        inbox.drop_all();
        inbox.close();
        inbox.gone().await;
        assert_eq!((inbox.next().await, inbox.bytes()), (None, 0));
    }
}
