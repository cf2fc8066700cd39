//! Entries under construction and deleted ones, in a directory of this process.
//!
//! The process holds a lock on its directory. A driver that starts deletes the directories that are not locked: those of
//! processes that were killed.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use tokio::sync::Mutex;

use super::layout::Layout;
use super::{Error, blocking};
use crate::btrfs::{self, SubvolumeId};
use crate::mountinfo::MountTable;
use crate::volume::Timestamp;

const TRASH_PREFIX: &str = "trash-";

#[derive(Debug)]
pub struct Staging {
    directory: PathBuf,
    /// Holds the lock on the directory.
    _lock: File,
    next_entry: AtomicU64,
    /// Held while the trash is emptied.
    emptying: Mutex<()>,
}

impl Staging {
    /// Creates the directory of this process and deletes those of processes that have ended. The caller holds the lock
    /// of the pool, so that no other process is between creating and locking its directory.
    pub async fn open(layout: &Layout) -> Result<Self, Error> {
        let tmp = layout.tmp();
        let (staging, abandoned) = blocking(move || {
            let staging = Self::create(&tmp)?;
            let abandoned = staging.list_abandoned(&tmp)?;
            Ok((staging, abandoned))
        })
        .await?;
        for (directory, _lock) in abandoned {
            delete_directory(&directory).await?;
        }
        Ok(staging)
    }

    fn create(tmp: &Path) -> Result<Self, Error> {
        let directory = tmp.join(format!("{}-{}", std::process::id(), Timestamp::now()));
        fs::create_dir(&directory).map_err(Error::io("creating", &directory))?;
        let lock = File::open(&directory).map_err(Error::io("opening", &directory))?;
        lock.lock().map_err(Error::io("locking", &directory))?;
        Ok(Self { directory, _lock: lock, next_entry: AtomicU64::new(0), emptying: Mutex::new(()) })
    }

    /// Returns the directories of processes that have ended, locked.
    fn list_abandoned(&self, tmp: &Path) -> Result<Vec<(PathBuf, File)>, Error> {
        let mut abandoned = Vec::new();
        for entry in fs::read_dir(tmp).map_err(Error::io("listing", tmp))? {
            let path = entry.map_err(Error::io("listing", tmp))?.path();
            if path == self.directory {
                continue;
            }
            let lock = File::open(&path).map_err(Error::io("opening", &path))?;
            match lock.try_lock() {
                Ok(()) => abandoned.push((path, lock)),
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => return Err(Error::io("locking", &path)(error)),
            }
        }
        Ok(abandoned)
    }

    /// Creates an empty entry.
    pub async fn create_entry(&self) -> Result<PathBuf, Error> {
        let path = self.next_path("new-");
        blocking(move || fs::create_dir(&path).map_err(Error::io("creating", &path)).map(|()| path)).await
    }

    /// Renames a complete entry to its final path. Returns `false` if that exists.
    pub async fn publish(&self, entry: &Path, target: &Path) -> Result<bool, Error> {
        let (entry, target) = (entry.to_owned(), target.to_owned());
        blocking(move || match renameat_with(CWD, &entry, CWD, &target, RenameFlags::NOREPLACE) {
            Ok(()) => sync_parent(&target).map(|()| true),
            Err(Errno::EXIST) => Ok(false),
            Err(error) => Err(Error::io("creating", &target)(error)),
        })
        .await
    }

    /// Makes an entry disappear, at once and completely. Returns `false` if it does not exist.
    pub async fn discard(&self, entry: &Path) -> Result<bool, Error> {
        let (entry, trash) = (entry.to_owned(), self.next_path(TRASH_PREFIX));
        let existed = blocking(move || match fs::rename(&entry, &trash) {
            Ok(()) => sync_parent(&entry).map(|()| true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(Error::io("deleting", &entry)(error)),
        })
        .await?;
        if existed {
            // The entry is gone in any case; maintenance frees the space later.
            if let Err(error) = self.empty_trash().await {
                tracing::warn!(error = &error as &dyn std::error::Error, "deleted entry still uses space; retrying");
            }
        }
        Ok(existed)
    }

    /// Deletes the subvolumes of discarded entries.
    pub async fn empty_trash(&self) -> Result<(), Error> {
        let _emptying = self.emptying.lock().await;
        for path in list_directory(&self.directory).await? {
            let name = path.file_name().and_then(|name| name.to_str());
            if name.is_some_and(|name| name.starts_with(TRASH_PREFIX)) {
                delete_entry(&path).await?;
            }
        }
        Ok(())
    }

    fn next_path(&self, prefix: &str) -> PathBuf {
        self.directory.join(format!("{prefix}{}", self.next_entry.fetch_add(1, Ordering::Relaxed)))
    }
}

async fn delete_directory(directory: &Path) -> Result<(), Error> {
    for entry in list_directory(directory).await? {
        delete_entry(&entry).await?;
    }
    remove_directory(directory).await
}

/// Deletes an entry, complete or not.
async fn delete_entry(entry: &Path) -> Result<(), Error> {
    let data = Layout::data(entry);
    if data.try_exists().map_err(Error::io("inspecting", &data))? {
        match btrfs::delete_subvolume(&data).await {
            Err(error) if error.is_not_empty() => {
                delete_nested(&data).await?;
                btrfs::delete_subvolume(&data).await
            }
            other => other,
        }
        .map_err(Error::btrfs("deleting", &data))?;
    }
    remove_directory(entry).await
}

/// Deletes the subvolumes that a user created inside a volume, which is in `tmp`.
async fn delete_nested(data: &Path) -> Result<(), Error> {
    let mounts = blocking(|| MountTable::read().map_err(Error::io("reading", Path::new("mountinfo")))).await?;
    let root = mounts.origin(data).map(|(_, root)| root.to_string_lossy().trim_matches('/').to_owned());
    let prefix = format!("{}/", root.unwrap_or_default());
    let failed = || Error::btrfs("deleting subvolumes inside", data);
    let mut nested: Vec<(usize, SubvolumeId)> = Vec::new();
    for subvolume in btrfs::list_subvolumes(data).await.map_err(failed())? {
        // Verifies the id: see `list_subvolumes`.
        if let Some(path) = btrfs::resolve(subvolume.id, data).await.map_err(failed())?
            && path.starts_with(&prefix)
        {
            nested.push((path.matches('/').count(), subvolume.id));
        }
    }
    // The innermost first.
    nested.sort_by(|one, other| other.cmp(one));
    nested.dedup();
    // A subvolume at its limit does not allow the deletion of those inside it.
    let own = btrfs::subvolume_id(data).await.map_err(failed())?;
    for id in nested.iter().map(|(_, id)| *id).chain([own]) {
        btrfs::limit_by_id(id, None, data).await.map_err(failed())?;
    }
    for (_, id) in nested {
        btrfs::delete_subvolume_by_id(id, data).await.map_err(failed())?;
    }
    Ok(())
}

async fn list_directory(directory: &Path) -> Result<Vec<PathBuf>, Error> {
    let directory = directory.to_owned();
    blocking(move || {
        let entries = fs::read_dir(&directory).map_err(Error::io("listing", &directory))?;
        entries.map(|entry| entry.map(|entry| entry.path()).map_err(Error::io("listing", &directory))).collect()
    })
    .await
}

async fn remove_directory(path: &Path) -> Result<(), Error> {
    let path = path.to_owned();
    blocking(move || match fs::remove_dir(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::io("removing", &path)(error)),
        _ => Ok(()),
    })
    .await
}

/// Makes a rename durable.
fn sync_parent(path: &Path) -> Result<(), Error> {
    let Some(parent) = path.parent() else { return Ok(()) };
    File::open(parent).and_then(|directory| directory.sync_all()).map_err(Error::io("syncing", parent))
}
