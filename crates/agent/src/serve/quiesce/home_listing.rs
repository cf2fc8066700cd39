//! Inventory of a home directory: the first three levels, with disk usage.
//!
//! Symbolic links are not followed, and other file systems are not entered. The walk stops at a deadline; directories
//! that were not fully counted are marked.

use std::ffi::{OsStr, OsString};
use std::fs::{self, DirEntry, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Levels that are listed.
pub const MAX_DEPTH: usize = 3;

/// Listed entries per directory; the others are only counted.
const MAX_ENTRIES_PER_DIRECTORY: usize = 200;
/// Listed entries in total.
const MAX_ENTRIES: usize = 50_000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub name: OsString,
    pub kind: Kind,
    /// For a directory, the size of its content that is not listed.
    size: u64,
    /// The whole content was counted.
    complete: bool,
    pub children: Vec<Entry>,
    /// Number of entries that are not listed.
    pub omitted: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Directory,
    File,
    Link,
    /// A directory on another file system.
    Mount,
    /// A socket, FIFO or device.
    Special,
}

impl Entry {
    fn new(name: &OsStr, kind: Kind, size: u64) -> Self {
        Self { name: name.to_owned(), kind, size, complete: true, children: Vec::new(), omitted: 0 }
    }

    pub fn size(&self) -> u64 {
        self.children.iter().fold(self.size, |sum, child| sum.saturating_add(child.size()))
    }

    /// Reports whether the size includes the whole content.
    pub fn is_complete(&self) -> bool {
        self.complete && self.children.iter().all(Self::is_complete)
    }
}

/// Returns an error only if the home itself cannot be read.
pub fn read(home: &Path, deadline: Instant) -> io::Result<Entry> {
    let metadata = fs::metadata(home)?;
    let mut walk = Walk { device: metadata.dev(), deadline, entries: 0, pending: Vec::new() };
    let mut root = Entry::new(OsStr::new("."), Kind::Directory, 0);
    fs::read_dir(home)?;
    // Names are more useful than sizes, so the listed levels come before the disk usage below them.
    walk.list(home, &mut root, &mut Vec::new(), MAX_DEPTH);
    for (indices, path) in std::mem::take(&mut walk.pending) {
        let (size, complete) = walk.disk_usage(path);
        if let Some(entry) = descend(&mut root, &indices) {
            entry.size = entry.size.saturating_add(size);
            entry.complete &= complete;
        }
    }
    Ok(root)
}

fn descend<'a>(root: &'a mut Entry, indices: &[usize]) -> Option<&'a mut Entry> {
    indices.iter().try_fold(root, |entry, index| entry.children.get_mut(*index))
}

struct Walk {
    device: u64,
    deadline: Instant,
    /// Entries listed so far.
    entries: usize,
    /// Directories below the listed levels, each with the child indices of the entry that its size is added to.
    pending: Vec<(Vec<usize>, PathBuf)>,
}

impl Walk {
    /// Adds the content of a directory to `parent`. `indices` are the child indices of `parent` from the root.
    fn list(&mut self, path: &Path, parent: &mut Entry, indices: &mut Vec<usize>, depth: usize) {
        let Some(mut entries) = self.read_dir(path) else {
            parent.complete = false;
            return;
        };
        entries.sort_by_key(DirEntry::file_name);
        for entry in entries {
            let Ok(metadata) = entry.metadata() else {
                parent.complete = false;
                continue;
            };
            let kind = self.kind(&metadata);
            let size = if kind == Kind::File { metadata.len() } else { 0 };
            if parent.children.len() >= MAX_ENTRIES_PER_DIRECTORY || self.entries >= MAX_ENTRIES {
                parent.omitted += 1;
                parent.size = parent.size.saturating_add(size);
                if kind == Kind::Directory {
                    self.pending.push((indices.clone(), entry.path()));
                }
                continue;
            }
            self.entries += 1;
            let mut child = Entry::new(&entry.file_name(), kind, size);
            if kind == Kind::Directory {
                indices.push(parent.children.len());
                if depth > 1 {
                    self.list(&entry.path(), &mut child, indices, depth - 1);
                } else {
                    self.pending.push((indices.clone(), entry.path()));
                }
                indices.pop();
            }
            parent.children.push(child);
        }
    }

    /// Returns the size of all files below a directory, and whether all were counted.
    fn disk_usage(&self, path: PathBuf) -> (u64, bool) {
        let mut directories = vec![path];
        let (mut size, mut complete) = (0_u64, true);
        while let Some(path) = directories.pop() {
            let Some(entries) = self.read_dir(&path) else {
                complete = false;
                continue;
            };
            for metadata in entries.iter().map(|entry| (entry, entry.metadata())) {
                let (entry, Ok(metadata)) = metadata else {
                    complete = false;
                    continue;
                };
                match self.kind(&metadata) {
                    Kind::File => size = size.saturating_add(metadata.len()),
                    Kind::Directory => directories.push(entry.path()),
                    Kind::Link | Kind::Mount | Kind::Special => {}
                }
            }
        }
        (size, complete)
    }

    /// Returns nothing if the directory cannot be read or the deadline has passed.
    fn read_dir(&self, path: &Path) -> Option<Vec<DirEntry>> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(path).ok()? {
            if Instant::now() >= self.deadline {
                return None;
            }
            entries.push(entry.ok()?);
        }
        Some(entries)
    }

    fn kind(&self, metadata: &Metadata) -> Kind {
        let kind = metadata.file_type();
        if kind.is_symlink() {
            Kind::Link
        } else if kind.is_dir() {
            if metadata.dev() == self.device { Kind::Directory } else { Kind::Mount }
        } else if kind.is_file() {
            Kind::File
        } else {
            Kind::Special
        }
    }
}

#[cfg(test)]
mod tests;
