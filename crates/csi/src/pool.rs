//! The pool: a directory on btrfs that contains all volumes and snapshots, and nothing else remembers them.
//!
//! ```text
//! POOL/volumes/NAME/data     subvolume of a volume
//! POOL/snapshots/NAME/data   read-only subvolume of a snapshot
//! POOL/tmp/PROCESS/          entries under construction, and deleted ones
//! POOL/lock                  held while a driver starts
//! ```
//!
//! The directory around each subvolume carries its record as extended attributes ([`record`]). An entry is complete
//! before it is renamed from `tmp` to its name, and is renamed back before it is deleted, so a name is either absent or
//! whole. Requests are validated and answered elsewhere; callers ensure that there is one operation per name.

mod error;
mod file;
mod layout;
mod maintenance;
mod open;
mod record;
mod snapshot;
mod space;
mod staging;
mod volume;

use std::path::{Path, PathBuf};

pub use error::Error;
pub use file::{MIN_POOL_SIZE, PoolFileConfig};
pub use open::{Error as OpenError, PoolConfig};
pub use snapshot::MAX_SNAPSHOTS_PER_VOLUME;

use crate::mountinfo::MountTable;
use crate::name::Name;
use file::PoolFile;
use layout::Layout;
use maintenance::CheckedSubvolumes;
use staging::Staging;

/// An open pool. Several processes can have the same pool open.
#[derive(Debug)]
pub struct Pool {
    layout: Layout,
    staging: Staging,
    /// Present if the driver manages the file system of the pool.
    file: Option<PoolFile>,
    checked_subvolumes: CheckedSubvolumes,
}

impl Pool {
    pub fn root(&self) -> &Path {
        self.layout.root()
    }

    /// Returns the directory that is mounted into pods.
    pub fn volume_data(&self, name: &Name) -> PathBuf {
        Layout::data(&self.layout.volume(name))
    }

    /// Reports whether the pool is still mounted.
    pub async fn is_mounted(&self) -> Result<bool, Error> {
        let (root, volumes) = (self.layout.root().to_owned(), self.layout.volumes().to_owned());
        blocking(move || Ok(open::is_btrfs(&root).map_err(Error::io("inspecting", &root))? && volumes.is_dir())).await
    }

    /// Returns the mounts of this node.
    pub async fn mounts(&self) -> Result<MountTable, Error> {
        blocking(|| MountTable::read().map_err(Error::io("reading", Path::new("/proc/self/mountinfo")))).await
    }
}

/// Runs file operations, which can wait for a commit of the file system, on the blocking pool.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, Error> + Send + 'static) -> Result<T, Error> {
    tokio::task::spawn_blocking(work).await.map_err(Error::Task)?
}
