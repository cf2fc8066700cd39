//! `odc-agent copy-paths`: copies files and directories of a restore point to a disk.
//!
//! All paths are checked before the first change. A directory is merged: files that exist only on the disk are kept. Each
//! file is replaced atomically. Owner, mode and modification time are kept; hard links become separate files, and FIFOs,
//! sockets and devices are skipped.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path};

use anyhow::Context as _;
use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, Stat, Timespec, Timestamps, Uid, chownat, fchmod, fchown, futimens, openat,
    readlinkat, renameat, symlinkat, syncfs, unlinkat, utimensat,
};
use rustix::io::Errno;

use super::{
    TreeError, check_depth, create_directory, file_type, join, open_directory, open_file, open_root, sorted_names,
    status,
};
use crate::args;

pub fn run(args: &args::CopyPaths) -> anyhow::Result<()> {
    let (from, to) = (open_root(&args.from)?, open_root(&args.to)?);
    let paths: Vec<RelativePath> = args.paths.iter().map(|path| RelativePath::new(path)).collect::<Result<_, _>>()?;
    for path in &paths {
        path.check(from.as_fd(), to.as_fd())?;
    }
    let temporary = CString::new(format!(".odc-restore-{}", args.id.as_str())).context("invalid id")?;
    let copier = Copier { temporary };
    for path in &paths {
        path.copy(&copier, from.as_fd(), to.as_fd())?;
    }
    syncfs(&to).context("cannot write the data to the storage")
}

/// A path below the root of both trees.
pub(super) struct RelativePath(Vec<CString>);

impl RelativePath {
    pub(super) fn new(path: &Path) -> Result<Self, TreeError> {
        let invalid = || TreeError::other(path.as_os_str().as_encoded_bytes(), "not a path below the root of the disk");
        let mut names = Vec::new();
        for component in path.components() {
            match component {
                Component::Normal(name) => names.push(CString::new(name.as_encoded_bytes()).map_err(|_| invalid())?),
                Component::CurDir => {}
                Component::RootDir | Component::ParentDir | Component::Prefix(_) => return Err(invalid()),
            }
        }
        if names.is_empty() { Err(invalid()) } else { Ok(Self(names)) }
    }

    /// Returns the directories above the last name, and the last name.
    fn split(&self) -> (&[CString], &CStr) {
        match self.0.split_last() {
            Some((name, parents)) => (parents, name),
            None => (&[], c"."),
        }
    }

    /// Checks that the path exists in the source, that no directory above it is a link, and that the target has no
    /// directory in place of a file.
    pub(super) fn check(&self, from: BorrowedFd<'_>, to: BorrowedFd<'_>) -> Result<(), TreeError> {
        let (parents, name) = self.split();
        let (source, path) = open_parents(from, parents)?;
        let path = join(&path, name);
        let found = status(&source, name).map_err(|error| match error {
            Errno::NOENT => TreeError::other(&path, "not found in the restore point"),
            error => TreeError::new(&path, error),
        })?;
        let mut target = duplicate(to)?;
        let mut above = Vec::new();
        for parent in parents {
            above = join(&above, parent);
            target = match open_directory(&target, parent.as_c_str()) {
                Ok(opened) => opened,
                Err(Errno::NOENT) => return Ok(()),
                Err(Errno::NOTDIR | Errno::LOOP) => {
                    return Err(TreeError::other(&above, "not a directory on the disk"));
                }
                Err(error) => return Err(TreeError::new(&above, error)),
            };
        }
        let existing = status(&target, name).ok().map(|status| file_type(&status));
        if existing == Some(FileType::Directory) && file_type(&found) != FileType::Directory {
            return Err(TreeError::other(&path, "is a directory on the disk; move it away first"));
        }
        Ok(())
    }

    pub(super) fn copy(&self, copier: &Copier, from: BorrowedFd<'_>, to: BorrowedFd<'_>) -> Result<(), TreeError> {
        let (parents, name) = self.split();
        let (mut source, mut target) = (duplicate(from)?, duplicate(to)?);
        let mut path = Vec::new();
        for parent in parents {
            path = join(&path, parent);
            let failed = |error| TreeError::new(&path, error);
            let opened = open_directory(&source, parent.as_c_str()).map_err(failed)?;
            target = match open_directory(&target, parent.as_c_str()) {
                Err(Errno::NOENT) => {
                    let created = create_directory(&target, parent, Mode::RWXU).map_err(failed)?;
                    let status = status(&source, parent.as_c_str()).map_err(failed)?;
                    set_attributes(&created, &status).map_err(failed)?;
                    created
                }
                other => other.map_err(failed)?,
            };
            source = opened;
        }
        copier.copy_entry(source.as_fd(), target.as_fd(), name, &join(&path, name), 0)
    }
}

fn duplicate(directory: BorrowedFd<'_>) -> Result<OwnedFd, TreeError> {
    directory.try_clone_to_owned().map_err(|error| TreeError::new(b".", error))
}

/// Opens the last of the directories. Returns its path, too.
fn open_parents(root: BorrowedFd<'_>, names: &[CString]) -> Result<(OwnedFd, Vec<u8>), TreeError> {
    let (mut directory, mut path) = (duplicate(root)?, Vec::new());
    for name in names {
        path = join(&path, name);
        directory = open_directory(&directory, name.as_c_str()).map_err(|error| match error {
            Errno::NOENT => TreeError::other(&path, "not found in the restore point"),
            Errno::NOTDIR | Errno::LOOP => TreeError::other(&path, "not a directory in the restore point"),
            error => TreeError::new(&path, error),
        })?;
    }
    Ok((directory, path))
}

pub(super) struct Copier {
    /// The name of a file until it is complete. A file of this name is left only by a copy that was killed.
    pub(super) temporary: CString,
}

impl Copier {
    fn copy_entry(
        &self,
        from: BorrowedFd<'_>,
        to: BorrowedFd<'_>,
        name: &CStr,
        path: &[u8],
        depth: usize,
    ) -> Result<(), TreeError> {
        let failed = |error: io::Error| TreeError::new(path, error);
        let source = status(from, name).map_err(|error| TreeError::new(path, error))?;
        match file_type(&source) {
            FileType::Directory => self.copy_directory(from, to, name, &source, path, depth),
            FileType::RegularFile => {
                self.replace(to, name, || self.write_file(from, to, name, &source)).map_err(failed)
            }
            FileType::Symlink => self.replace(to, name, || self.write_link(from, to, name, &source)).map_err(failed),
            FileType::Fifo
            | FileType::Socket
            | FileType::CharacterDevice
            | FileType::BlockDevice
            | FileType::Unknown => Ok(()),
        }
    }

    /// The attributes are set after the content, which changes the modification time.
    fn copy_directory(
        &self,
        from: BorrowedFd<'_>,
        to: BorrowedFd<'_>,
        name: &CStr,
        source: &Stat,
        path: &[u8],
        depth: usize,
    ) -> Result<(), TreeError> {
        check_depth(depth, path)?;
        let failed = |error| TreeError::new(path, error);
        let from = open_directory(from, name).map_err(failed)?;
        // Its owner can open the directory even if the copy is interrupted.
        let create = || {
            let created = create_directory(to, name, Mode::RWXU)?;
            let (user, group) = owner(source);
            fchown(&created, Some(user), Some(group))?;
            Ok(created)
        };
        let target = match open_directory(to, name) {
            Err(Errno::NOENT) => create(),
            // A file or link is replaced. It is in the restore point that was taken before.
            Err(Errno::NOTDIR | Errno::LOOP) => unlinkat(to, name, AtFlags::empty()).and_then(|()| create()),
            other => other,
        };
        let target = target.map_err(failed)?;
        for entry in sorted_names(&from).map_err(failed)? {
            self.copy_entry(from.as_fd(), target.as_fd(), &entry, &join(path, &entry), depth + 1)?;
        }
        set_attributes(&target, source).map_err(failed)
    }

    /// Writes a new entry under the temporary name, and renames it.
    fn replace(&self, to: BorrowedFd<'_>, name: &CStr, write: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        match unlinkat(to, self.temporary.as_c_str(), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
        let renamed = write().and_then(|()| Ok(renameat(to, self.temporary.as_c_str(), to, name)?));
        renamed.inspect_err(|_| {
            // The first error is reported. A file that remains is replaced by the next attempt.
            let _ = unlinkat(to, self.temporary.as_c_str(), AtFlags::empty());
        })
    }

    fn write_file(&self, from: BorrowedFd<'_>, to: BorrowedFd<'_>, name: &CStr, source: &Stat) -> io::Result<()> {
        let mut input = open_file(from, name)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut output = File::from(openat(to, self.temporary.as_c_str(), flags, Mode::RUSR | Mode::WUSR)?);
        io::copy(&mut input, &mut output)?;
        Ok(set_attributes(&output, source)?)
    }

    fn write_link(&self, from: BorrowedFd<'_>, to: BorrowedFd<'_>, name: &CStr, source: &Stat) -> io::Result<()> {
        let target = readlinkat(from, name, Vec::new())?;
        let temporary = self.temporary.as_c_str();
        symlinkat(target.as_c_str(), to, temporary)?;
        let (user, group) = owner(source);
        chownat(to, temporary, Some(user), Some(group), AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(utimensat(to, temporary, &timestamps(source), AtFlags::SYMLINK_NOFOLLOW)?)
    }
}

/// Sets the owner first, because that clears bits of the mode.
fn set_attributes(entry: impl AsFd, source: &Stat) -> rustix::io::Result<()> {
    let (user, group) = owner(source);
    fchown(&entry, Some(user), Some(group))?;
    fchmod(&entry, Mode::from_raw_mode(source.st_mode))?;
    futimens(&entry, &timestamps(source))
}

fn owner(source: &Stat) -> (Uid, Gid) {
    (Uid::from_raw(source.st_uid), Gid::from_raw(source.st_gid))
}

fn timestamps(source: &Stat) -> Timestamps {
    let time = |seconds, nanoseconds: u64| Timespec { tv_sec: seconds, tv_nsec: nanoseconds.cast_signed() };
    Timestamps {
        last_access: time(source.st_atime, source.st_atime_nsec),
        last_modification: time(source.st_mtime, source.st_mtime_nsec),
    }
}
