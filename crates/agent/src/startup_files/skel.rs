//! Copies `/etc/skel` into a home. Existing entries are kept. What cannot be read or exceeds a limit is skipped; an error
//! of the home ends the copy.

use std::ffi::CStr;
use std::fmt::Display;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};

use rustix::fs::{FileType, Mode, Stat, fstat, readlinkat};
use rustix::io::Errno;

use super::home::Home;
use super::{MAX_BYTES, MAX_DEPTH, MAX_ENTRIES};
use crate::bounded_read::read_from;
use crate::tree::entry_name::escape;
use crate::tree::{file_type, join, open_directory, open_file, sorted_names, status};

/// Returns how many files and links were created. With `sync`, they survive a power loss.
pub fn copy(skel: BorrowedFd<'_>, home: &Home<'_>, sync: bool, log: &dyn Fn(String)) -> anyhow::Result<usize> {
    let mut copier =
        SkelCopier { home, log, sync, remaining_entries: MAX_ENTRIES, remaining_bytes: MAX_BYTES, created: 0 };
    copier.copy_content(skel, home.root(), b"", 1)?;
    Ok(copier.created)
}

struct SkelCopier<'a> {
    home: &'a Home<'a>,
    log: &'a dyn Fn(String),
    sync: bool,
    remaining_entries: usize,
    remaining_bytes: u64,
    created: usize,
}

impl SkelCopier<'_> {
    /// `path` is that of the directory below `/etc/skel`, and `depth` the one of its entries.
    fn copy_content(
        &mut self,
        from: BorrowedFd<'_>,
        to: BorrowedFd<'_>,
        path: &[u8],
        depth: usize,
    ) -> anyhow::Result<()> {
        let names = match sorted_names(from) {
            Ok(names) => names,
            Err(error) => return self.skip(path, error),
        };
        for name in names {
            let path = join(path, &name);
            if self.remaining_entries == 0 {
                return self.skip(&path, format_args!("more than {MAX_ENTRIES} entries"));
            }
            self.remaining_entries -= 1;
            self.copy_entry(from, to, &name, &path, depth)?;
        }
        Ok(())
    }

    fn copy_entry(
        &mut self,
        from: BorrowedFd<'_>,
        to: BorrowedFd<'_>,
        name: &CStr,
        path: &[u8],
        depth: usize,
    ) -> anyhow::Result<()> {
        let source = match status(from, name) {
            Ok(source) => source,
            Err(error) => return self.skip(path, error),
        };
        match file_type(&source) {
            FileType::Directory => self.copy_directory(from, to, name, &source, path, depth),
            FileType::RegularFile => self.copy_file(from, to, name, &source, path),
            FileType::Symlink => self.copy_link(from, to, name, path),
            _ => self.skip(path, "not a file, directory or symbolic link"),
        }
    }

    fn copy_directory(
        &mut self,
        from: BorrowedFd<'_>,
        to: BorrowedFd<'_>,
        name: &CStr,
        source: &Stat,
        path: &[u8],
        depth: usize,
    ) -> anyhow::Result<()> {
        if depth == MAX_DEPTH {
            return self.skip(path, format_args!("more than {MAX_DEPTH} levels"));
        }
        let from = match open_directory(from, name) {
            Ok(from) => from,
            Err(error) => return self.skip(path, error),
        };
        let to = match self.home.open_or_create_directory(to, name, permissions(source) | Mode::RWXU) {
            Ok(to) => to,
            Err(error) => return self.skip_or_fail(path, error),
        };
        if !self.home.contains(&fstat(&to)?) {
            return self.skip(path, "another volume is mounted there");
        }
        self.copy_content(from.as_fd(), to.as_fd(), path, depth + 1)
    }

    fn copy_file(
        &mut self,
        from: BorrowedFd<'_>,
        to: BorrowedFd<'_>,
        name: &CStr,
        source: &Stat,
        path: &[u8],
    ) -> anyhow::Result<()> {
        if status(to, name).is_ok() {
            return Ok(());
        }
        let content = match self.read(from, name) {
            Ok(Some(content)) => content,
            Ok(None) => return self.skip(path, format_args!("more than {MAX_BYTES} bytes in total")),
            Err(error) => return self.skip(path, error),
        };
        let created = self.home.create_file(to, name, permissions(source), &content, self.sync);
        self.count(path, created)
    }

    /// Returns nothing if the file exceeds the limit.
    fn read(&mut self, from: BorrowedFd<'_>, name: &CStr) -> io::Result<Option<Vec<u8>>> {
        let content = read_from(open_file(from, name)?, self.remaining_bytes + 1)?;
        let length = u64::try_from(content.len()).unwrap_or(u64::MAX);
        let Some(remaining) = self.remaining_bytes.checked_sub(length) else { return Ok(None) };
        self.remaining_bytes = remaining;
        Ok(Some(content))
    }

    fn copy_link(&mut self, from: BorrowedFd<'_>, to: BorrowedFd<'_>, name: &CStr, path: &[u8]) -> anyhow::Result<()> {
        let target = match readlinkat(from, name, Vec::new()) {
            Ok(target) => target,
            Err(error) => return self.skip(path, error),
        };
        let created = self.home.create_link(&target, to, name);
        self.count(path, created)
    }

    fn count(&mut self, path: &[u8], created: io::Result<bool>) -> anyhow::Result<()> {
        match created {
            Ok(created) => self.created += usize::from(created),
            Err(error) => return self.skip_or_fail(path, error),
        }
        Ok(())
    }

    /// Skips a directory that the user has replaced or protected. Other errors may not occur again at the next start.
    fn skip_or_fail(&self, path: &[u8], error: io::Error) -> anyhow::Result<()> {
        match Errno::from_io_error(&error) {
            Some(Errno::NOTDIR | Errno::LOOP) => self.skip(path, "the home has another entry of this name"),
            Some(Errno::ACCESS) => self.skip(path, error),
            _ => Err(anyhow::Error::new(error).context(format!("cannot create {}", escape(path)))),
        }
    }

    #[expect(clippy::unnecessary_wraps, reason = "the result of the caller")]
    fn skip(&self, path: &[u8], reason: impl Display) -> anyhow::Result<()> {
        (self.log)(format!("skipped {} of /etc/skel: {reason}", escape(path)));
        Ok(())
    }
}

/// Without the bits that grant the rights of another user.
fn permissions(source: &Stat) -> Mode {
    Mode::from_raw_mode(source.st_mode & 0o777)
}
