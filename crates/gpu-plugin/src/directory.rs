//! Waits for changes in one directory, whether or not it exists yet.
//!
//! Nothing is said about what changed: the caller looks at everything again, so a lost or merged
//! event cannot mislead it. The use is always [`Directory::arm`], look, [`Directory::changed`]:
//! what happens after arming wakes the wait, what happened before is seen by looking.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::io::Errno;
use tokio::io::unix::AsyncFd;

/// Entries that come, go or change owner or mode, and the same for the directory itself.
const CHANGES: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVE)
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::ONLYDIR);

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("starting inotify; if too many files are open, raise fs.inotify.max_user_instances")]
    Start(#[source] io::Error),
    #[error("watching {}", path.display())]
    Watch { path: PathBuf, source: io::Error },
    #[error("waiting for changes in {}", path.display())]
    Wait { path: PathBuf, source: io::Error },
    #[error("looking at {}", path.display())]
    Look { path: PathBuf, source: io::Error },
}

#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    inotify: AsyncFd<OwnedFd>,
    /// The one live watch: on the directory, or on its nearest ancestor while it does not exist.
    watch: Option<i32>,
}

impl Directory {
    /// `path` is absolute, so that there always is an ancestor to watch.
    pub fn new(path: PathBuf) -> Result<Self, Error> {
        let inotify =
            inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).map_err(|err| Error::Start(err.into()))?;
        #[expect(deprecated, reason = "sound for a descriptor we own; the replacement is unsafe to call")]
        let inotify = AsyncFd::new(inotify).map_err(Error::Start)?;
        Ok(Self { path, inotify, watch: None })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes sure that the next change is noticed, and tells whether the directory exists.
    ///
    /// Called before every look, because the directory may have been removed or made since.
    pub fn arm(&mut self) -> Result<bool, Error> {
        loop {
            let (levels, watch) = self.watch_nearest()?;
            if let Some(old) = self.watch.replace(watch).filter(|&old| old != watch) {
                // The kernel drops the watch of a removed directory by itself, and then there is
                // none to remove.
                let _ = inotify::remove_watch(&self.inotify, old);
            }
            let Some(missing) = levels.checked_sub(1).and_then(|level| self.path.ancestors().nth(level)) else {
                return Ok(true);
            };
            // It may have been made after we found it missing and before its parent was watched.
            if !missing.exists() {
                return Ok(false);
            }
        }
    }

    /// Resolves once something changed since [`Self::arm`], possibly nothing of interest.
    pub async fn changed(&self) -> Result<(), Error> {
        let failed = |source| Error::Wait { path: self.path.clone(), source };
        // Larger than the largest event; events that do not fit wake the next call.
        let mut events = [0_u8; 4096];
        loop {
            let mut ready = self.inotify.readable().await.map_err(failed)?;
            if let Ok(read) = ready.try_io(|inotify| Ok(rustix::io::read(inotify, &mut events)?)) {
                return read.map(drop).map_err(failed);
            }
        }
    }

    /// Watches the first of the directory and its ancestors that exists: how many levels up it is,
    /// and the watch.
    fn watch_nearest(&self) -> Result<(usize, i32), Error> {
        for (levels, path) in self.path.ancestors().enumerate() {
            match inotify::add_watch(&self.inotify, path, CHANGES) {
                Ok(watch) => return Ok((levels, watch)),
                Err(Errno::NOENT) => {}
                Err(err) => {
                    return Err(Error::Watch { path: path.to_owned(), source: err.into() });
                }
            }
        }
        Err(Error::Watch { path: self.path.clone(), source: Errno::NOENT.into() })
    }
}
