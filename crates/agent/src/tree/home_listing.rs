//! The content of a home directory: its first levels, with the disk usage of everything below.
//!
//! The home is in use while it is read, so entries may vanish. Other file systems are not entered. The time, the number of
//! entries in memory and the depth are limited; what exceeds a limit is not counted, and the listing is incomplete.

mod ranking;

use std::collections::HashSet;
use std::ffi::{CStr, CString};
use std::io;
use std::ops::AddAssign;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::Instant;

use odc_control::{HomeContent, Listing};
use rustix::fs::{Dir, FileType, Mode, OFlags, Stat, fstat, open};
use rustix::io::Errno;

use super::{file_type, join, open_directory, status};
use ranking::Ranking;

/// Levels that are listed.
const LISTED_DEPTH: usize = 3;
/// Directories below each other that are read. Each level has two open file descriptors.
const MAX_DEPTH: usize = 100;
/// Inodes with several links that are remembered, to count each of them once.
const MAX_LINKED_INODES: usize = 1 << 18;
/// Directories of the first level that are read after all its entries are known.
const MAX_DEFERRED_DIRECTORIES: usize = 10_000;
/// The unit of `st_blocks`.
const BLOCK_BYTES: u64 = 512;

/// Returns an error only if the home itself cannot be read.
pub fn read(home: &Path, deadline: Instant) -> io::Result<HomeContent> {
    let root = open(home, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let root_status = fstat(&root)?;
    let mut walk = Walk {
        device: root_status.st_dev,
        deadline,
        linked_inodes: HashSet::new(),
        ranking: Ranking::default(),
        incomplete: false,
    };
    let mut usage = Usage { bytes: allocated(&root_status), files: 0 };
    usage += walk.read_first_level(root.as_fd());
    let (entries, omitted) = walk.ranking.into_entries();
    let listing =
        Listing { used_bytes: usage.bytes, files: usage.files, incomplete: walk.incomplete, omitted, entries };
    Ok(listing.compress())
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Usage {
    bytes: u64,
    files: u64,
}

impl AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.files = self.files.saturating_add(other.files);
    }
}

struct Walk {
    device: u64,
    deadline: Instant,
    linked_inodes: HashSet<u64>,
    ranking: Ranking,
    incomplete: bool,
}

impl Walk {
    /// Reads the names of the first level before what is below, so that they are listed whatever the time below takes.
    fn read_first_level(&mut self, root: BorrowedFd<'_>) -> Usage {
        let mut deferred: Vec<(CString, Usage)> = Vec::new();
        let mut usage = self.read_entries(root, |walk, name| {
            let status = walk.status(root, name)?;
            if walk.is_walked(&status) && deferred.len() < MAX_DEFERRED_DIRECTORIES {
                deferred.push((name.to_owned(), walk.own_usage(&status)));
                return None;
            }
            Some(walk.add_entry(root, name, &status, &[], 1))
        });
        for (name, mut directory) in deferred {
            directory += self.read_directory(root, &name, name.to_bytes(), 1);
            self.ranking.add(name.to_bytes(), true, 1, directory.bytes, directory.files);
            usage += directory;
        }
        usage
    }

    /// Reads a directory and lists its entries if their level is listed. `depth` is the level of the directory.
    fn read_directory(&mut self, parent: BorrowedFd<'_>, name: &CStr, path: &[u8], depth: usize) -> Usage {
        if depth >= MAX_DEPTH || self.is_late() {
            self.incomplete = true;
            return Usage::default();
        }
        let directory = match open_directory(parent, name) {
            Ok(directory) => directory,
            Err(error) => {
                self.record(error);
                return Usage::default();
            }
        };
        let directory = directory.as_fd();
        self.read_entries(directory, |walk, name| {
            let status = walk.status(directory, name)?;
            Some(walk.add_entry(directory, name, &status, path, depth + 1))
        })
    }

    fn read_entries(
        &mut self,
        directory: BorrowedFd<'_>,
        mut read: impl FnMut(&mut Self, &CStr) -> Option<Usage>,
    ) -> Usage {
        let mut usage = Usage::default();
        let entries = match Dir::read_from(directory) {
            Ok(entries) => entries,
            Err(error) => {
                self.record(error);
                return usage;
            }
        };
        for entry in entries {
            if self.is_late() {
                self.incomplete = true;
                return usage;
            }
            match entry {
                Ok(entry) if [c".", c".."].contains(&entry.file_name()) => {}
                Ok(entry) => usage += read(self, entry.file_name()).unwrap_or_default(),
                Err(error) => self.record(error),
            }
        }
        usage
    }

    /// Returns the usage of an entry with everything below. `depth` is its level.
    fn add_entry(
        &mut self,
        parent: BorrowedFd<'_>,
        name: &CStr,
        status: &Stat,
        parent_path: &[u8],
        depth: usize,
    ) -> Usage {
        let is_listed = depth <= LISTED_DEPTH;
        // Deeper paths are not needed.
        let path = if is_listed { join(parent_path, name) } else { Vec::new() };
        let mut usage = self.own_usage(status);
        if self.is_walked(status) {
            usage += self.read_directory(parent, name, &path, depth);
        }
        if is_listed {
            let is_directory = file_type(status) == FileType::Directory;
            self.ranking.add(&path, is_directory, depth, usage.bytes, usage.files);
        }
        usage
    }

    /// Returns nothing if the entry was removed meanwhile.
    fn status(&mut self, parent: BorrowedFd<'_>, name: &CStr) -> Option<Stat> {
        status(parent, name).map_err(|error| self.record(error)).ok()
    }

    fn is_walked(&self, status: &Stat) -> bool {
        file_type(status) == FileType::Directory && status.st_dev == self.device
    }

    /// Returns the usage of an entry itself. A mount point belongs to another file system.
    fn own_usage(&mut self, status: &Stat) -> Usage {
        let is_directory = file_type(status) == FileType::Directory;
        let files = u64::from(!is_directory);
        let is_counted = status.st_dev == self.device && (is_directory || self.is_first_link(status));
        Usage { bytes: if is_counted { allocated(status) } else { 0 }, files }
    }

    /// Reports whether no other link of the file was counted.
    fn is_first_link(&mut self, status: &Stat) -> bool {
        if status.st_nlink <= 1 {
            return true;
        }
        if self.linked_inodes.len() >= MAX_LINKED_INODES {
            self.incomplete |= !self.linked_inodes.contains(&status.st_ino);
            return false;
        }
        self.linked_inodes.insert(status.st_ino)
    }

    fn is_late(&self) -> bool {
        Instant::now() >= self.deadline
    }

    /// Records an entry that could not be read, unless it was removed or replaced meanwhile.
    fn record(&mut self, error: Errno) {
        self.incomplete |= !matches!(error, Errno::NOENT | Errno::NOTDIR | Errno::LOOP);
    }
}

fn allocated(status: &Stat) -> u64 {
    u64::try_from(status.st_blocks).unwrap_or_default().saturating_mul(BLOCK_BYTES)
}

#[cfg(test)]
mod tests;
