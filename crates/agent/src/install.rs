//! Brings this executable, with the helpers' names for it, into a directory that the containers of a server share. Runs in the agent's own image.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;

use anyhow::Context as _;

use crate::args;
use crate::helper;
use crate::replace::replace;

/// Safe to repeat: a server that runs the old copy keeps it, because the new one takes its name, not its place.
pub fn run(args: &args::Install) -> anyhow::Result<()> {
    let args::Install { to } = args;
    let own = std::env::current_exe().context("finding this executable")?;
    let mut source = File::open(&own).with_context(|| format!("opening {}", own.display()))?;
    fs::create_dir_all(to).with_context(|| format!("making the directory {}", to.display()))?;
    let copy = to.join("odc-agent");
    replace(&copy, 0o755, |file| io::copy(&mut source, file).map(drop))
        .with_context(|| format!("writing {}", copy.display()))?;
    helper::NAMES.into_iter().try_for_each(|name| link(to, name))
}

/// The same executable under another name.
fn link(to: &Path, name: &str) -> anyhow::Result<()> {
    let (link, next) = (to.join(name), to.join(format!("{name}.next")));
    // What a killed one left is no use to anybody.
    let _ = fs::remove_file(&next);
    symlink("odc-agent", &next)
        .and_then(|()| fs::rename(&next, &link))
        .with_context(|| format!("making the link {}", link.display()))
}
