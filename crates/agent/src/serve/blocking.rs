//! Threads for file system calls that may hang, because the home or another mount is on a network file system. Callers
//! wait for a limited time; a thread that hangs is abandoned, and the number of threads is limited.
//!
//! `tokio::task::spawn_blocking` is not used: its pool is shared, so calls that hang would delay those that do not.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;

/// Time after which a file system call counts as hung.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// Threads that may hang at the same time; the container has a limit on tasks.
const MAX_THREADS: usize = 64;

#[derive(Clone, Debug)]
pub struct BlockingPool {
    running: Arc<AtomicUsize>,
    pub timeout: Duration,
}

impl Default for BlockingPool {
    fn default() -> Self {
        Self { running: Arc::default(), timeout: CALL_TIMEOUT }
    }
}

/// Counts a thread while it runs.
struct Permit(Arc<AtomicUsize>);

impl Permit {
    fn acquire(running: &Arc<AtomicUsize>) -> io::Result<Self> {
        let permit = Self(Arc::clone(running));
        if running.fetch_add(1, Ordering::Relaxed) < MAX_THREADS { Ok(permit) } else { Err(timed_out()) }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl BlockingPool {
    /// Runs a function on its own thread. After the timeout this returns an error, and the thread continues detached.
    pub async fn run<T: Send + 'static>(&self, function: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
        self.spawn(function)?.wait_timeout().await.unwrap_or_else(|| Err(timed_out()))
    }

    /// Runs a function whose result is needed however long it takes.
    pub fn spawn<T: Send + 'static>(
        &self,
        function: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<BlockingTask<T>> {
        let permit = Permit::acquire(&self.running)?;
        let (sender, result) = oneshot::channel();
        thread::Builder::new().name("blocking".to_owned()).spawn(move || {
            // The receiver is gone after a timeout.
            let _ = sender.send(function());
            drop(permit);
        })?;
        Ok(BlockingTask { result, timeout: self.timeout })
    }
}

#[derive(Debug)]
pub struct BlockingTask<T> {
    result: oneshot::Receiver<T>,
    timeout: Duration,
}

impl<T> BlockingTask<T> {
    /// Returns the result, or nothing if it is not available before the timeout.
    pub async fn wait_timeout(&mut self) -> Option<io::Result<T>> {
        timeout(self.timeout, &mut self.result).await.ok().map(result_or_panic)
    }

    pub async fn join(self) -> io::Result<T> {
        result_or_panic(self.result.await)
    }
}

fn result_or_panic<T>(result: Result<T, oneshot::error::RecvError>) -> io::Result<T> {
    result.map_err(|_| io::Error::other("the thread panicked"))
}

fn timed_out() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the file system is not responding")
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    use std::fs::{File, OpenOptions};

    #[tokio::test]
    async fn hanging_call_times_out_and_does_not_delay_others() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("fifo");
        mknodat(CWD, &fifo, FileType::Fifo, Mode::RWXU, 0).unwrap();
        let blocking = BlockingPool { timeout: Duration::from_millis(50), ..BlockingPool::default() };
        // Opening a FIFO blocks until its other end is opened.
        let hang = |path: std::path::PathBuf| blocking.run(move || File::open(path));
        // A call that returns may still be scheduled late.
        let patient = BlockingPool { timeout: Duration::from_secs(20), ..blocking.clone() };
        let (hanging, quick) = tokio::join!(hang(fifo.clone()), patient.run(|| 42));
        assert_eq!(hanging.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(quick.unwrap(), 42);
        for _ in 1..MAX_THREADS {
            assert!(hang(fifo.clone()).await.is_err());
        }
        assert_eq!(blocking.run(|| ()).await.unwrap_err().kind(), io::ErrorKind::TimedOut, "no thread is left");
        let _writer = OpenOptions::new().write(true).open(&fifo).unwrap();
        while blocking.running.load(Ordering::Relaxed) > 0 {
            thread::yield_now();
        }
        assert_eq!(patient.run(|| 43).await.unwrap(), 43);
    }

    #[tokio::test]
    async fn panic_is_an_error() {
        let blocking = BlockingPool::default();
        assert!(blocking.run(|| panic!("expected by the test")).await.is_err());
        while blocking.running.load(Ordering::Relaxed) > 0 {
            thread::yield_now();
        }
    }
}
