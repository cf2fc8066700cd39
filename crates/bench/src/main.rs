//! `./dev bench`: what a local cloud costs in time, memory and disk.
//!
//! Times mean little on a shared machine, so each is also given as a multiple of a yardstick of the same run: how long
//! etcd and the API server alone need, which no cluster can do without.

mod local;

use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    match local::run().await {
        Ok(report) => {
            use std::io::Write as _;
            // A closed pipe has seen enough.
            let _ = write!(std::io::stdout(), "{report}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            use std::io::Write as _;
            let _ = writeln!(std::io::stderr(), "error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
