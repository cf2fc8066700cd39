//! `devctl completion`: what a shell must know to ask devctl itself for words.

use clap_complete::env::{Bash, Elvish, EnvCompleter, Fish, Powershell, Zsh};

use crate::app::Desk;
use crate::args::{Completion, Shell};
use crate::failure::{Failure, Result};

/// The variable by which a shell asks.
const VARIABLE: &str = "COMPLETE";

pub fn run(desk: &Desk, args: &Completion) -> Result<()> {
    let shell: &dyn EnvCompleter = match args.shell {
        Shell::Bash => &Bash,
        Shell::Zsh => &Zsh,
        Shell::Fish => &Fish,
        Shell::Powershell => &Powershell,
        Shell::Elvish => &Elvish,
    };
    let mut script = Vec::new();
    let written = shell.write_registration(VARIABLE, "devctl", "devctl", "devctl", &mut script);
    written.map_err(|error| Failure::failed(format!("the script cannot be made: {error}")))?;
    desk.out.write(&script)
}
