//! `odc-agent install`: copies this executable, and links with the names of the user commands, into a directory that
//! the containers of a server share. Runs in the agent's own image.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;

use anyhow::Context as _;

use crate::args;
use crate::atomic_write::write_atomic;
use crate::cli;

/// Safe to repeat: a server that runs the old copy keeps its inode.
pub fn run(args: &args::Install) -> anyhow::Result<()> {
    let args::Install { to } = args;
    let executable = std::env::current_exe().context("cannot locate this executable")?;
    let mut source = File::open(&executable).with_context(|| format!("cannot open {}", executable.display()))?;
    fs::create_dir_all(to).with_context(|| format!("cannot create directory {}", to.display()))?;
    let copy = to.join("odc-agent");
    write_atomic(&copy, 0o755, |file| io::copy(&mut source, file).map(drop))
        .with_context(|| format!("cannot write {}", copy.display()))?;
    cli::PROGRAM_NAMES.into_iter().try_for_each(|name| link(to, name))
}

/// Creates or replaces a link to the executable.
fn link(to: &Path, name: &str) -> anyhow::Result<()> {
    let (link, temporary) = (to.join(name), to.join(format!("{name}.next")));
    // May be left from an interrupted run.
    let _ = fs::remove_file(&temporary);
    symlink("odc-agent", &temporary)
        .and_then(|()| fs::rename(&temporary, &link))
        .with_context(|| format!("cannot create link {}", link.display()))
}
