//! Does in the file system what requests ask for. It blocks; where it may is the caller's to know.

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

use crate::serve::sftp::attributes::Attributes;
use crate::serve::sftp::directory;
use crate::serve::sftp::links::LinkOrder;
use crate::serve::sftp::packet::{Answer, Entry, LARGEST_DATA, Packet, Reply, Request};
use crate::serve::sftp::problem::Status;

const MOST_HANDLES: usize = 256;

/// Bits of a request to open.
const READ: u32 = 0x01;
const WRITE: u32 = 0x02;
const APPEND: u32 = 0x04;
const CREATE: u32 = 0x08;
const TRUNCATE: u32 = 0x10;
const EXCLUSIVE: u32 = 0x20;

/// What one client has open.
#[derive(Debug)]
pub struct Files {
    home: PathBuf,
    link_order: LinkOrder,
    open: HashMap<u32, Handle>,
    next: u32,
}

#[derive(Debug)]
enum Handle {
    File(File),
    Directory(Dir),
}

impl Files {
    /// Names without a slash in front are those in `home`.
    pub fn new(home: PathBuf, link_order: LinkOrder) -> Self {
        Self { home, link_order, open: HashMap::new(), next: 0 }
    }

    /// An error ends the conversation: the client speaks something else.
    pub fn answer(&mut self, packet: Bytes) -> io::Result<Reply> {
        match Packet::parse(packet).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))? {
            Packet::Begin => Ok(Reply::Begin),
            Packet::Request(id, request) => Ok(Reply::Answer(id, self.done(request).unwrap_or_else(Answer::Status))),
        }
    }

    fn done(&mut self, request: Request) -> Result<Answer, Status> {
        match request {
            Request::Open { path, flags, attributes } => self.open(&path, flags, attributes),
            Request::Close { handle } => {
                self.open.remove(&number(&handle)?).ok_or(Errno::BADF)?;
                Ok(ok())
            }
            Request::Read { handle, offset, length } => read(self.file(&handle)?, offset, length),
            Request::Write { handle, offset, data } => {
                self.file(&handle)?.write_all_at(&data, offset)?;
                Ok(ok())
            }
            Request::Stat { path } => Ok(Answer::Attributes((&stat(self.path(&path))?).into())),
            Request::StatLink { path } => Ok(Answer::Attributes((&lstat(self.path(&path))?).into())),
            Request::StatHandle { handle } => Ok(Answer::Attributes((&fstat(self.file(&handle)?)?).into())),
            Request::Set { path, attributes } => set(&self.path(&path), attributes, AtFlags::empty()),
            Request::SetLink { path, attributes } => set(&self.path(&path), attributes, AtFlags::SYMLINK_NOFOLLOW),
            Request::SetHandle { handle, attributes } => set_open(self.file(&handle)?, attributes),
            Request::OpenDirectory { path } => {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
                let directory = Dir::new(open(self.path(&path), flags, Mode::empty())?)?;
                self.keep(Handle::Directory(directory))
            }
            Request::ReadDirectory { handle } => match self.open.get_mut(&number(&handle)?) {
                Some(Handle::Directory(directory)) => {
                    let entries = directory::next(directory)?;
                    if entries.is_empty() { Err(Status::end()) } else { Ok(Answer::Names(entries)) }
                }
                _ => Err(Errno::BADF.into()),
            },
            Request::Remove { path } => unlink(self.path(&path)).map(|()| ok()).map_err(Status::from),
            Request::MakeDirectory { path, attributes } => {
                mkdir(self.path(&path), mode(attributes.permissions, 0o777))?;
                Ok(ok())
            }
            Request::RemoveDirectory { path } => rmdir(self.path(&path)).map(|()| ok()).map_err(Status::from),
            Request::RealPath { path } => Ok(named(real(&self.path(&path))?)),
            Request::ExpandPath { path } => Ok(named(real(&self.expanded(&path)?)?)),
            Request::HomeDirectory => Ok(named(self.home.clone())),
            Request::Rename { from, to, replace } => {
                move_to(&self.path(&from), &self.path(&to), replace)?;
                Ok(ok())
            }
            Request::ReadLink { path } => {
                let target = readlink(self.path(&path), Vec::new())?;
                Ok(named(PathBuf::from(OsStr::from_bytes(target.as_bytes()))))
            }
            // A target is a text in the link, whatever it leads to.
            Request::SymbolicLink { ends } => {
                let (target, link) = self.link_order.sorted(ends);
                symlink(target.as_ref(), self.path(&link))?;
                Ok(ok())
            }
            Request::HardLink { from, to } => {
                linkat(CWD, self.path(&from), CWD, self.path(&to), AtFlags::empty())?;
                Ok(ok())
            }
            Request::FileSystem { path } => Ok(file_system(&statvfs(self.path(&path))?)),
            Request::FileSystemOfHandle { handle } => Ok(file_system(&fstatvfs(self.file(&handle)?)?)),
            Request::Sync { handle } => {
                self.file(&handle)?.sync_all()?;
                Ok(ok())
            }
            Request::Limits => Ok(Answer::Limits { handles: MOST_HANDLES as u64 }),
            Request::Unknown => Err(Status::unsupported()),
        }
    }

    fn open(&mut self, path: &[u8], flags: u32, attributes: Attributes) -> Result<Answer, Status> {
        // What would make others wait, such as a pipe nobody writes to, is not waited for.
        let mut how = OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        how |= match (flags & READ != 0, flags & WRITE != 0) {
            (true, true) => OFlags::RDWR,
            (false, true) => OFlags::WRONLY,
            _ => OFlags::RDONLY,
        };
        for (bit, flag) in
            [(APPEND, OFlags::APPEND), (CREATE, OFlags::CREATE), (TRUNCATE, OFlags::TRUNC), (EXCLUSIVE, OFlags::EXCL)]
        {
            how.set(flag, flags & bit != 0);
        }
        if self.open.len() >= MOST_HANDLES {
            return Err(Errno::MFILE.into());
        }
        let file = File::from(open(self.path(path), how, mode(attributes.permissions, 0o666))?);
        self.keep(Handle::File(file))
    }

    fn keep(&mut self, handle: Handle) -> Result<Answer, Status> {
        if self.open.len() >= MOST_HANDLES {
            return Err(Errno::MFILE.into());
        }
        while self.open.contains_key(&self.next) {
            self.next = self.next.wrapping_add(1);
        }
        let number = self.next;
        self.next = self.next.wrapping_add(1);
        self.open.insert(number, handle);
        Ok(Answer::Handle(Bytes::copy_from_slice(&number.to_be_bytes())))
    }

    fn file(&self, handle: &[u8]) -> Result<&File, Status> {
        match self.open.get(&number(handle)?) {
            Some(Handle::File(file)) => Ok(file),
            _ => Err(Errno::BADF.into()),
        }
    }

    fn path(&self, name: &[u8]) -> PathBuf {
        self.home.join(OsStr::from_bytes(name))
    }

    /// With a tilde in front, as shells know it. There are no others whose home it could be.
    fn expanded(&self, name: &[u8]) -> Result<PathBuf, Status> {
        match name.strip_prefix(b"~") {
            Some(b"") => Ok(self.home.clone()),
            Some([b'/', rest @ ..]) => Ok(self.path(rest)),
            Some(_) => Err(Errno::NOENT.into()),
            None => Ok(self.path(name)),
        }
    }
}

fn ok() -> Answer {
    Answer::Status(Status::ok())
}

fn named(path: PathBuf) -> Answer {
    let name = path.into_os_string().into_encoded_bytes();
    Answer::Names(vec![Entry { line: name.clone(), name, attributes: Attributes::default() }])
}

fn file_system(there: &StatVfs) -> Answer {
    // Of the flags, the protocol knows read-only and without set-uid, which Linux numbers alike.
    let flags = there.f_flag.bits() & 3;
    Answer::FileSystem([
        there.f_bsize,
        there.f_frsize,
        there.f_blocks,
        there.f_bfree,
        there.f_bavail,
        there.f_files,
        there.f_ffree,
        there.f_favail,
        there.f_fsid,
        flags,
        there.f_namemax,
    ])
}

fn number(handle: &[u8]) -> Result<u32, Status> {
    Ok(u32::from_be_bytes(handle.try_into().map_err(|_| Errno::BADF)?))
}

fn mode(permissions: Option<u32>, otherwise: u32) -> Mode {
    Mode::from_raw_mode(permissions.unwrap_or(otherwise) & 0o7777)
}

fn read(file: &File, offset: u64, length: u32) -> Result<Answer, Status> {
    let mut data = vec![0; (length as usize).min(LARGEST_DATA)];
    let count = file.read_at(&mut data, offset)?;
    if count == 0 && length > 0 {
        return Err(Status::end());
    }
    data.truncate(count);
    Ok(Answer::Data(data.into()))
}

fn times((access, change): (u32, u32)) -> Timestamps {
    let time = |seconds: u32| Timespec { tv_sec: seconds.into(), tv_nsec: 0 };
    Timestamps { last_access: time(access), last_modification: time(change) }
}

fn owner((user, group): (u32, u32)) -> (Option<Uid>, Option<Gid>) {
    (Some(Uid::from_raw(user)), Some(Gid::from_raw(group)))
}

/// The size first, because cutting a file changes its times.
fn set(path: &Path, attributes: Attributes, how: AtFlags) -> Result<Answer, Status> {
    let follows = how.is_empty();
    if let Some(size) = attributes.size.filter(|_| follows) {
        ftruncate(open(path, OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())?, size)?;
    }
    // A link has no permissions of its own.
    if attributes.permissions.is_some() && follows {
        chmod(path, mode(attributes.permissions, 0))?;
    }
    if let Some(owner_ids) = attributes.owner {
        let (user, group) = owner(owner_ids);
        chownat(CWD, path, user, group, how)?;
    }
    if let Some(given) = attributes.times {
        utimensat(CWD, path, &times(given), how)?;
    }
    Ok(ok())
}

fn set_open(file: &File, attributes: Attributes) -> Result<Answer, Status> {
    if let Some(size) = attributes.size {
        ftruncate(file, size)?;
    }
    if attributes.permissions.is_some() {
        fchmod(file, mode(attributes.permissions, 0))?;
    }
    if let Some(owner_ids) = attributes.owner {
        let (user, group) = owner(owner_ids);
        fchown(file, user, group)?;
    }
    if let Some(given) = attributes.times {
        futimens(file, &times(given))?;
    }
    Ok(ok())
}

/// The protocol's own way replaces nothing.
fn move_to(from: &Path, to: &Path, replace: bool) -> rustix::io::Result<()> {
    if replace {
        return rename(from, to);
    }
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // Not every file system can be asked for that.
        Err(Errno::INVAL | Errno::NOSYS) if lstat(to).is_err() => rename(from, to),
        Err(Errno::INVAL | Errno::NOSYS) => Err(Errno::EXIST),
        done => done,
    }
}

/// As far as there is something: a name that is to be made is resolved by where it would be.
fn real(path: &Path) -> io::Result<PathBuf> {
    match fs::canonicalize(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let parent = path.parent().and_then(|parent| fs::canonicalize(parent).ok());
            match (parent, path.components().next_back()) {
                (Some(parent), Some(Component::Normal(name))) => Ok(parent.join(name)),
                _ => Ok(plain(path)),
            }
        }
        done => done,
    }
}

/// Without dots, by the text alone.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::from("/");
    for component in path.components() {
        match component {
            Component::Normal(name) => plain.push(name),
            Component::ParentDir => drop(plain.pop()),
            _ => {}
        }
    }
    plain
}

#[cfg(test)]
mod tests;
