//! `odc-agent exec-session`: calls `setsid(2)`, optionally sets the controlling terminal, changes the directory and
//! executes a program. A separate process does this, because after `fork(2)` `serve` itself may only call
//! async-signal-safe functions.

use std::env::set_current_dir;
use std::io::stdin;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use anyhow::Context as _;
use rustix::process::{ioctl_tiocsctty, setsid};

use crate::args;

/// Returns only if the program cannot be executed.
pub fn run(args: &args::ExecSession) -> anyhow::Result<ExitCode> {
    let args::ExecSession { terminal, directory, name, program } = args;
    setsid().context("cannot create a session")?;
    if *terminal {
        ioctl_tiocsctty(stdin()).context("cannot set the controlling terminal")?;
    }
    // In this process, because the file system of the directory may hang.
    if set_current_dir(directory).is_err() {
        set_current_dir("/").context("cannot change to /")?;
    }
    let (path, arguments) = program.split_first().context("no program given")?;
    let error = Command::new(path).arg0(name).args(arguments).exec();
    anyhow::bail!("cannot execute {}: {error}", path.display())
}
