//! The agent's log lines, on stderr.
//!
//! A separate thread writes, because stderr is a pipe whose reader may hang, and neither PID 1 nor the SSH server
//! may block on it. Lines that do not fit into the queue are dropped.

use std::io::{self, Write as _};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

const QUEUE_LINES: usize = 256;

#[derive(Debug, Default)]
pub struct Logger {
    /// Absent if the thread could not be started; then nothing is logged.
    writer: Option<(SyncSender<String>, JoinHandle<()>)>,
}

impl Logger {
    pub fn new() -> Self {
        let (sender, lines) = sync_channel::<String>(QUEUE_LINES);
        let write = move || {
            for line in lines {
                // Nothing can be done if stderr is closed.
                let _ = writeln!(io::stderr(), "odc-agent: {line}");
            }
        };
        let writer = thread::Builder::new().name("log".to_owned()).spawn(write);
        Self { writer: writer.ok().map(|thread| (sender, thread)) }
    }

    pub fn log(&self, line: impl Into<String>) {
        if let Some((sender, _)) = &self.writer {
            let _ = sender.try_send(line.into());
        }
    }

    /// Writes the queued lines, waiting at most `timeout`.
    pub fn close(self, timeout: Duration) {
        if let Some((sender, thread)) = self.writer {
            drop(sender);
            join_timeout(&[thread], timeout);
        }
    }
}

/// Waits until all threads have finished, but at most `timeout`.
pub fn join_timeout(threads: &[JoinHandle<()>], timeout: Duration) {
    let started = Instant::now();
    while threads.iter().any(|thread| !thread.is_finished()) && started.elapsed() < timeout {
        thread::sleep(Duration::from_millis(1));
    }
}
