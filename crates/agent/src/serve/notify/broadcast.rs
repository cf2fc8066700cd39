//! Messages to all open terminals, as wall(1).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use crate::text_format::sanitize_line;

/// Messages to a terminal that its client has not read. Further ones are dropped.
const MAX_PENDING_MESSAGES: usize = 16;

#[derive(Clone, Debug, Default)]
pub struct TerminalBroadcast(Arc<Mutex<Subscribers>>);

#[derive(Debug, Default)]
struct Subscribers {
    next_id: u64,
    senders: HashMap<u64, Sender<Bytes>>,
}

/// Receives the messages for one terminal until it is dropped.
#[derive(Debug)]
pub struct Subscription {
    broadcast: TerminalBroadcast,
    id: u64,
    messages: Receiver<Bytes>,
}

impl TerminalBroadcast {
    pub fn subscribe(&self) -> Subscription {
        let (sender, messages) = channel(MAX_PENDING_MESSAGES);
        let mut subscribers = self.subscribers();
        let id = subscribers.next_id;
        subscribers.next_id += 1;
        subscribers.senders.insert(id, sender);
        drop(subscribers);
        Subscription { broadcast: self.clone(), id, messages }
    }

    /// Shows a message on every terminal, on its own lines. Does not wait for clients that do not read.
    pub fn send(&self, text: &str) {
        let message = Bytes::from(format_message(text));
        for sender in self.subscribers().senders.values() {
            let _ = sender.try_send(message.clone());
        }
    }

    #[cfg(test)]
    fn subscriber_count(&self) -> usize {
        self.subscribers().senders.len()
    }

    fn subscribers(&self) -> MutexGuard<'_, Subscribers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Subscription {
    /// Waits for the next message.
    pub async fn next(&mut self) -> Bytes {
        match self.messages.recv().await {
            Some(message) => message,
            None => std::future::pending().await,
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.broadcast.subscribers().senders.remove(&self.id);
    }
}

/// Formats a message for terminals in any mode, including raw.
fn format_message(text: &str) -> String {
    let lines: Vec<String> = text.trim_end().lines().map(sanitize_line).collect();
    format!("\r\n{}\r\n", lines.join("\r\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn message_reaches_all_terminals_without_waiting() {
        let broadcast = TerminalBroadcast::default();
        let (mut first, second) = (broadcast.subscribe(), broadcast.subscribe());
        for _ in 0..=MAX_PENDING_MESSAGES {
            broadcast.send("the server stops in 5m\nsave your work\n");
        }
        assert_eq!(first.next().await, "\r\nthe server stops in 5m\r\nsave your work\r\n");
        drop(second);
        assert_eq!(broadcast.subscriber_count(), 1);
    }

    #[test]
    fn message_contains_no_escape_sequences() {
        assert_eq!(format_message("a\x1b[2Jb\r\nc\td"), "\r\na\u{fffd}[2Jb\r\nc\td\r\n");
    }
}
