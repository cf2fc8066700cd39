//! Identity of a file, to distinguish a recreated socket from the previous one.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::{fs, io};

/// Distinguishes files with the same path.
///
/// Includes the modification time, because file systems reuse inode numbers. A socket is never
/// written to, so its modification time is its creation time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileId {
    device: u64,
    inode: u64,
    modified: (i64, i64),
}

impl FileId {
    /// Returns the identity of the file at `path`, if it exists.
    pub fn from_path(path: &Path) -> io::Result<Option<Self>> {
        match fs::symlink_metadata(path) {
            Ok(file) => {
                Ok(Some(Self { device: file.dev(), inode: file.ino(), modified: (file.mtime(), file.mtime_nsec()) }))
            }
            Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(err) => Err(err),
        }
    }
}

#[cfg(test)]
impl FileId {
    pub(crate) fn test(inode: u64) -> Self {
        Self { device: 1, inode, modified: (0, 0) }
    }
}
