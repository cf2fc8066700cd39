//! The executable: parses the command line, runs the command, and turns the result into an exit code.

use std::io::Write as _;
use std::process::ExitCode;

use clap::FromArgMatches as _;
use odc_devctl::cli::{self, Cli};
use odc_devctl::command;
use odc_devctl::error::{Error, Kind};
use odc_devctl::output::style::{CYAN, RED, paint};
use odc_devctl::output::{is_dumb_terminal, sanitize};

fn main() -> ExitCode {
    if is_dumb_terminal() {
        // Otherwise anstream enables colors in CI even with TERM=dumb.
        anstream::ColorChoice::Never.write_global();
    }
    clap_complete::CompleteEnv::with_factory(cli::command).complete();
    let program = std::env::args_os().next();
    let mut clap_command = cli::command_as(program.as_deref());
    let matches = clap_command
        .try_get_matches_from_mut(std::env::args_os())
        .unwrap_or_else(|error| cli::suggest_double_dash(error).exit());
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.format(&mut clap_command).exit());
    // Without an explicit choice, rustls panics when two crypto providers are linked in.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let result = match runtime {
        Ok(runtime) => runtime.block_on(command::run(cli)),
        Err(error) => Err(Error::failed(format!("could not start the async runtime: {error}"))),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print_error(&error);
            error.exit_code()
        }
    }
}

fn print_error(error: &Error) {
    if error.message.is_empty() || error.kind == Kind::ClosedPipe {
        return;
    }
    // The message may quote text from a server or the cluster.
    let mut text = format!("{} {}\n", paint(RED, "error:"), sanitize(&error.message));
    if let Some(hint) = &error.hint {
        text.push_str(&format!("{} {}\n", paint(CYAN, "hint:"), sanitize(hint)));
    }
    // Ignore write errors on stderr.
    let _ = anstream::stderr().write_all(text.as_bytes());
}
