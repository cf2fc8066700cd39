//! The commands for users inside a server: `odc-status` and `odc-keep-alive`. Both are links to this executable; they
//! talk to `serve` over its Unix socket and need no privileges beyond access to it.

pub mod client;
pub mod keep_alive;
pub mod status;

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;

use clap::Parser;

/// Names of the links that `install` creates.
pub const PROGRAM_NAMES: [&str; 2] = [STATUS, KEEP_ALIVE];

const STATUS: &str = "odc-status";
const KEEP_ALIVE: &str = "odc-keep-alive";

/// Show the server, its remaining lifetime, and its activity
#[derive(Debug, Parser)]
#[command(name = STATUS, version, after_help = status::EXAMPLES)]
struct Status {
    #[command(flatten)]
    args: status::Args,
}

/// Treat the server as active for a duration
#[derive(Debug, Parser)]
#[command(name = KEEP_ALIVE, version, after_help = keep_alive::EXAMPLES)]
struct KeepAlive {
    #[command(flatten)]
    args: keep_alive::Args,
}

/// Runs the command that the program name in `args` stands for, if it is one of [`PROGRAM_NAMES`].
pub fn dispatch_by_name(args: impl IntoIterator<Item = OsString>) -> Option<ExitCode> {
    let args: Vec<OsString> = args.into_iter().collect();
    let result = match Path::new(args.first()?).file_name()?.to_str()? {
        STATUS => status::run(&Status::parse_from(args).args),
        KEEP_ALIVE => keep_alive::run(KeepAlive::parse_from(args).args),
        _ => return None,
    };
    Some(result.unwrap_or_else(|error| {
        // If stderr is closed, the exit code still reports the failure.
        let _ = writeln!(io::stderr(), "error: {error:#}");
        ExitCode::FAILURE
    }))
}

/// Prints to stdout. A closed pipe is not an error.
fn print(text: &str) -> anyhow::Result<ExitCode> {
    let mut output = io::stdout().lock();
    match output.write_all(text.as_bytes()).and_then(|()| output.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(ExitCode::SUCCESS),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_line_definitions_are_valid() {
        <Status as clap::CommandFactory>::command().debug_assert();
        <KeepAlive as clap::CommandFactory>::command().debug_assert();
    }

    #[test]
    fn other_program_names_are_not_dispatched() {
        for name in ["odc-agent", "/odc/bin/odc-agent", "odc-statuses", ""] {
            let args = [name, "probe"].map(OsString::from);
            assert!(dispatch_by_name(args).is_none());
        }
    }
}
