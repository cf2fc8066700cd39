//! Executes SFTP requests on the file system. Calls block, so it must run on a blocking thread.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Component, Path, PathBuf};

use bytes::Bytes;
use rustix::fs::{
    AtFlags, CWD, Dir, Gid, Mode, OFlags, RenameFlags, StatVfs, Timespec, Timestamps, Uid, chmod, chownat, fchmod,
    fchown, fstat, fstatvfs, ftruncate, futimens, linkat, lstat, mkdir, open, readlink, rename, renameat_with, rmdir,
    stat, statvfs, symlink, unlink, utimensat,
};
use rustix::io::Errno;

use crate::serve::sftp::attrs::FileAttrs;
use crate::serve::sftp::packet::{Entry, MAX_DATA, Packet, Reply, Request, Response};
use crate::serve::sftp::readdir;
use crate::serve::sftp::status::Status;
use crate::serve::sftp::symlink_order::SymlinkOrder;

/// Per client.
const MAX_HANDLES: usize = 256;

// Flags of `SSH_FXP_OPEN`, section 6.3.
const SSH_FXF_READ: u32 = 0x01;
const SSH_FXF_WRITE: u32 = 0x02;
const SSH_FXF_APPEND: u32 = 0x04;
const SSH_FXF_CREAT: u32 = 0x08;
const SSH_FXF_TRUNC: u32 = 0x10;
const SSH_FXF_EXCL: u32 = 0x20;

/// Open files and directories of one client.
#[derive(Debug)]
pub struct SftpHandler {
    home: PathBuf,
    symlink_order: SymlinkOrder,
    handles: HashMap<u32, Handle>,
    next_handle: u32,
}

#[derive(Debug)]
enum Handle {
    File(File),
    Directory(Dir),
}

impl SftpHandler {
    /// Relative paths are relative to `home`.
    pub fn new(home: PathBuf, symlink_order: SymlinkOrder) -> Self {
        Self { home, symlink_order, handles: HashMap::new(), next_handle: 0 }
    }

    /// Returns an error for a malformed packet, after which the channel must be closed.
    pub fn handle_packet(&mut self, packet: Bytes) -> io::Result<Reply> {
        match Packet::parse(packet).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))? {
            Packet::Init => Ok(Reply::Version),
            Packet::Request(id, request) => {
                Ok(Reply::Response(id, self.handle_request(request).unwrap_or_else(Response::Status)))
            }
        }
    }

    fn handle_request(&mut self, request: Request) -> Result<Response, Status> {
        match request {
            Request::Open { path, flags, attrs } => self.open(&path, flags, attrs),
            Request::Close { handle } => {
                self.handles.remove(&handle_number(&handle)?).ok_or(Errno::BADF)?;
                Ok(ok())
            }
            Request::Read { handle, offset, length } => read(self.file(&handle)?, offset, length),
            Request::Write { handle, offset, data } => {
                self.file(&handle)?.write_all_at(&data, offset)?;
                Ok(ok())
            }
            Request::Stat { path } => Ok(Response::Attrs((&stat(self.path(&path))?).into())),
            Request::Lstat { path } => Ok(Response::Attrs((&lstat(self.path(&path))?).into())),
            Request::Fstat { handle } => Ok(Response::Attrs((&fstat(self.file(&handle)?)?).into())),
            Request::Setstat { path, attrs } => setstat(&self.path(&path), attrs, AtFlags::empty()),
            Request::Lsetstat { path, attrs } => setstat(&self.path(&path), attrs, AtFlags::SYMLINK_NOFOLLOW),
            Request::Fsetstat { handle, attrs } => fsetstat(self.file(&handle)?, attrs),
            Request::Opendir { path } => {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
                let directory = Dir::new(open(self.path(&path), flags, Mode::empty())?)?;
                self.insert_handle(Handle::Directory(directory))
            }
            Request::Readdir { handle } => match self.handles.get_mut(&handle_number(&handle)?) {
                Some(Handle::Directory(directory)) => {
                    let entries = readdir::next_batch(directory)?;
                    if entries.is_empty() { Err(Status::eof()) } else { Ok(Response::Name(entries)) }
                }
                _ => Err(Errno::BADF.into()),
            },
            Request::Remove { path } => unlink(self.path(&path)).map(|()| ok()).map_err(Status::from),
            Request::Mkdir { path, attrs } => {
                mkdir(self.path(&path), mode(attrs.permissions, 0o777))?;
                Ok(ok())
            }
            Request::Rmdir { path } => rmdir(self.path(&path)).map(|()| ok()).map_err(Status::from),
            Request::Realpath { path } => Ok(name_response(realpath(&self.path(&path))?)),
            Request::ExpandPath { path } => Ok(name_response(realpath(&self.expand(&path)?)?)),
            Request::HomeDirectory => Ok(name_response(self.home.clone())),
            Request::Rename { from, to, replace } => {
                rename_path(&self.path(&from), &self.path(&to), replace)?;
                Ok(ok())
            }
            Request::Readlink { path } => {
                let target = readlink(self.path(&path), Vec::new())?;
                Ok(name_response(PathBuf::from(OsStr::from_bytes(target.as_bytes()))))
            }
            // The target is stored as given; it need not exist.
            Request::Symlink { paths } => {
                let (target, link) = self.symlink_order.target_and_link(paths);
                symlink(target.as_ref(), self.path(&link))?;
                Ok(ok())
            }
            Request::Hardlink { from, to } => {
                linkat(CWD, self.path(&from), CWD, self.path(&to), AtFlags::empty())?;
                Ok(ok())
            }
            Request::Statvfs { path } => Ok(statvfs_response(&statvfs(self.path(&path))?)),
            Request::Fstatvfs { handle } => Ok(statvfs_response(&fstatvfs(self.file(&handle)?)?)),
            Request::Fsync { handle } => {
                self.file(&handle)?.sync_all()?;
                Ok(ok())
            }
            Request::Limits => Ok(Response::Limits { max_handles: MAX_HANDLES as u64 }),
            Request::Unknown => Err(Status::unsupported()),
        }
    }

    fn open(&mut self, path: &[u8], flags: u32, attrs: FileAttrs) -> Result<Response, Status> {
        // Does not block on a FIFO without a writer.
        let mut open_flags = OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        open_flags |= match (flags & SSH_FXF_READ != 0, flags & SSH_FXF_WRITE != 0) {
            (true, true) => OFlags::RDWR,
            (false, true) => OFlags::WRONLY,
            _ => OFlags::RDONLY,
        };
        for (bit, flag) in [
            (SSH_FXF_APPEND, OFlags::APPEND),
            (SSH_FXF_CREAT, OFlags::CREATE),
            (SSH_FXF_TRUNC, OFlags::TRUNC),
            (SSH_FXF_EXCL, OFlags::EXCL),
        ] {
            open_flags.set(flag, flags & bit != 0);
        }
        if self.handles.len() >= MAX_HANDLES {
            return Err(Errno::MFILE.into());
        }
        let file = File::from(open(self.path(path), open_flags, mode(attrs.permissions, 0o666))?);
        self.insert_handle(Handle::File(file))
    }

    fn insert_handle(&mut self, handle: Handle) -> Result<Response, Status> {
        if self.handles.len() >= MAX_HANDLES {
            return Err(Errno::MFILE.into());
        }
        while self.handles.contains_key(&self.next_handle) {
            self.next_handle = self.next_handle.wrapping_add(1);
        }
        let number = self.next_handle;
        self.next_handle = self.next_handle.wrapping_add(1);
        self.handles.insert(number, handle);
        Ok(Response::Handle(Bytes::copy_from_slice(&number.to_be_bytes())))
    }

    fn file(&self, handle: &[u8]) -> Result<&File, Status> {
        match self.handles.get(&handle_number(handle)?) {
            Some(Handle::File(file)) => Ok(file),
            _ => Err(Errno::BADF.into()),
        }
    }

    fn path(&self, name: &[u8]) -> PathBuf {
        self.home.join(OsStr::from_bytes(name))
    }

    /// Expands a leading tilde. There are no other users whose home it could name.
    fn expand(&self, name: &[u8]) -> Result<PathBuf, Status> {
        match name.strip_prefix(b"~") {
            Some(b"") => Ok(self.home.clone()),
            Some([b'/', rest @ ..]) => Ok(self.path(rest)),
            Some(_) => Err(Errno::NOENT.into()),
            None => Ok(self.path(name)),
        }
    }
}

fn ok() -> Response {
    Response::Status(Status::ok())
}

/// Returns one name without attributes, as `SSH_FXP_REALPATH` requires.
fn name_response(path: PathBuf) -> Response {
    let name = path.into_os_string().into_encoded_bytes();
    Response::Name(vec![Entry { long_name: name.clone(), name, attrs: FileAttrs::default() }])
}

fn statvfs_response(statvfs: &StatVfs) -> Response {
    // SSH_FXE_STATVFS_ST_RDONLY and SSH_FXE_STATVFS_ST_NOSUID have the values of Linux.
    let flags = statvfs.f_flag.bits() & 3;
    Response::Statvfs([
        statvfs.f_bsize,
        statvfs.f_frsize,
        statvfs.f_blocks,
        statvfs.f_bfree,
        statvfs.f_bavail,
        statvfs.f_files,
        statvfs.f_ffree,
        statvfs.f_favail,
        statvfs.f_fsid,
        flags,
        statvfs.f_namemax,
    ])
}

fn handle_number(handle: &[u8]) -> Result<u32, Status> {
    Ok(u32::from_be_bytes(handle.try_into().map_err(|_| Errno::BADF)?))
}

fn mode(permissions: Option<u32>, default: u32) -> Mode {
    Mode::from_raw_mode(permissions.unwrap_or(default) & 0o7777)
}

fn read(file: &File, offset: u64, length: u32) -> Result<Response, Status> {
    let mut data = vec![0; (length as usize).min(MAX_DATA)];
    let count = file.read_at(&mut data, offset)?;
    if count == 0 && length > 0 {
        return Err(Status::eof());
    }
    data.truncate(count);
    Ok(Response::Data(data.into()))
}

fn timestamps((accessed, modified): (u32, u32)) -> Timestamps {
    let time = |seconds: u32| Timespec { tv_sec: seconds.into(), tv_nsec: 0 };
    Timestamps { last_access: time(accessed), last_modification: time(modified) }
}

fn owner((uid, gid): (u32, u32)) -> (Option<Uid>, Option<Gid>) {
    (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))
}

/// Sets the size first, because truncation changes the times.
fn setstat(path: &Path, attrs: FileAttrs, flags: AtFlags) -> Result<Response, Status> {
    let follow_symlinks = flags.is_empty();
    if let Some(size) = attrs.size.filter(|_| follow_symlinks) {
        ftruncate(open(path, OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())?, size)?;
    }
    // A symbolic link has no permissions.
    if attrs.permissions.is_some() && follow_symlinks {
        chmod(path, mode(attrs.permissions, 0))?;
    }
    if let Some(ids) = attrs.owner {
        let (uid, gid) = owner(ids);
        chownat(CWD, path, uid, gid, flags)?;
    }
    if let Some(times) = attrs.times {
        utimensat(CWD, path, &timestamps(times), flags)?;
    }
    Ok(ok())
}

fn fsetstat(file: &File, attrs: FileAttrs) -> Result<Response, Status> {
    if let Some(size) = attrs.size {
        ftruncate(file, size)?;
    }
    if attrs.permissions.is_some() {
        fchmod(file, mode(attrs.permissions, 0))?;
    }
    if let Some(ids) = attrs.owner {
        let (uid, gid) = owner(ids);
        fchown(file, uid, gid)?;
    }
    if let Some(times) = attrs.times {
        futimens(file, &timestamps(times))?;
    }
    Ok(ok())
}

/// `SSH_FXP_RENAME` does not replace an existing file, section 6.5.
fn rename_path(from: &Path, to: &Path, replace: bool) -> rustix::io::Result<()> {
    if replace {
        return rename(from, to);
    }
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // The file system does not support RENAME_NOREPLACE.
        Err(Errno::INVAL | Errno::NOSYS) if lstat(to).is_err() => rename(from, to),
        Err(Errno::INVAL | Errno::NOSYS) => Err(Errno::EXIST),
        result => result,
    }
}

/// Resolves a path. If it does not exist, its parent is resolved, so that clients can create it.
fn realpath(path: &Path) -> io::Result<PathBuf> {
    match fs::canonicalize(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let parent = path.parent().and_then(|parent| fs::canonicalize(parent).ok());
            match (parent, path.components().next_back()) {
                (Some(parent), Some(Component::Normal(name))) => Ok(parent.join(name)),
                _ => Ok(normalize(path)),
            }
        }
        result => result,
    }
}

/// Removes `.` and `..` without accessing the file system.
fn normalize(path: &Path) -> PathBuf {
    let mut normalized = PathBuf::from("/");
    for component in path.components() {
        match component {
            Component::Normal(name) => normalized.push(name),
            Component::ParentDir => drop(normalized.pop()),
            _ => {}
        }
    }
    normalized
}

#[cfg(test)]
mod tests;
