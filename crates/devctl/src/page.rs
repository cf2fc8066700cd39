//! Pages made from the command line: `docs/devctl.md` and man pages. Both are checked in or shipped as they are made, and
//! a test fails when they differ.

mod markdown;

use std::path::Path;

use crate::args::{self, Generate, Page};
use crate::failure::{Failure, Result};

pub fn run(args: &Generate) -> Result<()> {
    let written = match args.what {
        Page::Markdown => std::fs::write(&args.path, markdown::page()),
        Page::Man => man_pages(&args.path),
    };
    written.map_err(|error| Failure::failed(format!("{} cannot be written: {error}", args.path.display())))
}

/// All of `docs/devctl.md`.
pub fn markdown() -> String {
    markdown::page()
}

/// `devctl.1`, `devctl-create.1` and so on, as `man` finds them.
fn man_pages(directory: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(directory)?;
    // The version alone, since the commit would make every page another.
    clap_mangen::generate_to(for_man(args::command()).version(crate::version::NUMBER), directory)
}

/// Examples where man pages have them.
fn for_man(command: clap::Command) -> clap::Command {
    let examples = command.get_before_help().map(ToString::to_string);
    let names: Vec<String> = command.get_subcommands().map(|below| below.get_name().to_owned()).collect();
    let command = command.before_help(None::<&str>);
    let command = match examples {
        Some(examples) => command.after_help(examples),
        None => command,
    };
    names.into_iter().fold(command, |command, name| command.mut_subcommand(name, for_man))
}
