//! The agent as a process: what was typed is handed to the subcommand, an error becomes one line and an exit code.

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser as _;
use odc_agent::args::{Agent, Command};
use odc_agent::serve::forward::resolve;
use odc_agent::serve::session::leader;
use odc_agent::{init, install, prepare, probe, serve};

fn main() -> ExitCode {
    let Agent { command } = Agent::parse();
    let done = match command {
        Command::Install(args) => install::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Prepare(args) => prepare::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Init(args) => init::run(args),
        Command::Serve(args) => serve::run(&args),
        Command::Session(args) => leader::run(&args),
        Command::Resolve(args) => resolve::run(&args),
        Command::Probe(args) => Ok(probe::run(&args)),
    };
    done.unwrap_or_else(|error| {
        // Nobody may be reading; the exit code still says it.
        let _ = writeln!(std::io::stderr(), "odc-agent: {error:#}");
        ExitCode::FAILURE
    })
}
