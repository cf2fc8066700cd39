//! Work that may hang, because the home or another mount is on a network that does, apart from the one thread that serves
//! everybody. Whoever waits for it waits only so long; the thread it hangs on is given up, and there are only so many.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;

/// A disk that takes longer is not one to work on.
const PATIENCE: Duration = Duration::from_secs(5);
/// Threads that hang at a time. They cost little, but a container has only so many.
const MOST: usize = 64;

/// Where such work is done.
#[derive(Clone, Debug)]
pub struct Apart {
    under_way: Arc<AtomicUsize>,
    pub patience: Duration,
}

impl Default for Apart {
    fn default() -> Self {
        Self { under_way: Arc::default(), patience: PATIENCE }
    }
}

/// Counts a thread for as long as it runs.
struct Place(Arc<AtomicUsize>);

impl Place {
    fn take(all: &Arc<AtomicUsize>) -> io::Result<Self> {
        let place = Self(Arc::clone(all));
        if all.fetch_add(1, Ordering::Relaxed) < MOST { Ok(place) } else { Err(silent()) }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Apart {
    /// An error, if it takes too long; what it does goes on then, and nobody learns of it.
    pub async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
        self.begin(work)?.soon().await.unwrap_or_else(|| Err(silent()))
    }

    /// For those who must learn how it ends, however long it takes.
    pub fn begin<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> io::Result<UnderWay<T>> {
        let place = Place::take(&self.under_way)?;
        let (done, wait) = oneshot::channel();
        thread::Builder::new().name("apart".to_owned()).spawn(move || {
            // Nobody may be waiting any more.
            let _ = done.send(work());
            drop(place);
        })?;
        Ok(UnderWay { wait, patience: self.patience })
    }
}

/// Work that was begun.
#[derive(Debug)]
pub struct UnderWay<T> {
    wait: oneshot::Receiver<T>,
    patience: Duration,
}

impl<T> UnderWay<T> {
    /// Nothing, if it takes too long for work on a disk.
    pub async fn soon(&mut self) -> Option<io::Result<T>> {
        timeout(self.patience, &mut self.wait).await.ok().map(ended)
    }

    pub async fn at_last(self) -> io::Result<T> {
        ended(self.wait.await)
    }
}

fn ended<T>(done: Result<T, oneshot::error::RecvError>) -> io::Result<T> {
    done.map_err(|_| io::Error::other("the thread that did it died"))
}

fn silent() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "its file system does not answer")
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    use std::fs::{File, OpenOptions};

    #[tokio::test]
    async fn work_that_hangs_is_given_up_and_does_not_hold_up_others() {
        let place = tempfile::tempdir().unwrap();
        let pipe = place.path().join("pipe");
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RWXU, 0).unwrap();
        let apart = Apart { patience: Duration::from_millis(50), ..Apart::default() };
        // A pipe is opened when somebody opens its other end too.
        let hang = |path: std::path::PathBuf| apart.run(move || File::open(path));
        let hanging = hang(pipe.clone());
        let quick = apart.run(|| 42);
        let (hanging, quick) = tokio::join!(hanging, quick);
        assert_eq!(hanging.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(quick.unwrap(), 42);
        for _ in 1..MOST {
            assert!(hang(pipe.clone()).await.is_err());
        }
        assert_eq!(apart.run(|| ()).await.unwrap_err().kind(), io::ErrorKind::TimedOut, "there is no place left");
        // Once it answers, all is well.
        let _end = OpenOptions::new().write(true).open(&pipe).unwrap();
        while apart.under_way.load(Ordering::Relaxed) > 0 {
            thread::yield_now();
        }
        assert_eq!(apart.run(|| 43).await.unwrap(), 43);
    }

    #[tokio::test]
    async fn work_that_dies_is_an_error() {
        let apart = Apart::default();
        assert!(apart.run(|| panic!("as in a test")).await.is_err());
        while apart.under_way.load(Ordering::Relaxed) > 0 {
            thread::yield_now();
        }
    }
}
