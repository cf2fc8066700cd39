//! `./dev bench`: benchmarks of the local cluster, the operator, the agent's SSH server, devctl, disks, the queue end to end,
//! the scheduler alone, and the service layer.
//!
//! Absolute times mean little on a shared machine, so each is also reported relative to a baseline of the same run: the start
//! of a control plane without nodes, the write rate of the API server, OpenSSH, kubectl, a server with an ephemeral home, or
//! Python programs that do the same work.

#![expect(clippy::cast_precision_loss, reason = "printed figures")]

mod agent;
mod cpu;
mod devctl;
mod disks;
mod local;
mod operator;
mod queue;
mod scheduler;
mod service;

use std::path::Path;
use std::process::ExitCode;

/// `tune` plans without any measurement; the scheduler benchmark runs it under callgrind to count instructions.
const USAGE: &str = "use agent, devctl, disks, local, operator [SERVERS], queue, scheduler [--openb DIRECTORY], \
                     service [--short] or tune NODES PLANS PENDING";

/// Default number of servers of the operator benchmark.
const OPERATOR_SERVERS: usize = 10_000;

/// Measurements as Markdown, and the goals that were missed.
#[derive(Default)]
struct Report {
    text: String,
    missed: Vec<String>,
}

impl Report {
    /// Records `message` if a goal is not met.
    fn goal(&mut self, met: bool, message: impl FnOnce() -> String) {
        if !met {
            self.missed.push(message());
        }
    }

    fn append(&mut self, other: Self) {
        self.text += &other.text;
        self.missed.extend(other.missed);
    }
}

impl From<String> for Report {
    fn from(text: String) -> Self {
        Self { text, missed: Vec::new() }
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let report: anyhow::Result<Report> = match *arguments {
        ["agent"] => agent::run().await.map(Report::from),
        ["devctl"] => devctl::run().await,
        ["disks"] => disks::run().await.map(Report::from),
        ["local"] => local::run().await.map(Report::from),
        ["operator"] => operator::run(OPERATOR_SERVERS).await,
        ["operator", servers] if let Ok(servers) = servers.parse() => operator::run(servers).await,
        ["queue"] => queue::run().await,
        ["scheduler"] => scheduler::run(None),
        ["scheduler", "--openb", directory] => scheduler::run(Some(Path::new(directory))),
        ["service"] => service::run(&service::Sizes::FULL).await,
        ["service", "--short"] => service::run(&service::Sizes::SHORT).await,
        ["tune", ref numbers @ ..] => scheduler::tune(numbers).map(Report::from),
        _ => Err(anyhow::anyhow!("unknown benchmark\nhint: {USAGE}")),
    };
    match report {
        Ok(report) => {
            use std::io::Write as _;
            // Ignore a closed pipe.
            let _ = write!(std::io::stdout(), "{}", report.text);
            for missed in &report.missed {
                let _ = writeln!(std::io::stderr(), "goal missed: {missed}");
            }
            if report.missed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            use std::io::Write as _;
            let _ = writeln!(std::io::stderr(), "error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
