//! Recognises a file, so that a removed and remade socket is not taken for the old one.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::{fs, io};

/// Tells a file from another of the same name.
///
/// An inode number alone does not: file systems give the number of a removed file to the next one.
/// Nothing writes to a socket's file, so its modification time is the time it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileId {
    device: u64,
    inode: u64,
    modified: (i64, i64),
}

impl FileId {
    /// The file now at `path`, if there is one.
    pub fn of(path: &Path) -> io::Result<Option<Self>> {
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
