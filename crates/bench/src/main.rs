//! `./dev bench`: what a local cloud costs in time, memory and disk, what the operator makes of an API server, how the
//! agent's SSH server does beside OpenSSH's, devctl beside kubectl, the queue from end to end, and the scheduler alone.
//!
//! Times mean little on a shared machine, so each is also given as a multiple of a yardstick of the same run: how long
//! etcd and the API server alone need, which no cluster can do without; or how much the API server can
//! write; or OpenSSH; or kubectl.

#![expect(clippy::cast_precision_loss, reason = "figures for people")]

mod agent;
mod devctl;
mod local;
mod operator;
mod queue;
mod scheduler;

use std::path::Path;
use std::process::ExitCode;

/// How many servers the operator gets in the end.
const SERVERS: usize = 10_000;

/// What was measured, and which of the goals that are checked were missed.
#[derive(Default)]
struct Report {
    text: String,
    missed: Vec<String>,
}

impl Report {
    /// A goal that is checked: what is said of it if it does not hold.
    fn goal(&mut self, holds: bool, missed: impl FnOnce() -> String) {
        if !holds {
            self.missed.push(missed());
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
        ["local"] => local::run().await.map(Report::from),
        ["operator"] => operator::run(SERVERS).await,
        ["operator", servers] if let Ok(servers) = servers.parse() => operator::run(servers).await,
        ["queue"] => queue::run().await,
        ["scheduler"] => scheduler::run(None),
        ["scheduler", "--openb", directory] => scheduler::run(Some(Path::new(directory))),
        ["rehearsal", ref numbers @ ..] => scheduler::rehearse(numbers).map(Report::from),
        _ => Err(anyhow::anyhow!(
            "name what to measure: agent, devctl, local, operator [SERVERS], queue or scheduler [--openb DIRECTORY]"
        )),
    };
    match report {
        Ok(report) => {
            use std::io::Write as _;
            // A closed pipe has seen enough.
            let _ = write!(std::io::stdout(), "{}", report.text);
            for missed in &report.missed {
                let _ = writeln!(std::io::stderr(), "missed: {missed}");
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
