//! `odc-agent compare-trees`: lists the paths that differ between two states of a disk.

use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};

use anyhow::Context as _;
use rustix::fs::{FileType, Stat, readlinkat};

use super::diff_report::{Change, DiffReport};
use super::{TreeError, check_depth, file_type, join, open_directory, open_file, open_root, sorted_names, status};
use crate::args;

/// The permission bits of a mode.
const MODE_BITS: u32 = 0o7777;
const BUFFER_BYTES: usize = 64 << 10;

pub fn run(args: &args::CompareTrees) -> anyhow::Result<()> {
    let (earlier, later) = (open_root(&args.earlier)?, open_root(&args.later)?);
    let mut comparison = Comparison::default();
    comparison.compare_directories(earlier.as_fd(), later.as_fd(), &[], 0)?;
    let message = comparison.report.into_diff().to_message();
    std::fs::write(&args.result, message).with_context(|| format!("cannot write {}", args.result.display()))
}

#[derive(Default)]
pub(super) struct Comparison {
    pub(super) report: DiffReport,
}

impl Comparison {
    /// Compares two directories entry by entry.
    pub(super) fn compare_directories(
        &mut self,
        earlier: BorrowedFd<'_>,
        later: BorrowedFd<'_>,
        path: &[u8],
        depth: usize,
    ) -> Result<(), TreeError> {
        check_depth(depth, path)?;
        let failed = |error| TreeError::new(path, error);
        let (old, new) = (sorted_names(earlier).map_err(failed)?, sorted_names(later).map_err(failed)?);
        let (mut old, mut new) = (old.iter().peekable(), new.iter().peekable());
        loop {
            match (old.peek().copied(), new.peek().copied()) {
                (Some(name), other) if other.is_none_or(|other| name < other) => {
                    old.next();
                    self.add_tree(earlier, name, &join(path, name), Change::Removed, depth)?;
                }
                (Some(name), Some(other)) if name == other => {
                    old.next();
                    new.next();
                    self.compare_entries(earlier, later, name, &join(path, name), depth)?;
                }
                (_, Some(name)) => {
                    new.next();
                    self.add_tree(later, name, &join(path, name), Change::Added, depth)?;
                }
                // Of (Some, None) only in theory: the first arm matches it.
                (_, None) => return Ok(()),
            }
        }
    }

    fn compare_entries(
        &mut self,
        earlier: BorrowedFd<'_>,
        later: BorrowedFd<'_>,
        name: &CStr,
        path: &[u8],
        depth: usize,
    ) -> Result<(), TreeError> {
        let failed = |error| TreeError::new(path, error);
        let old = status(earlier, name).map_err(failed)?;
        let new = status(later, name).map_err(failed)?;
        let is_directory = file_type(&new) == FileType::Directory;
        let is_modified = file_type(&old) != file_type(&new)
            || mode(&old) != mode(&new)
            || differs(earlier, later, name, &old, &new).map_err(|error| TreeError::new(path, error))?;
        if is_modified {
            self.report.add(Change::Modified, path, is_directory);
        }
        if is_directory && file_type(&old) == FileType::Directory {
            let (earlier, later) =
                (open_directory(earlier, name).map_err(failed)?, open_directory(later, name).map_err(failed)?);
            self.compare_directories(earlier.as_fd(), later.as_fd(), path, depth + 1)?;
        }
        Ok(())
    }

    /// Reports an entry that exists in one tree only. A directory is listed once, and its content is counted.
    fn add_tree(
        &mut self,
        parent: BorrowedFd<'_>,
        name: &CStr,
        path: &[u8],
        change: Change,
        depth: usize,
    ) -> Result<(), TreeError> {
        let status = status(parent, name).map_err(|error| TreeError::new(path, error))?;
        let is_directory = file_type(&status) == FileType::Directory;
        self.report.add(change, path, is_directory);
        if is_directory { self.count_content(parent, name, path, change, depth + 1) } else { Ok(()) }
    }

    fn count_content(
        &mut self,
        parent: BorrowedFd<'_>,
        name: &CStr,
        path: &[u8],
        change: Change,
        depth: usize,
    ) -> Result<(), TreeError> {
        check_depth(depth, path)?;
        let failed = |error| TreeError::new(path, error);
        let directory = open_directory(parent, name).map_err(failed)?;
        for entry in sorted_names(&directory).map_err(failed)? {
            self.report.count(change);
            let path = join(path, &entry);
            let status = status(&directory, entry.as_c_str()).map_err(|error| TreeError::new(&path, error))?;
            if file_type(&status) == FileType::Directory {
                self.count_content(directory.as_fd(), &entry, &path, change, depth + 1)?;
            }
        }
        Ok(())
    }
}

fn mode(status: &Stat) -> u32 {
    status.st_mode & MODE_BITS
}

/// Reports whether the content of two entries of the same type differs. Files of the same size, modification time and change
/// time are not read. The change time cannot be set, so it reveals a program that has restored the modification time.
fn differs(earlier: BorrowedFd<'_>, later: BorrowedFd<'_>, name: &CStr, old: &Stat, new: &Stat) -> io::Result<bool> {
    match file_type(new) {
        FileType::RegularFile => {
            let times = |status: &Stat| (status.st_mtime, status.st_mtime_nsec, status.st_ctime, status.st_ctime_nsec);
            let is_touched = times(old) != times(new);
            if old.st_size != new.st_size || !is_touched {
                return Ok(old.st_size != new.st_size);
            }
            Ok(!is_content_equal(open_file(earlier, name)?, open_file(later, name)?)?)
        }
        FileType::Symlink => Ok(readlinkat(earlier, name, Vec::new())? != readlinkat(later, name, Vec::new())?),
        FileType::CharacterDevice | FileType::BlockDevice => Ok(old.st_rdev != new.st_rdev),
        FileType::Directory | FileType::Fifo | FileType::Socket | FileType::Unknown => Ok(false),
    }
}

fn is_content_equal(mut one: File, mut other: File) -> io::Result<bool> {
    let (mut left, mut right) = (vec![0; BUFFER_BYTES], vec![0; BUFFER_BYTES]);
    loop {
        let count = read_full(&mut one, &mut left)?;
        if count != read_full(&mut other, &mut right)? || left[..count] != right[..count] {
            return Ok(false);
        }
        if count == 0 {
            return Ok(true);
        }
    }
}

/// Reads until the buffer is full or the file ends.
fn read_full(file: &mut File, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
