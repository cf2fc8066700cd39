//! `devctl completion`: a script that lets the shell call devctl for candidates.

use clap::{Args, ValueEnum};
use clap_complete::env::{Bash, Elvish, EnvCompleter, Fish, Powershell, Zsh};

use crate::context::LocalContext;
use crate::error::{Error, Result};

/// The environment variable with which the shell requests candidates.
const COMPLETE_ENV: &str = "COMPLETE";

#[derive(Args, Debug)]
pub struct CompletionArgs {
    /// Shell
    pub shell: Shell,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Shell {
    Bash,
    Zsh,
    Fish,
    Powershell,
    Elvish,
}

pub fn run(ctx: &LocalContext, args: &CompletionArgs) -> Result<()> {
    let shell: &dyn EnvCompleter = match args.shell {
        Shell::Bash => &Bash,
        Shell::Zsh => &Zsh,
        Shell::Fish => &Fish,
        Shell::Powershell => &Powershell,
        Shell::Elvish => &Elvish,
    };
    let mut script = Vec::new();
    let written = shell.write_registration(COMPLETE_ENV, "devctl", "devctl", "devctl", &mut script);
    written.map_err(|error| Error::failed(format!("could not generate the completion script: {error}")))?;
    ctx.out.write(&script)
}
