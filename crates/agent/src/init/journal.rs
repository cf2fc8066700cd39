//! What `init` says, in the container's log.
//!
//! A thread writes, because the log is a pipe and its reader may hang; process 1 must not. What it cannot keep up with is
//! dropped.

use std::io::{self, Write as _};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

const LINES_KEPT: usize = 256;

#[derive(Debug, Default)]
pub struct Journal {
    /// Absent if the container is not even allowed a thread. Then nothing is said.
    writer: Option<(SyncSender<String>, JoinHandle<()>)>,
}

impl Journal {
    pub fn open() -> Self {
        let (sender, lines) = sync_channel::<String>(LINES_KEPT);
        let write = move || {
            for line in lines {
                // The container's log is gone; the state file still tells.
                let _ = writeln!(io::stderr(), "odc-agent: {line}");
            }
        };
        let writer = thread::Builder::new().name("journal".to_owned()).spawn(write);
        Self { writer: writer.ok().map(|thread| (sender, thread)) }
    }

    pub fn say(&self, line: impl Into<String>) {
        if let Some((sender, _)) = &self.writer {
            let _ = sender.try_send(line.into());
        }
    }

    /// Lets the last lines out, but waits no longer than `limit`.
    pub fn close(self, limit: Duration) {
        if let Some((sender, thread)) = self.writer {
            drop(sender);
            finished_within(limit, &[thread]);
        }
    }
}

/// Waits for threads that should be done at any moment, and for those that hang no longer than `limit`.
pub fn finished_within(limit: Duration, threads: &[JoinHandle<()>]) {
    let begun = Instant::now();
    while threads.iter().any(|thread| !thread.is_finished()) && begun.elapsed() < limit {
        thread::sleep(Duration::from_millis(1));
    }
}
