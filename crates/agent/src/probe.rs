//! Tells the kubelet whether the server is ready, as the exit code of a command run in the container.
//!
//! Made for startup and readiness probes. A liveness probe would add nothing: if process 1 ends, the kubelet knows.

use std::io::{self, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use crate::args;
use crate::serve::marker::Marker;
use crate::state::directory::{self, LoadError};
use crate::state::{Phase, State};

/// How long the SSH server may take to answer a knock.
const KNOCK: Duration = Duration::from_secs(1);

pub fn run(args: &args::Probe) -> ExitCode {
    let given = args.state.state_dir.as_deref();
    let verdict = verdict(directory::load(given), || is_served(given));
    let (code, line) = match verdict {
        Ok(line) => (ExitCode::SUCCESS, line),
        Err(line) => (ExitCode::FAILURE, line),
    };
    // The kubelet shows the line in an event; if nobody reads it, the code counts.
    let _ = writeln!(io::stdout(), "{line}");
    code
}

/// Ready or not, and why. Neither a failed setup nor an ended entrypoint makes a server useless: its user still wants to
/// get in, if only to see what went wrong. That they can is part of it, if they are to come by SSH.
fn verdict(state: Result<State, LoadError>, is_served: impl FnOnce() -> bool) -> Result<String, String> {
    let state = state.map_err(|error| error.to_string())?;
    match state.phase {
        Phase::Setup => Err("setup is still running".to_owned()),
        Phase::Stopping => Err("the server is stopping".to_owned()),
        Phase::Running if state.serve.is_some() && !is_served() => Err("the SSH server is not listening".to_owned()),
        Phase::Running => {
            let part = |name, run: &Option<crate::state::Run>| {
                let outcome = run.as_ref()?.outcome().filter(|outcome| !outcome.is_success())?;
                Some(format!("; {name} {outcome}"))
            };
            let setup = part("setup", &state.setup).unwrap_or_default();
            let entrypoint = part("the entrypoint", &state.entrypoint).unwrap_or_default();
            Ok(format!("ready{setup}{entrypoint}"))
        }
    }
}

/// Whether somebody listens where `serve` said that it does.
fn is_served(given: Option<&Path>) -> bool {
    let marker = directory::find(given).ok().and_then(|directory| Marker::load(&directory));
    marker.is_some_and(|marker| TcpStream::connect_timeout(&marker.address(), KNOCK).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::process::Process;
    use crate::state::{Ended, Run, VERSION};
    use odc_control::Outcome;

    fn verdict(state: Result<State, LoadError>) -> Result<String, String> {
        super::verdict(state, || false)
    }

    fn state(phase: Phase) -> State {
        State {
            version: VERSION,
            init: Process::own(),
            phase,
            phase_since: Duration::ZERO.into(),
            setup: None,
            entrypoint: None,
            pre_stop: None,
            serve: None,
        }
    }

    #[expect(clippy::unnecessary_wraps, reason = "as the state has it")]
    fn ended(outcome: Outcome) -> Option<Run> {
        let now = Duration::ZERO;
        Some(Run { ended: Some(Ended { at: now.into(), outcome }), ..Run::starting(now) })
    }

    #[test]
    fn only_a_running_server_is_ready() {
        assert_eq!(verdict(Ok(state(Phase::Running))), Ok("ready".to_owned()));
        assert_eq!(verdict(Ok(state(Phase::Setup))), Err("setup is still running".to_owned()));
        assert_eq!(verdict(Ok(state(Phase::Stopping))), Err("the server is stopping".to_owned()));
        assert!(verdict(Err(LoadError::Missing("/run/odc".to_owned()))).unwrap_err().contains("/run/odc"));
    }

    #[test]
    fn where_people_come_by_ssh_somebody_must_listen() {
        let state = State { serve: Some(Run::starting(Duration::ZERO)), ..state(Phase::Running) };
        assert_eq!(super::verdict(Ok(state.clone()), || true), Ok("ready".to_owned()));
        assert_eq!(super::verdict(Ok(state), || false), Err("the SSH server is not listening".to_owned()));
    }

    #[test]
    fn what_failed_is_said_and_leaves_the_server_ready() {
        let failed =
            State { setup: ended(Outcome::Code(3)), entrypoint: ended(Outcome::Signal(9)), ..state(Phase::Running) };
        let line = "ready; setup ended with exit code 3; the entrypoint was ended by signal 9";
        assert_eq!(verdict(Ok(failed)), Ok(line.to_owned()));
        let fine = State { setup: ended(Outcome::Code(0)), ..state(Phase::Running) };
        assert_eq!(verdict(Ok(fine)), Ok("ready".to_owned()));
    }
}
