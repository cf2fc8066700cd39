//! The agent as a process: what was typed is handed to the subcommand, an error becomes one line and an exit code.

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser as _;
use odc_agent::args::{Agent, Command};
use odc_agent::serve::forward::resolve;
use odc_agent::serve::session::leader;
use odc_agent::{helper, init, install, pre_stop, prepare, probe, run_script, serve};

fn main() -> ExitCode {
    // The same executable under other names.
    if let Some(code) = helper::by_name(std::env::args_os()) {
        return code;
    }
    run(Agent::parse()).unwrap_or_else(|error| {
        // Nobody may be reading; the exit code still says it.
        let _ = writeln!(std::io::stderr(), "odc-agent: {error:#}");
        ExitCode::FAILURE
    })
}

fn run(Agent { command }: Agent) -> anyhow::Result<ExitCode> {
    match command {
        Command::Install(args) => install::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Prepare(args) => prepare::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Init(args) => init::run(args),
        Command::Serve(args) => serve::run(&args),
        Command::Session(args) => leader::run(&args),
        Command::Resolve(args) => resolve::run(&args),
        Command::RunScript(args) => run_script::run(&args),
        Command::PreStop(args) => Ok(pre_stop::run(&args)),
        Command::Probe(args) => Ok(probe::run(&args)),
        Command::Status(args) => helper::status::run(&args),
        Command::KeepAlive(args) => helper::keep_alive::run(args),
    }
}
