//! The executable: parses what was typed, runs it, turns the outcome into an exit code.

use std::io::Write as _;
use std::process::ExitCode;

use clap::FromArgMatches as _;
use odc_devctl::args::{self, Cli};
use odc_devctl::command;
use odc_devctl::failure::{Failure, Kind};
use odc_devctl::output::style::{RED, painted};
use odc_devctl::output::{dumb, harmless};

fn main() -> ExitCode {
    if dumb() {
        // A terminal that understands no marks understands none in CI either, where colour is otherwise believed in.
        anstream::ColorChoice::Never.write_global();
    }
    clap_complete::CompleteEnv::with_factory(args::command).complete();
    let program = std::env::args_os().next();
    let mut known = args::command_as(program.as_deref());
    let matches = known.try_get_matches_from_mut(std::env::args_os()).unwrap_or_else(|error| args::told(error).exit());
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.format(&mut known).exit());
    // Two TLS back ends in one process would leave the choice to chance.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let outcome = match runtime {
        Ok(runtime) => runtime.block_on(command::run(cli)),
        Err(error) => Err(Failure::failed(format!("this system has no room for one more program: {error}"))),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            tell(&failure);
            failure.exit_code()
        }
    }
}

fn tell(failure: &Failure) {
    if failure.message.is_empty() || failure.kind == Kind::ClosedPipe {
        return;
    }
    // What a server or cluster said is among the words.
    let mut text = format!("{} {}\n", painted(RED, "error:"), harmless(&failure.message));
    if let Some(advice) = &failure.advice {
        text.push_str(&harmless(advice));
        text.push('\n');
    }
    // Nobody is there to be told that nobody is there.
    let _ = anstream::stderr().write_all(text.as_bytes());
}
