//! A pool in a file: a sparse file with a btrfs file system, mounted through a loop device, which grows up to a maximum.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::statvfs;
use tokio::sync::Mutex;

use super::{Error, blocking};
use crate::mountinfo::MountTable;
use crate::{btrfs, command};

/// mkfs.btrfs needs 109 MiB, and smaller pools would be full of metadata.
pub const MIN_POOL_SIZE: u64 = 256 << 20;
/// The file grows in multiples of this size.
const GROWTH_STEP: u64 = 256 << 20;
/// Share of a grown file that becomes metadata.
const METADATA_PERCENT: u64 = 5;
/// Position of the magic number in a btrfs superblock.
const MAGIC_OFFSET: u64 = 0x1_0040;
const MAGIC: &[u8] = b"_BHRfS_M";

/// A pool file as configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolFileConfig {
    pub path: PathBuf,
    pub size: u64,
    pub max_size: u64,
}

/// The mounted file of a pool.
#[derive(Debug)]
pub struct PoolFile {
    config: PoolFileConfig,
    /// Held while the file grows.
    growing: Mutex<()>,
}

impl PoolFile {
    /// Creates the file if it is new, mounts it at the directory unless it is mounted, and enlarges it to the configured
    /// size.
    pub async fn mount(config: PoolFileConfig, directory: &Path) -> Result<Self, Error> {
        let file = Self { config, growing: Mutex::new(()) };
        let path = file.config.path.clone();
        let exists = path.try_exists().map_err(Error::io("inspecting", &path))?;
        if !exists {
            file.create().await?;
        } else if !has_magic(&path).map_err(Error::io("reading", &path))? {
            // Formatting it could destroy data.
            let source = io::Error::other("the file exists and contains no btrfs file system");
            return Err(Error::io("opening", &path)(source));
        }
        fs::create_dir_all(directory).map_err(Error::io("creating", directory))?;
        file.mount_at(directory).await?;
        let size = fs::metadata(&path).map_err(Error::io("inspecting", &path))?.len();
        if size < file.config.size {
            file.resize(directory, file.config.size).await?;
        }
        Ok(file)
    }

    /// Mounts the file unless it is mounted. Drivers on nodes that share the pool take turns, because each would attach a loop
    /// device of its own otherwise.
    async fn mount_at(&self, directory: &Path) -> Result<(), Error> {
        let path = self.config.path.clone();
        let locked = path.clone();
        let _lock = blocking(move || {
            let file = File::open(&locked).map_err(Error::io("opening", &locked))?;
            file.lock().map_err(Error::io("locking", &locked))?;
            Ok(file)
        })
        .await?;
        let mounts = MountTable::read().map_err(Error::io("reading mounts of", directory))?;
        if mounts.at(directory).is_some_and(|mount| mount.fs_type == "btrfs") {
            return Ok(());
        }
        // Reuses the loop device if the file has one, and frees it on unmount.
        let options = ["-t", "btrfs", "-o", "loop,noatime"].map(std::ffi::OsStr::new);
        let arguments = [&options[..], &[path.as_os_str(), directory.as_os_str()]].concat();
        command::run("mount", &arguments).await.map_err(Error::command("mounting", &path))?;
        Ok(())
    }

    /// Formats a file under a temporary name, so that a file with the final name is complete.
    async fn create(&self) -> Result<(), Error> {
        let PoolFileConfig { path, size, .. } = self.config.clone();
        let new = path.with_added_extension("new");
        let (created, length) = (new.clone(), size);
        let lock = blocking(move || {
            let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&created);
            let file = file.map_err(Error::io("creating", &created))?;
            file.lock().map_err(Error::io("locking", &created))?;
            Ok(file)
        })
        .await?;
        if path.try_exists().map_err(Error::io("inspecting", &path))? {
            // Another process created it, and the lock is on the file with its final name.
            return Ok(());
        }
        lock.set_len(0).and_then(|()| lock.set_len(length)).map_err(Error::io("creating", &new))?;
        tracing::info!("formatting {}", path.display());
        command::run("mkfs.btrfs", &["-q".as_ref(), new.as_os_str()])
            .await
            .map_err(Error::command("formatting", &new))?;
        fs::rename(&new, &path).map_err(Error::io("creating", &path))
    }

    /// Returns the bytes that can still be written, if `free` are free now.
    pub async fn available(&self, free: u64) -> Result<u64, Error> {
        let (size, backing) = self.measure().await?;
        Ok(free.saturating_add(self.config.max_size.saturating_sub(size)).min(backing))
    }

    /// Grows the file so that `wanted` bytes are free instead of `free`, as far as possible.
    pub async fn grow(&self, directory: &Path, free: u64, wanted: u64) -> Result<(), Error> {
        let _growing = self.growing.lock().await;
        let (size, backing) = self.measure().await?;
        match plan_growth(size, self.config.max_size, wanted.saturating_sub(free), backing) {
            Some(size) => self.resize(directory, size).await,
            None => Ok(()),
        }
    }

    async fn resize(&self, directory: &Path, size: u64) -> Result<(), Error> {
        let path = self.config.path.clone();
        tracing::info!("growing {} to {} MiB", path.display(), size >> 20);
        let mounts = MountTable::read().map_err(Error::io("reading mounts of", directory))?;
        let device = mounts.at(directory).map(|mount| mount.source.clone());
        let device = device.ok_or_else(|| Error::io("growing", &path)(io::Error::from(io::ErrorKind::NotFound)))?;
        blocking(move || {
            let file = OpenOptions::new().write(true).open(&path).map_err(Error::io("opening", &path))?;
            // Another process with the same pool must not shrink it.
            file.lock().map_err(Error::io("locking", &path))?;
            let current = file.metadata().map_err(Error::io("inspecting", &path))?.len();
            file.set_len(size.max(current)).map_err(Error::io("growing", &path))
        })
        .await?;
        let arguments = ["-c".as_ref(), device.as_os_str()];
        command::run("losetup", &arguments).await.map_err(Error::command("growing", &device))?;
        btrfs::resize_to_device(directory).await.map_err(Error::btrfs("growing", directory))
    }

    /// Returns the size of the file and the free space of the file system that contains it.
    async fn measure(&self) -> Result<(u64, u64), Error> {
        let path = self.config.path.clone();
        blocking(move || {
            let size = fs::metadata(&path).map_err(Error::io("inspecting", &path))?.len();
            let status = statvfs(&path).map_err(Error::io("reading the free space around", &path))?;
            Ok((size, status.f_bavail.saturating_mul(status.f_frsize)))
        })
        .await
    }
}

/// Returns the new size of a file that lacks `missing` bytes, within the maximum and the free space around it.
fn plan_growth(size: u64, max_size: u64, missing: u64, backing_free: u64) -> Option<u64> {
    let needed = missing.saturating_add(missing / 100 * METADATA_PERCENT).checked_next_multiple_of(GROWTH_STEP)?;
    let target = size.saturating_add(needed).min(max_size);
    let growth = target.saturating_sub(size);
    (missing > 0 && growth > 0 && growth <= backing_free).then_some(target)
}

fn has_magic(path: &Path) -> io::Result<bool> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(MAGIC_OFFSET))?;
    let mut found = Vec::new();
    file.take(MAGIC.len() as u64).read_to_end(&mut found)?;
    Ok(found == MAGIC)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn growth_covers_the_missing_space_in_steps() {
        assert_eq!(plan_growth(1024 * MIB, 9999 * MIB, MIB, u64::MAX), Some(1280 * MIB));
        assert_eq!(plan_growth(1024 * MIB, 9999 * MIB, 256 * MIB, u64::MAX), Some(1536 * MIB));
        assert_eq!(plan_growth(1024 * MIB, 9999 * MIB, 0, u64::MAX), None);
    }

    #[test]
    fn growth_ends_at_the_maximum() {
        assert_eq!(plan_growth(1024 * MIB, 1100 * MIB, 256 * MIB, u64::MAX), Some(1100 * MIB));
        assert_eq!(plan_growth(1024 * MIB, 1024 * MIB, MIB, u64::MAX), None);
        assert_eq!(plan_growth(2048 * MIB, 1024 * MIB, MIB, u64::MAX), None);
        assert_eq!(plan_growth(MIB, 1024 * MIB, u64::MAX, u64::MAX), None);
    }

    #[test]
    fn growth_needs_space_around_the_file() {
        assert_eq!(plan_growth(1024 * MIB, 9999 * MIB, MIB, 255 * MIB), None);
    }

    #[test]
    fn file_without_magic_number_is_not_a_pool() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(!has_magic(file.path()).unwrap());
        file.as_file().set_len(1 << 20).unwrap();
        assert!(!has_magic(file.path()).unwrap());
    }
}
