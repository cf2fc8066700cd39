//! Brings this executable into a directory that the containers of a server share. Runs in the agent's own image.

use std::fs::{self, File};
use std::io;

use anyhow::Context as _;

use crate::args;
use crate::replace::replace;

/// Safe to repeat: a server that runs the old copy keeps it, because the new one takes its name, not its place.
pub fn run(args: &args::Install) -> anyhow::Result<()> {
    let args::Install { to } = args;
    let own = std::env::current_exe().context("finding this executable")?;
    let mut source = File::open(&own).with_context(|| format!("opening {}", own.display()))?;
    fs::create_dir_all(to).with_context(|| format!("making the directory {}", to.display()))?;
    let copy = to.join("odc-agent");
    replace(&copy, 0o755, |file| io::copy(&mut source, file).map(drop))
        .with_context(|| format!("writing {}", copy.display()))
}
