//! Directory trees of a disk: `compare-trees` and `copy-paths`, which run in pods of disk operations, and the listing of a
//! server's home.
//!
//! The trees belong to a user and may be hostile: any name, any depth, links to anywhere. Entries are opened relative to
//! their directory, and symbolic links are never followed.

pub mod compare;
pub mod copy;
mod diff_report;
pub(crate) mod entry_name;
pub mod home_listing;

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, mkdirat, openat, statat};

/// Directories below each other. Each level has open file descriptors.
const MAX_DEPTH: usize = 256;

/// An error with the path it occurred at, escaped.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {cause}")]
pub struct TreeError {
    path: String,
    cause: io::Error,
}

impl TreeError {
    fn new(path: &[u8], cause: impl Into<io::Error>) -> Self {
        Self { path: entry_name::escape(path), cause: cause.into() }
    }

    fn other(path: &[u8], message: &'static str) -> Self {
        Self::new(path, io::Error::other(message))
    }
}

/// Opens the root of a tree, which is a mount point.
fn open_root(path: &Path) -> Result<OwnedFd, TreeError> {
    open_directory(CWD, path).map_err(|error| TreeError::new(path.as_os_str().as_encoded_bytes(), error))
}

pub(crate) fn open_directory<P: rustix::path::Arg>(parent: impl AsFd, name: P) -> rustix::io::Result<OwnedFd> {
    openat(parent, name, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}

/// Creates a directory and opens it.
pub(crate) fn create_directory(parent: impl AsFd, name: &CStr, mode: Mode) -> rustix::io::Result<OwnedFd> {
    mkdirat(&parent, name, mode)?;
    open_directory(parent, name)
}

/// Opens a regular file. `NONBLOCK` prevents that a FIFO of the same name blocks.
pub(crate) fn open_file(parent: impl AsFd, name: &CStr) -> rustix::io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    openat(parent, name, flags, Mode::empty()).map(File::from)
}

/// Returns the status of an entry itself, not of what it links to.
pub(crate) fn status<P: rustix::path::Arg>(parent: impl AsFd, name: P) -> rustix::io::Result<Stat> {
    statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)
}

pub(crate) fn file_type(status: &Stat) -> FileType {
    FileType::from_raw_mode(status.st_mode)
}

/// Returns the names in a directory in byte order.
pub(crate) fn sorted_names(directory: impl AsFd) -> rustix::io::Result<Vec<CString>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if name != c"." && name != c".." {
            names.push(name.to_owned());
        }
    }
    names.sort_unstable();
    Ok(names)
}

/// Returns the path of an entry relative to the root.
pub(crate) fn join(parent: &[u8], name: &CStr) -> Vec<u8> {
    let mut path = parent.to_vec();
    if !path.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(name.to_bytes());
    path
}

fn check_depth(depth: usize, path: &[u8]) -> Result<(), TreeError> {
    if depth < MAX_DEPTH { Ok(()) } else { Err(TreeError::other(path, "more than 256 directories below each other")) }
}

#[cfg(test)]
mod tests;
