//! Who is at work in the server, as `serve` sees it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug, Default)]
pub struct Activity {
    sessions: AtomicU64,
}

/// Counts while it lives.
#[derive(Debug)]
pub struct SessionMark(Arc<Activity>);

impl Activity {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn session(self: &Arc<Self>) -> SessionMark {
        self.sessions.fetch_add(1, Ordering::Relaxed);
        SessionMark(Arc::clone(self))
    }

    pub fn terminal_input(&self) {}

    pub fn terminal_output(&self) {}

    pub fn forwarded(&self, _port: u16, _bytes: u64) {}

    pub fn session_process(&self, _pid: u32) {}
}

impl Drop for SessionMark {
    fn drop(&mut self) {
        self.0.sessions.fetch_sub(1, Ordering::Relaxed);
    }
}
