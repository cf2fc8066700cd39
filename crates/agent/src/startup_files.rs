//! `odc-agent create-startup-files`: copies the files of the image's `/etc/skel` into a new home, as useradd(8) does. On
//! request, it also replaces the startup files of the shells in an old home, once per server.
//!
//! This is a separate process because the home may be on a file system that hangs, and PID 1 must not hang with it. It
//! can be killed at any time: the [`record`] in the home names the step before its first change, the next start
//! continues there, and every step can be repeated. Files are moved into a [`backup`] before they are replaced.

mod backup;
mod home;
mod record;
mod skel;

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use jiff::Timestamp;
use rustix::fs::{Access, CWD, Dir, FileType, Mode, OFlags, access, openat};
use rustix::io::Errno;

use self::home::Home;
use self::record::{BackupName, Pending, Record, Step};
use crate::args::{self, ServerUid};
use crate::log::Logger;
use crate::tree::{file_type, open_directory, status};

const SKEL: &str = "/etc/skel";

/// Bounds on what is read of `/etc/skel`, and of a home to see whether it is new.
const MAX_ENTRIES: usize = 256;
const MAX_BYTES: u64 = 1 << 20;
/// Levels of directories, with the top.
const MAX_DEPTH: usize = 4;

/// Time for the last lines to reach the container's log.
const LOG_TIMEOUT: Duration = Duration::from_secs(1);

pub fn run(args: &args::CreateStartupFiles) -> anyhow::Result<ExitCode> {
    let home = std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
    let home = home.context("HOME is not an absolute path")?;
    let logger = Logger::new();
    let log = |line: String| logger.log(line);
    let created = StartupFiles { skel: Path::new(SKEL), log: &log, before_change: &|| Ok(()) }.create(
        &home,
        &args.server_uid,
        args.recreate,
        Timestamp::now(),
    );
    logger.close(LOG_TIMEOUT);
    created.with_context(|| format!("cannot create the startup files in {}", home.display()))?;
    Ok(ExitCode::SUCCESS)
}

struct StartupFiles<'a> {
    skel: &'a Path,
    log: &'a dyn Fn(String),
    /// Called before each change. Tests stop there.
    before_change: &'a dyn Fn() -> io::Result<()>,
}

impl StartupFiles<'_> {
    fn create(&self, home: &Path, server: &ServerUid, recreate: bool, now: Timestamp) -> anyhow::Result<()> {
        match access(home, Access::WRITE_OK) {
            Err(Errno::ROFS | Errno::ACCESS) => {
                (self.log)(format!("{} is not writable; its startup files are not changed", home.display()));
                return Ok(());
            }
            other => other?,
        }
        let home = Home::open(home, server, self.before_change)?;
        let skel = self.open_skel();
        let mut record = Record::load(&home)?;
        // Left by a start that was killed or failed, possibly of another server.
        self.finish(&home, skel.as_ref(), &mut record)?;
        let pending = if recreate && !record.is_recreated_for(server) {
            let backup = backup::unused_name(&home, now)?;
            Some(Pending { server: Some(server.as_str().to_owned()), step: Step::Move { backup } })
        } else if skel.is_some() && is_new(&home)? {
            Some(Pending { server: None, step: Step::Copy })
        } else {
            None
        };
        if let Some(pending) = pending {
            record.pending = Some(pending);
            record.store(&home)?;
            self.finish(&home, skel.as_ref(), &mut record)?;
        }
        Ok(())
    }

    /// Executes the pending steps.
    fn finish(&self, home: &Home<'_>, skel: Option<&OwnedFd>, record: &mut Record) -> anyhow::Result<()> {
        let Some(pending) = record.pending.clone() else { return Ok(()) };
        if let Step::Move { backup } = &pending.step {
            self.move_files(home, skel, backup)?;
            record.pending = Some(Pending { step: Step::Copy, ..pending.clone() });
            record.store(home)?;
        }
        if let Some(skel) = skel {
            // A new home has nothing to lose, and its first start should be fast.
            let sync = pending.server.is_some();
            let created = skel::copy(skel.as_fd(), home, sync, self.log)?;
            if created > 0 {
                (self.log)(format!("created {created} startup files from {}", self.skel.display()));
            }
        }
        record.complete();
        record.store(home)
    }

    fn move_files(&self, home: &Home<'_>, skel: Option<&OwnedFd>, backup: &BackupName) -> anyhow::Result<()> {
        let names = backup::startup_file_names(skel.map(OwnedFd::as_fd));
        let moved = backup::move_files(home, &names, backup, self.log)?;
        if moved > 0 {
            (self.log)(format!("moved {moved} startup files to {backup} in the home directory"));
        }
        Ok(())
    }

    /// Returns nothing if the image has no such directory. The path may be a link; it is the image's own.
    fn open_skel(&self) -> Option<OwnedFd> {
        match openat(CWD, self.skel, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()) {
            Ok(skel) => Some(skel),
            Err(Errno::NOENT | Errno::NOTDIR) => None,
            Err(error) => {
                (self.log)(format!("cannot open {}: {error}", self.skel.display()));
                None
            }
        }
    }
}

/// Reports whether the home has no files. Directories without files do not count: the container runtime creates them
/// as mount points of volumes.
fn is_new(home: &Home<'_>) -> anyhow::Result<bool> {
    let has_files = has_files(home, home.root(), 1, &mut { MAX_ENTRIES });
    Ok(!has_files.context("cannot read the home directory")?)
}

/// Returns true if the tree is too large to know.
fn has_files(home: &Home<'_>, directory: BorrowedFd<'_>, depth: usize, remaining: &mut usize) -> io::Result<bool> {
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        let is_own = depth == 1 && (name == c"lost+found" || record::is_own_file(name));
        if name == c"." || name == c".." || is_own {
            continue;
        }
        if *remaining == 0 {
            return Ok(true);
        }
        *remaining -= 1;
        let found = status(directory, name)?;
        if file_type(&found) != FileType::Directory {
            return Ok(true);
        }
        if !home.contains(&found) {
            continue;
        }
        // A directory that the user of the server cannot read belongs to another user.
        let Ok(child) = open_directory(directory, name) else { return Ok(true) };
        if depth == MAX_DEPTH || has_files(home, child.as_fd(), depth + 1, remaining)? {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests;
