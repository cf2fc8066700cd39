//! Errors of operations on the pool.

use std::io;
use std::path::{Path, PathBuf};

use super::snapshot::MAX_SNAPSHOTS_PER_VOLUME;
use crate::capacity::{ByteSize, RangeError};
use crate::name::Name;
use crate::volume::Conflict;
use crate::{btrfs, command};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("volume {name} does not exist in this pool")]
    VolumeNotFound { name: Name },
    #[error("snapshot {name} does not exist in this pool")]
    SnapshotNotFound { name: Name },
    #[error(transparent)]
    Conflict(#[from] Conflict),
    #[error(transparent)]
    Range(#[from] RangeError),
    #[error("pool is full: requested {requested}, available {available}")]
    Full { requested: ByteSize, available: ByteSize },
    #[error("volume {name} has {MAX_SNAPSHOTS_PER_VOLUME} snapshots, the maximum; delete one first")]
    TooManySnapshots { name: Name },
    #[error("volume {name} is mounted at {}", target.display())]
    InUse { name: Name, target: PathBuf },
    #[error("{action} {}", path.display())]
    Btrfs { action: &'static str, path: PathBuf, source: btrfs::Error },
    #[error("{action} {}", path.display())]
    Command { action: &'static str, path: PathBuf, source: command::Error },
    #[error("{action} {}", path.display())]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    #[error("attribute {attribute} of {} is missing or invalid", path.display())]
    Record { attribute: &'static str, path: PathBuf },
    #[error("a file operation panicked")]
    Task(#[source] tokio::task::JoinError),
}

impl Error {
    pub(super) fn io<E: Into<io::Error>>(action: &'static str, path: &Path) -> impl FnOnce(E) -> Self {
        move |source| Self::Io { action, path: path.to_owned(), source: source.into() }
    }

    pub(super) fn btrfs(action: &'static str, path: &Path) -> impl FnOnce(btrfs::Error) -> Self {
        move |source| Self::Btrfs { action, path: path.to_owned(), source }
    }

    pub(super) fn command(action: &'static str, path: &Path) -> impl FnOnce(command::Error) -> Self {
        move |source| Self::Command { action, path: path.to_owned(), source }
    }

    /// Reports whether the file system has no space left.
    pub fn is_no_space(&self) -> bool {
        match self {
            Self::Full { .. } => true,
            Self::Btrfs { source, .. } => source.is_no_space(),
            Self::Io { source, .. } => source.kind() == io::ErrorKind::StorageFull,
            _ => false,
        }
    }
}
