//! The small commands for people inside a server: `odc-status` and `odc-keep-alive`. They are this executable under other
//! names, ask `serve` over its socket, and need no rights but to reach it.

pub mod ask;
pub mod keep_alive;
pub mod status;

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;

use clap::Parser;

/// Names of the links that `install` makes.
pub const NAMES: [&str; 2] = [STATUS, KEEP_ALIVE];

const STATUS: &str = "odc-status";
const KEEP_ALIVE: &str = "odc-keep-alive";

/// Show what this server is, how long it has, and whether it counts as used
#[derive(Debug, Parser)]
#[command(name = STATUS, version, after_help = status::EXAMPLES)]
struct Status {
    #[command(flatten)]
    args: status::Args,
}

/// Count this server as used for a time, whatever else is seen
#[derive(Debug, Parser)]
#[command(name = KEEP_ALIVE, version, after_help = keep_alive::EXAMPLES)]
struct KeepAlive {
    #[command(flatten)]
    args: keep_alive::Args,
}

/// If the first word is the name of a helper, does what that does.
pub fn by_name(words: impl IntoIterator<Item = OsString>) -> Option<ExitCode> {
    let words: Vec<OsString> = words.into_iter().collect();
    let name = Path::new(words.first()?).file_name()?.to_str()?;
    let (name, done) = match name {
        STATUS => (STATUS, status::run(&Status::parse_from(words).args)),
        KEEP_ALIVE => (KEEP_ALIVE, keep_alive::run(KeepAlive::parse_from(words).args)),
        _ => return None,
    };
    Some(done.unwrap_or_else(|error| {
        // Nobody may be reading; the exit code still says it.
        let _ = writeln!(io::stderr(), "{name}: {error:#}");
        ExitCode::FAILURE
    }))
}

/// Whoever closes the other end has read enough.
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
    fn the_command_lines_are_consistent() {
        <Status as clap::CommandFactory>::command().debug_assert();
        <KeepAlive as clap::CommandFactory>::command().debug_assert();
    }

    #[test]
    fn other_names_are_not_helpers() {
        for name in ["odc-agent", "/odc/bin/odc-agent", "odc-statuses", ""] {
            let words = [name, "probe"].map(OsString::from);
            assert!(by_name(words).is_none());
        }
    }
}
