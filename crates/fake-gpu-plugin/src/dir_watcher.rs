//! Watches a directory with inotify, whether or not it exists yet.
//!
//! Events carry no details: the caller reads the whole state again, so lost or merged events do no
//! harm. Call [`DirWatcher::arm`], read the state, then await [`DirWatcher::changed`]: it resolves
//! for every change after `arm`.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::io::Errno;
use tokio::io::unix::AsyncFd;

/// Creation, removal and attribute changes of entries and of the directory itself.
const WATCH_FLAGS: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVE)
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::ONLYDIR);

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("initializing inotify; if the limit is exceeded, raise fs.inotify.max_user_instances")]
    Init(#[source] io::Error),
    #[error("watching {}", path.display())]
    Watch { path: PathBuf, source: io::Error },
    #[error("waiting for changes in {}", path.display())]
    Wait { path: PathBuf, source: io::Error },
    #[error("reading the metadata of {}", path.display())]
    Metadata { path: PathBuf, source: io::Error },
}

#[derive(Debug)]
pub struct DirWatcher {
    path: PathBuf,
    inotify: AsyncFd<OwnedFd>,
    /// Descriptor of the watch on the directory, or on its nearest ancestor while it does not exist.
    watch: Option<i32>,
}

impl DirWatcher {
    /// `path` must be absolute, so that an ancestor to watch always exists.
    pub fn new(path: PathBuf) -> Result<Self, Error> {
        let inotify =
            inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).map_err(|err| Error::Init(err.into()))?;
        #[expect(deprecated, reason = "sound for an owned descriptor; the replacement is unsafe")]
        let inotify = AsyncFd::new(inotify).map_err(Error::Init)?;
        Ok(Self { path, inotify, watch: None })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Watches for the next change and reports whether the directory exists.
    ///
    /// Must be called before every read of the state, because the directory may have been removed or
    /// created since.
    pub fn arm(&mut self) -> Result<bool, Error> {
        loop {
            let (levels, watch) = self.watch_nearest()?;
            if let Some(old) = self.watch.replace(watch).filter(|&old| old != watch) {
                // Fails if the kernel has already dropped the watch of a removed directory.
                let _ = inotify::remove_watch(&self.inotify, old);
            }
            let Some(missing) = levels.checked_sub(1).and_then(|level| self.path.ancestors().nth(level)) else {
                return Ok(true);
            };
            // It may have been created before its parent was watched.
            if !missing.exists() {
                return Ok(false);
            }
        }
    }

    /// Resolves when something has changed since [`Self::arm`]. May be spurious.
    pub async fn changed(&self) -> Result<(), Error> {
        let wait_error = |source| Error::Wait { path: self.path.clone(), source };
        // Larger than any event. Remaining events wake the next call.
        let mut events = [0_u8; 4096];
        loop {
            let mut ready = self.inotify.readable().await.map_err(wait_error)?;
            if let Ok(read) = ready.try_io(|inotify| Ok(rustix::io::read(inotify, &mut events)?)) {
                return read.map(drop).map_err(wait_error);
            }
        }
    }

    /// Watches the nearest existing ancestor and returns how many levels up it is, and the watch.
    fn watch_nearest(&self) -> Result<(usize, i32), Error> {
        for (levels, path) in self.path.ancestors().enumerate() {
            match inotify::add_watch(&self.inotify, path, WATCH_FLAGS) {
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
