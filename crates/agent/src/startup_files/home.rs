//! Changes in a home directory. Entries are created, never overwritten, and symbolic links are not followed.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::Path;

use anyhow::Context as _;
use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, RenameFlags, Stat, fstat, fsync, linkat, openat, renameat, renameat_with, symlinkat,
    unlinkat,
};
use rustix::io::Errno;

use crate::args::ServerUid;
use crate::startup_files::record::OWN_FILE_PREFIX;
use crate::tree::{create_directory, open_directory};

pub struct Home<'a> {
    root: OwnedFd,
    device: u64,
    /// The name of a file until it is complete. It contains the uid of the server, because a claim can be the home of
    /// several servers. A file of this name is left only by a process that was killed.
    temporary: CString,
    before_change: &'a dyn Fn() -> io::Result<()>,
}

impl<'a> Home<'a> {
    pub fn open(
        path: &Path,
        server: &ServerUid,
        before_change: &'a dyn Fn() -> io::Result<()>,
    ) -> anyhow::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = openat(CWD, path, flags, Mode::empty()).context("cannot open the directory")?;
        let device = fstat(&root)?.st_dev;
        let temporary = CString::new(format!("{OWN_FILE_PREFIX}-{}", server.as_str()))?;
        Ok(Self { root, device, temporary, before_change })
    }

    pub fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// Reports whether a directory is on the volume of the home. It is not if another volume is mounted there.
    pub fn contains(&self, directory: &Stat) -> bool {
        directory.st_dev == self.device
    }

    /// Opens a directory, or creates it.
    pub fn open_or_create_directory(&self, parent: BorrowedFd<'_>, name: &CStr, mode: Mode) -> io::Result<OwnedFd> {
        match open_directory(parent, name) {
            Err(Errno::NOENT) => {
                (self.before_change)()?;
                Ok(create_directory(parent, name, mode)?)
            }
            other => Ok(other?),
        }
    }

    /// Returns whether the file was created; it is not if the name is in use. The file is complete when it appears.
    pub fn create_file(
        &self,
        parent: BorrowedFd<'_>,
        name: &CStr,
        mode: Mode,
        content: &[u8],
        sync: bool,
    ) -> io::Result<bool> {
        self.write_temporary(parent, mode, content, sync)?;
        (self.before_change)()?;
        let renamed = rename_new(parent, &self.temporary, parent, name);
        if renamed.is_err() {
            self.remove_temporary(parent)?;
        }
        is_created(renamed)
    }

    /// Returns whether the link was created; it is not if the name is in use.
    pub fn create_link(&self, target: &CStr, parent: BorrowedFd<'_>, name: &CStr) -> io::Result<bool> {
        (self.before_change)()?;
        is_created(symlinkat(target, parent, name))
    }

    /// Moves an entry of the home into a directory of the home.
    pub fn move_into(&self, directory: BorrowedFd<'_>, name: &CStr) -> io::Result<Moved> {
        (self.before_change)()?;
        match rename_new(self.root(), name, directory, name) {
            Ok(()) => Ok(Moved::Yes),
            Err(Errno::NOENT) => Ok(Moved::Missing),
            Err(Errno::EXIST) => Ok(Moved::NameInUse),
            Err(error) => Err(error.into()),
        }
    }

    /// Replaces a file of ODC in the home.
    pub fn replace_own_file(&self, name: &CStr, content: &[u8], sync: bool) -> io::Result<()> {
        self.write_temporary(self.root(), Mode::RUSR | Mode::WUSR, content, sync)?;
        (self.before_change)()?;
        renameat(self.root(), self.temporary.as_c_str(), self.root(), name)?;
        if sync { Ok(fsync(self.root())?) } else { Ok(()) }
    }

    /// Removes a file of ODC from the home.
    pub fn remove_own_file(&self, name: &CStr) -> io::Result<()> {
        (self.before_change)()?;
        remove(self.root(), name)
    }

    fn write_temporary(&self, parent: BorrowedFd<'_>, mode: Mode, content: &[u8], sync: bool) -> io::Result<()> {
        self.remove_temporary(parent)?;
        (self.before_change)()?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file = File::from(openat(parent, self.temporary.as_c_str(), flags, mode)?);
        let written = file.write_all(content).and_then(|()| if sync { file.sync_all() } else { Ok(()) });
        written.inspect_err(|_| {
            // The first error is reported. A file that remains is replaced by the next attempt.
            let _ = self.remove_temporary(parent);
        })
    }

    fn remove_temporary(&self, parent: BorrowedFd<'_>) -> io::Result<()> {
        remove(parent, &self.temporary)
    }
}

/// The result of moving an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moved {
    Yes,
    Missing,
    NameInUse,
}

fn is_created(result: rustix::io::Result<()>) -> io::Result<bool> {
    match result {
        Ok(()) => Ok(true),
        Err(Errno::EXIST) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn remove(parent: BorrowedFd<'_>, name: &CStr) -> io::Result<()> {
    match unlinkat(parent, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Renames an entry, or fails with `EXIST` if the new name is in use.
fn rename_new(from: BorrowedFd<'_>, name: &CStr, to: BorrowedFd<'_>, new_name: &CStr) -> rustix::io::Result<()> {
    match renameat_with(from, name, to, new_name, RenameFlags::NOREPLACE) {
        // Some file systems, such as NFS, do not support the flag.
        Err(Errno::INVAL | Errno::NOSYS) => {
            linkat(from, name, to, new_name, AtFlags::empty())?;
            unlinkat(from, name, AtFlags::empty())
        }
        other => other,
    }
}
