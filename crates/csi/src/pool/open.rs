//! Opens a pool: checks the machine, mounts a pool file, enables quotas, and deletes what killed processes left.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::statfs;

use super::file::{PoolFile, PoolFileConfig};
use super::layout::Layout;
use super::maintenance::CheckedSubvolumes;
use super::staging::Staging;
use super::{Pool, blocking, record};
use crate::btrfs::{self, QuotaState};
use crate::command;

/// Version of the layout that this driver reads and writes.
const FORMAT: u32 = 1;
/// `f_type` of btrfs.
const BTRFS_MAGIC: i64 = 0x9123_683E;

/// A pool as configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolConfig {
    pub directory: PathBuf,
    /// The file system to mount at the directory.
    pub file: Option<PoolFileConfig>,
}

/// Reason for which the driver does not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("not running as root")]
    NotRoot,
    #[error("the command {program} is not installed")]
    NotInstalled { program: String },
    #[error("pool {} does not exist", path.display())]
    Missing { path: PathBuf },
    #[error("pool {} is not on a btrfs file system", path.display())]
    NotBtrfs { path: PathBuf },
    #[error("this kernel does not support btrfs")]
    NoKernelSupport { source: super::Error },
    #[error("pool {} has format {format}; this version of odc-csi supports format {FORMAT}", path.display())]
    Format { path: PathBuf, format: u32 },
    #[error(transparent)]
    Pool(#[from] super::Error),
}

impl Error {
    /// Returns what the administrator can do.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::NotRoot => "run odc-csi as root, or its container as privileged: it mounts volumes",
            Self::NotInstalled { .. } => "install the packages btrfs-progs, mount and util-linux",
            Self::Missing { .. } => "create the directory on a btrfs file system, or pass `--pool-file`",
            Self::NotBtrfs { .. } => {
                "pass a directory on btrfs, or `--pool-file FILE --pool-size SIZE` to create a btrfs file system in a file"
            }
            Self::NoKernelSupport { .. } => "run `modprobe btrfs`, or use a kernel with CONFIG_BTRFS_FS",
            Self::Format { .. } => "use the version of odc-csi that created the pool, or an empty directory",
            Self::Pool(_) => "fix the cause, then start odc-csi again; no volume was changed",
        }
    }
}

impl Pool {
    pub async fn open(config: PoolConfig) -> Result<Self, Error> {
        let PoolConfig { directory, file } = config;
        if !rustix::process::geteuid().is_root() {
            return Err(Error::NotRoot);
        }
        let file = match file {
            Some(file) => Some(PoolFile::mount(file, &directory).await.map_err(classify)?),
            None => None,
        };
        let root = match fs::canonicalize(&directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(Error::Missing { path: directory }),
            other => other.map_err(super::Error::io("opening", &directory))?,
        };
        if !is_btrfs(&root).map_err(super::Error::io("inspecting", &root))? {
            return Err(Error::NotBtrfs { path: root });
        }
        let layout = Layout::new(root);
        check_format(&layout)?;
        let _lock = lock(&layout).await?;
        create_directories(&layout)?;
        let quota_enabled = enable_quota(layout.root()).await.map_err(classify)?;
        let staging = Staging::open(&layout).await?;
        let pool = Self { layout, staging, file, checked_subvolumes: CheckedSubvolumes::default() };
        if quota_enabled {
            pool.restore_limits().await?;
        }
        Ok(pool)
    }
}

/// Finds the errors with a better hint.
fn classify(error: super::Error) -> Error {
    match &error {
        super::Error::Command { source: command::Error::NotInstalled { program }, .. } => {
            Error::NotInstalled { program: program.clone() }
        }
        super::Error::Btrfs { source, .. } if source.is_not_installed() => {
            Error::NotInstalled { program: "btrfs".to_owned() }
        }
        super::Error::Command { source, .. } if source.message_contains("unknown filesystem type") => {
            Error::NoKernelSupport { source: error }
        }
        _ => Error::Pool(error),
    }
}

pub fn is_btrfs(path: &Path) -> io::Result<bool> {
    Ok(statfs(path)?.f_type == BTRFS_MAGIC)
}

fn check_format(layout: &Layout) -> Result<(), Error> {
    match record::read_format(layout.root())? {
        Some(FORMAT) => Ok(()),
        Some(format) => Err(Error::Format { path: layout.root().to_owned(), format }),
        None => Ok(record::write_format(layout.root(), FORMAT)?),
    }
}

/// Waits until no other driver is starting on the same pool.
async fn lock(layout: &Layout) -> Result<File, super::Error> {
    let path = layout.lock();
    blocking(move || {
        let file = File::create(&path).map_err(super::Error::io("creating", &path))?;
        file.lock().map_err(super::Error::io("locking", &path))?;
        Ok(file)
    })
    .await
}

fn create_directories(layout: &Layout) -> Result<(), super::Error> {
    for directory in [layout.volumes(), layout.snapshots(), &layout.tmp()] {
        // Other users of the machine must not reach the volumes.
        let created = DirBuilder::new().recursive(true).mode(0o700).create(directory);
        created.map_err(super::Error::io("creating", directory))?;
    }
    Ok(())
}

/// Returns whether quotas were disabled before, so that there are no limits.
async fn enable_quota(root: &Path) -> Result<bool, super::Error> {
    match btrfs::quota_state(root).await.map_err(super::Error::btrfs("reading the qgroups of", root))? {
        QuotaState::Consistent => Ok(false),
        QuotaState::Inconsistent => {
            btrfs::start_rescan(root).await.map_err(super::Error::btrfs("rescanning the qgroups of", root))?;
            Ok(false)
        }
        QuotaState::Disabled => {
            btrfs::enable_quota(root).await.map_err(super::Error::btrfs("enabling quotas of", root))?;
            btrfs::wait_for_rescan(root).await.map_err(super::Error::btrfs("rescanning the qgroups of", root))?;
            Ok(true)
        }
    }
}
