//! All open terminals, so that everybody at one can be told something.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// Who has not seen this many is not looking.
const UNREAD: usize = 16;

#[derive(Clone, Debug, Default)]
pub struct Terminals(Arc<Mutex<Open>>);

#[derive(Debug, Default)]
struct Open {
    next: u64,
    all: HashMap<u64, Sender<Bytes>>,
}

/// What is to be shown on one terminal. It is open while this lives.
#[derive(Debug)]
pub struct Words {
    terminals: Terminals,
    number: u64,
    texts: Receiver<Bytes>,
}

impl Terminals {
    pub fn open(&self) -> Words {
        let (sender, texts) = channel(UNREAD);
        let mut open = self.all();
        let number = open.next;
        open.next += 1;
        open.all.insert(number, sender);
        drop(open);
        Words { terminals: self.clone(), number, texts }
    }

    /// Shows a text on every terminal, not in the middle of a line that somebody types but below it. A terminal whose
    /// client does not read is not waited for.
    pub fn tell_all(&self, text: &str) {
        let text = Bytes::from(for_terminals(text));
        for sender in self.all().all.values() {
            let _ = sender.try_send(text.clone());
        }
    }

    pub fn count(&self) -> usize {
        self.all().all.len()
    }

    fn all(&self) -> MutexGuard<'_, Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Words {
    /// The next text. For ever in coming, if there is none.
    pub async fn next(&mut self) -> Bytes {
        match self.texts.recv().await {
            Some(text) => text,
            None => std::future::pending().await,
        }
    }
}

impl Drop for Words {
    fn drop(&mut self) {
        self.terminals.all().all.remove(&self.number);
    }
}

/// On lines of its own, whatever mode the terminal is in; nothing in it can move the cursor.
fn for_terminals(text: &str) -> String {
    let plain = |letter: &char| *letter == '\t' || !letter.is_control();
    let lines: Vec<String> = text.trim_end().lines().map(|line| line.chars().filter(plain).collect()).collect();
    format!("\r\n{}\r\n", lines.join("\r\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn everybody_is_told_and_nobody_is_waited_for() {
        let terminals = Terminals::default();
        let (mut ada, bob) = (terminals.open(), terminals.open());
        for _ in 0..=UNREAD {
            terminals.tell_all("the server stops in 5 minutes\nsave your work\n");
        }
        assert_eq!(ada.next().await, "\r\nthe server stops in 5 minutes\r\nsave your work\r\n");
        drop(bob);
        assert_eq!(terminals.count(), 1);
    }

    #[test]
    fn a_text_cannot_play_with_the_terminal() {
        assert_eq!(for_terminals("a\x1b[2Jb\r\nc\td"), "\r\na[2Jb\r\nc\td\r\n");
    }
}
