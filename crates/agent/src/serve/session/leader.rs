//! `odc-agent session`: becomes the leader of a new session, and then the program it was told. A process of its own does
//! that between being started and being the program, because in the one that starts it nothing but starting is safe.

use std::env::set_current_dir;
use std::io::stdin;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use anyhow::Context as _;
use rustix::process::{ioctl_tiocsctty, setsid};

use crate::args;

/// Returns only if the program cannot be started.
pub fn run(args: &args::Session) -> anyhow::Result<ExitCode> {
    let args::Session { terminal, directory, name, program } = args;
    setsid().context("starting a session")?;
    if *terminal {
        ioctl_tiocsctty(stdin()).context("taking the terminal")?;
    }
    // Here and not before, because a file system that hangs is to make nobody else wait.
    if set_current_dir(directory).is_err() {
        set_current_dir("/").context("going to /")?;
    }
    let (path, arguments) = program.split_first().context("there is no program")?;
    let error = Command::new(path).arg0(name).args(arguments).exec();
    anyhow::bail!("{}: {error}", path.display())
}
