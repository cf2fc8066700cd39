//! Atomic file replacement: a file that exists is complete.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use anyhow::Context as _;

/// Replaces the file by renaming a synced temporary file over it, and creates its directory if missing.
///
/// Readers see the old or the new content, never a part of it. Writers of the same path must not run concurrently: the
/// temporary file has a fixed name, so that an interrupted write leaves at most one behind.
pub fn write_atomic(path: &Path, bytes: impl AsRef<[u8]>, mode: u32) -> anyhow::Result<()> {
    replace(path, bytes.as_ref(), mode).with_context(|| format!("writing {}", path.display()))
}

fn replace(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory)?;
    }
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".next");
    let next = path.with_file_name(name);
    let mut file = File::options().write(true).create(true).truncate(true).mode(mode).open(&next)?;
    file.write_all(bytes)?;
    file.sync_data()?;
    std::fs::rename(&next, path)
}
