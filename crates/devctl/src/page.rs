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
    clap_mangen::generate_to(args::command(), directory)
}
