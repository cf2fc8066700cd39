//! Operations on btrfs subvolumes and qgroups, by the `btrfs` command.

mod output;

use std::ffi::OsStr;
use std::path::Path;

pub use output::{QgroupUsage, Subvolume, SubvolumeId};

use crate::command::{self, Output};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Command(#[from] command::Error),
    #[error("unexpected output of btrfs {command}")]
    Parse { command: &'static str },
}

impl Error {
    pub fn is_no_space(&self) -> bool {
        matches!(self, Self::Command(error) if error.is_no_space())
    }

    pub fn is_not_installed(&self) -> bool {
        matches!(self, Self::Command(command::Error::NotInstalled { .. }))
    }

    /// Reports whether a subvolume could not be deleted because it contains others.
    pub fn is_not_empty(&self) -> bool {
        matches!(self, Self::Command(error) if error.message_contains("Directory not empty"))
    }
}

/// Accounting of referenced bytes by qgroups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuotaState {
    Disabled,
    /// The kernel stopped accounting; a rescan resumes it.
    Inconsistent,
    Consistent,
}

pub async fn create_subvolume(path: &Path) -> Result<(), Error> {
    btrfs(&["subvolume".as_ref(), "create".as_ref(), path.as_os_str()]).await.map(drop)
}

/// Creates a snapshot of a subvolume, in constant time.
pub async fn snapshot(source: &Path, target: &Path, read_only: bool) -> Result<(), Error> {
    let mut arguments: Vec<&OsStr> = vec!["subvolume".as_ref(), "snapshot".as_ref()];
    if read_only {
        arguments.push("-r".as_ref());
    }
    arguments.extend([source.as_os_str(), target.as_os_str()]);
    btrfs(&arguments).await.map(drop)
}

/// Deletes a subvolume. The kernel frees its space later.
pub async fn delete_subvolume(path: &Path) -> Result<(), Error> {
    btrfs(&["subvolume".as_ref(), "delete".as_ref(), path.as_os_str()]).await.map(drop)
}

/// Deletes a subvolume of the file system that contains `path` by its id, whatever its name is.
pub async fn delete_subvolume_by_id(id: SubvolumeId, path: &Path) -> Result<(), Error> {
    let id = id.to_string();
    btrfs(&["subvolume".as_ref(), "delete".as_ref(), "-i".as_ref(), id.as_ref(), path.as_os_str()]).await.map(drop)
}

/// Limits the bytes that a subvolume may reference.
pub async fn limit(path: &Path, bytes: u64) -> Result<(), Error> {
    let bytes = bytes.to_string();
    btrfs(&["qgroup".as_ref(), "limit".as_ref(), bytes.as_ref(), path.as_os_str()]).await.map(drop)
}

/// Limits a subvolume of the file system that contains `path` by its id. `None` removes the limit.
pub async fn limit_by_id(id: SubvolumeId, bytes: Option<u64>, path: &Path) -> Result<(), Error> {
    let (bytes, qgroup) = (bytes.map_or("none".to_owned(), |bytes| bytes.to_string()), format!("0/{id}"));
    btrfs(&["qgroup".as_ref(), "limit".as_ref(), bytes.as_ref(), qgroup.as_ref(), path.as_os_str()]).await.map(drop)
}

/// Returns the referenced bytes and the limit of a subvolume, as of the last commit of the file system.
pub async fn usage(path: &Path) -> Result<QgroupUsage, Error> {
    let show = btrfs(&["qgroup".as_ref(), "show".as_ref(), "--raw".as_ref(), "-rf".as_ref(), path.as_os_str()]).await?;
    output::parse_qgroup(&show.stdout).ok_or(Error::Parse { command: "qgroup show" })
}

/// Returns the qgroups of deleted subvolumes. As in [`list_subvolumes`], an entry can be imitated.
pub async fn list_stale_qgroups(path: &Path) -> Result<Vec<SubvolumeId>, Error> {
    let show = btrfs(&["qgroup".as_ref(), "show".as_ref(), path.as_os_str()]).await?;
    Ok(output::parse_stale_qgroups(&show.stdout))
}

/// Deletes the qgroup of a deleted subvolume. Returns `false` if the kernel is still freeing the subvolume.
pub async fn destroy_qgroup(id: SubvolumeId, path: &Path) -> Result<bool, Error> {
    let qgroup = format!("0/{id}");
    match btrfs(&["qgroup".as_ref(), "destroy".as_ref(), qgroup.as_ref(), path.as_os_str()]).await {
        Err(Error::Command(error)) if error.message_contains("Device or resource busy") => Ok(false),
        // The kernel was faster.
        Err(Error::Command(error)) if error.message_contains("No such file or directory") => Ok(true),
        other => other.map(|_| true),
    }
}

pub async fn quota_state(path: &Path) -> Result<QuotaState, Error> {
    match btrfs(&["qgroup".as_ref(), "show".as_ref(), "-f".as_ref(), path.as_os_str()]).await {
        Ok(show) if show.stderr.contains("qgroup data inconsistent") => Ok(QuotaState::Inconsistent),
        Ok(_) => Ok(QuotaState::Consistent),
        Err(Error::Command(error)) if error.message_contains("quotas not enabled") => Ok(QuotaState::Disabled),
        Err(error) => Err(error),
    }
}

pub async fn enable_quota(path: &Path) -> Result<(), Error> {
    btrfs(&["quota".as_ref(), "enable".as_ref(), path.as_os_str()]).await.map(drop)
}

/// Starts a rescan of the qgroups, unless one is running. The kernel does it in the background.
pub async fn start_rescan(path: &Path) -> Result<(), Error> {
    match btrfs(&["quota".as_ref(), "rescan".as_ref(), path.as_os_str()]).await {
        Err(Error::Command(error)) if error.message_contains("Operation now in progress") => Ok(()),
        other => other.map(drop),
    }
}

/// Waits for a running rescan of the qgroups.
pub async fn wait_for_rescan(path: &Path) -> Result<(), Error> {
    btrfs(&["quota".as_ref(), "rescan".as_ref(), "-W".as_ref(), path.as_os_str()]).await.map(drop)
}

/// Returns the id of the subvolume that contains a path.
pub async fn subvolume_id(path: &Path) -> Result<SubvolumeId, Error> {
    let rootid = btrfs(&["inspect-internal".as_ref(), "rootid".as_ref(), path.as_os_str()]).await?;
    rootid.stdout.trim().parse().map_err(|_| Error::Parse { command: "inspect-internal rootid" })
}

/// Lists subvolumes of the file system that contains `path`.
///
/// Users choose the names of nested subvolumes, and a name with a line break can imitate an entry. An id from this list
/// must be verified by [`resolve`].
pub async fn list_subvolumes(path: &Path) -> Result<Vec<Subvolume>, Error> {
    let list = btrfs(&["subvolume".as_ref(), "list".as_ref(), path.as_os_str()]).await?;
    Ok(output::parse_subvolumes(&list.stdout))
}

/// Returns the path of a subvolume from the root of the file system that contains `path`, or `None` if it is gone.
pub async fn resolve(id: SubvolumeId, path: &Path) -> Result<Option<String>, Error> {
    let number = id.to_string();
    let arguments = ["inspect-internal".as_ref(), "subvolid-resolve".as_ref(), number.as_ref(), path.as_os_str()];
    match btrfs(&arguments).await {
        Ok(resolved) => Ok(Some(resolved.stdout.strip_suffix('\n').unwrap_or(&resolved.stdout).to_owned())),
        // ENOENT.
        Err(Error::Command(error)) if error.message_contains("error -2") => Ok(None),
        Err(error) => Err(error),
    }
}

/// Enlarges the file system that is mounted at `path` to the size of its device.
pub async fn resize_to_device(path: &Path) -> Result<(), Error> {
    btrfs(&["filesystem".as_ref(), "resize".as_ref(), "max".as_ref(), path.as_os_str()]).await.map(drop)
}

async fn btrfs(arguments: &[&OsStr]) -> Result<Output, Error> {
    Ok(command::run("btrfs", arguments).await?)
}
