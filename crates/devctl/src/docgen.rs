//! Generates `docs/reference/cli.md` and the man pages from the command line. A test checks that the committed files are current.

mod markdown;

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use clap_mangen::Man;

use crate::cli;
use crate::error::{Error, Result};

/// The name of the manual in the header of man pages.
const MANUAL: &str = "Open Developer Cloud Manual";

#[derive(Args, Debug)]
pub struct GenerateArgs {
    /// Format
    pub format: DocFormat,
    /// Markdown file, or directory of the man pages
    pub path: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DocFormat {
    Markdown,
    Man,
}

pub fn run(args: &GenerateArgs) -> Result<()> {
    let written = match args.format {
        DocFormat::Markdown => std::fs::write(&args.path, markdown::render()),
        DocFormat::Man => write_man_pages(&args.path),
    };
    written.map_err(|error| Error::failed(format!("could not write {}: {error}", args.path.display())))
}

/// Writes `devctl.1`, `devctl-create.1` and so on.
fn write_man_pages(directory: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(directory)?;
    let mut command = with_man_examples(cli::command()).disable_help_subcommand(true);
    command.build();
    write_man_page(&command, "devctl", directory)
}

fn write_man_page(command: &clap::Command, name: &str, directory: &Path) -> std::io::Result<()> {
    // Without the commit, which would change every page with every build.
    let man = Man::new(command.clone().version(crate::version::NUMBER));
    let mut page = Vec::new();
    man.render(&mut page)?;
    // Man::render omits the quotes of an empty date, which would shift the other arguments.
    let header =
        format!(".TH \"{}\" \"1\" \"\" \"devctl {}\" \"{MANUAL}\"", name.to_uppercase(), crate::version::NUMBER);
    let page = String::from_utf8_lossy(&page).into_owned();
    let replace_header =
        |line: &str| if line.starts_with(".TH ") { format!("{header}\n") } else { format!("{line}\n") };
    let page: String = page.lines().map(replace_header).collect();
    std::fs::write(directory.join(format!("{name}.1")), page)?;
    for subcommand in command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set()) {
        write_man_page(subcommand, &format!("{name}-{}", subcommand.get_name()), directory)?;
    }
    Ok(())
}

/// Moves the examples to the end, where man pages have them.
fn with_man_examples(command: clap::Command) -> clap::Command {
    let examples = command.get_before_help().map(ToString::to_string);
    let names: Vec<String> = command.get_subcommands().map(|subcommand| subcommand.get_name().to_owned()).collect();
    let command = command.before_help(None::<&str>);
    let command = match examples {
        Some(examples) => command.after_help(examples),
        None => command,
    };
    names.into_iter().fold(command, |command, name| command.mut_subcommand(name, with_man_examples))
}
