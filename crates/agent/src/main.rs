//! Entry point: dispatches to the subcommand and turns an error into one line and an exit code.

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser as _;
use odc_agent::args::{Cli, Command};
use odc_agent::serve::forward::resolver;
use odc_agent::serve::session::exec_session;
use odc_agent::{accounts, cli, init, install, pre_stop_script, probe, script, serve, startup_files, tree};

fn main() -> ExitCode {
    if let Some(code) = cli::dispatch_by_name(std::env::args_os()) {
        return code;
    }
    run(Cli::parse()).unwrap_or_else(|error| {
        // If stderr is closed, the exit code still reports the failure.
        let _ = writeln!(std::io::stderr(), "odc-agent: {error:#}");
        ExitCode::FAILURE
    })
}

fn run(Cli { command }: Cli) -> anyhow::Result<ExitCode> {
    match command {
        Command::Install(args) => install::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Prepare(args) => accounts::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Init(args) => init::run(args),
        Command::Serve(args) => serve::run(&args),
        Command::ExecSession(args) => exec_session::run(&args),
        Command::Resolve(args) => resolver::run(&args),
        Command::RunScript(args) => script::run_script::run(&args),
        Command::CreateStartupFiles(args) => startup_files::run(&args),
        Command::PreStop(args) => Ok(pre_stop_script::runner::run(&args)),
        Command::CompareTrees(args) => tree::compare::run(&args).map(|()| ExitCode::SUCCESS),
        Command::CopyPaths(args) => tree::copy::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Probe(args) => Ok(probe::run(&args)),
        Command::Status(args) => cli::status::run(&args),
        Command::KeepAlive(args) => cli::keep_alive::run(args),
    }
}
