//! Moves startup files into a backup directory.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd as _, BorrowedFd};

use anyhow::Context as _;
use jiff::Timestamp;
use rustix::fs::{FileType, Mode, fsync};
use rustix::io::Errno;

use super::MAX_ENTRIES;
use super::home::{Home, Moved};
use super::record::{BackupName, is_own_file};
use crate::tree::{entry_name::escape, file_type, sorted_names, status};

/// Read by bash, zsh, other shells, and readline.
const STARTUP_FILES: [&CStr; 10] = [
    c".bash_login",
    c".bash_logout",
    c".bash_profile",
    c".bashrc",
    c".inputrc",
    c".profile",
    c".zlogin",
    c".zprofile",
    c".zshenv",
    c".zshrc",
];

/// Backup directories that start with the same second.
const MAX_ATTEMPTS: usize = 100;

/// Returns a name that does not exist in the home.
pub fn unused_name(home: &Home<'_>, now: Timestamp) -> anyhow::Result<BackupName> {
    let time = now.strftime("%Y%m%d-%H%M%S").to_string();
    for number in 1..=MAX_ATTEMPTS {
        let suffix = if number == 1 { time.clone() } else { format!("{time}-{number}") };
        let name = BackupName::new(&suffix)?;
        match status(home.root(), name.as_str()) {
            Err(Errno::NOENT) => return Ok(name),
            other => other.context("cannot read the home directory")?,
        };
    }
    anyhow::bail!("too many backup directories with the time {time}; remove some")
}

/// Returns the names of the startup files, including those that the image has. Directories are left out: the user's own
/// files are in them, too.
pub fn startup_file_names(skel: Option<BorrowedFd<'_>>) -> Vec<CString> {
    let is_file = |name: &CString| {
        let found = skel.and_then(|skel| status(skel, name.as_c_str()).ok());
        found.is_some_and(|found| file_type(&found) != FileType::Directory)
    };
    // An error is reported when the directory is copied.
    let of_image = skel.and_then(|skel| sorted_names(skel).ok()).unwrap_or_default();
    let mut names: Vec<CString> =
        of_image.into_iter().take(MAX_ENTRIES).filter(|name| !is_own_file(name)).filter(is_file).collect();
    names.extend(STARTUP_FILES.map(CStr::to_owned));
    names.sort_unstable();
    names.dedup();
    names
}

/// Returns how many files were moved. A link is moved like a file; what it refers to stays in place.
pub fn move_files(
    home: &Home<'_>,
    names: &[CString],
    backup: &BackupName,
    log: &dyn Fn(String),
) -> anyhow::Result<usize> {
    let is_startup_file = |name: &&CString| {
        let found = status(home.root(), name.as_c_str());
        found.is_ok_and(|found| matches!(file_type(&found), FileType::RegularFile | FileType::Symlink))
    };
    let existing: Vec<&CString> = names.iter().filter(is_startup_file).collect();
    if existing.is_empty() {
        return Ok(0);
    }
    let name = CString::new(backup.as_str())?;
    let directory = home
        .open_or_create_directory(home.root(), &name, Mode::RWXU)
        .with_context(|| format!("cannot create the directory {backup}"))?;
    let mut moved = 0;
    for name in existing {
        let failed = || format!("cannot move {} to {backup}", escape(name.to_bytes()));
        match home.move_into(directory.as_fd(), name).with_context(failed)? {
            Moved::Yes => moved += 1,
            Moved::Missing => {}
            Moved::NameInUse => log(format!("{}: the file exists there", failed())),
        }
    }
    fsync(&directory).and_then(|()| fsync(home.root())).context("cannot sync the home directory")?;
    Ok(moved)
}
