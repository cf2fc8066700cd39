//! `odc-agent probe`: reports readiness to the kubelet as the exit code of an exec probe.
//!
//! For startup and readiness probes. A liveness probe is not needed: the kubelet notices when PID 1 exits.

use std::io::{self, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use crate::args;
use crate::init_state::directory::{self, LoadError};
use crate::init_state::{Phase, State};
use crate::serve::endpoint_file::ServeEndpoint;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

pub fn run(args: &args::Probe) -> ExitCode {
    let state_dir = args.state.state_dir.as_deref();
    let readiness = readiness(directory::load(state_dir), || accepts_connections(state_dir));
    let (code, line) = match readiness {
        Ok(line) => (ExitCode::SUCCESS, line),
        Err(line) => (ExitCode::FAILURE, line),
    };
    // The kubelet shows the line in an event.
    let _ = writeln!(io::stdout(), "{line}");
    code
}

/// Returns whether the server is ready, and the reason. A failed setup or an exited entrypoint does not make it
/// unready: the user still needs access, if only to see what failed. If the server runs `serve`, that must accept
/// connections.
fn readiness(state: Result<State, LoadError>, accepts_connections: impl FnOnce() -> bool) -> Result<String, String> {
    let state = state.map_err(|error| error.to_string())?;
    match state.phase {
        Phase::Setup => Err("setup is running".to_owned()),
        Phase::Stopping => Err("the server is stopping".to_owned()),
        Phase::Running if state.serve.is_some() && !accepts_connections() => {
            Err("the SSH server is not listening".to_owned())
        }
        Phase::Running => {
            let failure = |name, run: &Option<crate::init_state::Run>| {
                let outcome = run.as_ref()?.outcome().filter(|outcome| !outcome.is_success())?;
                Some(format!("; {name} {outcome}"))
            };
            let setup = failure("setup", &state.setup).unwrap_or_default();
            let entrypoint = failure("entrypoint", &state.entrypoint).unwrap_or_default();
            Ok(format!("ready{setup}{entrypoint}"))
        }
    }
}

/// Reports whether `serve` accepts connections at its published address.
fn accepts_connections(state_dir: Option<&Path>) -> bool {
    let endpoint = directory::find(state_dir).ok().and_then(|directory| ServeEndpoint::load(&directory));
    endpoint.is_some_and(|endpoint| TcpStream::connect_timeout(&endpoint.loopback_address(), CONNECT_TIMEOUT).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::init_state::{Exit, Run, VERSION};
    use crate::process_id::ProcessId;
    use odc_control::Outcome;

    fn readiness(state: Result<State, LoadError>) -> Result<String, String> {
        super::readiness(state, || false)
    }

    fn state(phase: Phase) -> State {
        State {
            version: VERSION,
            init: ProcessId::current(),
            phase,
            phase_since: Duration::ZERO.into(),
            startup_files: None,
            setup: None,
            entrypoint: None,
            pre_stop: None,
            serve: None,
        }
    }

    #[expect(clippy::unnecessary_wraps, reason = "the type of the field in `State`")]
    fn exited(outcome: Outcome) -> Option<Run> {
        let now = Duration::ZERO;
        Some(Run { ended: Some(Exit { at: now.into(), outcome }), ..Run::started_at(now) })
    }

    #[test]
    fn only_a_running_server_is_ready() {
        assert_eq!(readiness(Ok(state(Phase::Running))), Ok("ready".to_owned()));
        assert_eq!(readiness(Ok(state(Phase::Setup))), Err("setup is running".to_owned()));
        assert_eq!(readiness(Ok(state(Phase::Stopping))), Err("the server is stopping".to_owned()));
        assert!(readiness(Err(LoadError::Missing("/run/odc".to_owned()))).unwrap_err().contains("/run/odc"));
    }

    #[test]
    fn server_with_serve_is_ready_only_if_it_accepts_connections() {
        let state = State { serve: Some(Run::started_at(Duration::ZERO)), ..state(Phase::Running) };
        assert_eq!(super::readiness(Ok(state.clone()), || true), Ok("ready".to_owned()));
        assert_eq!(super::readiness(Ok(state), || false), Err("the SSH server is not listening".to_owned()));
    }

    #[test]
    fn failed_setup_and_entrypoint_are_reported_and_leave_the_server_ready() {
        let failed =
            State { setup: exited(Outcome::Code(3)), entrypoint: exited(Outcome::Signal(9)), ..state(Phase::Running) };
        let line = "ready; setup exited with code 3; entrypoint was terminated by signal 9";
        assert_eq!(readiness(Ok(failed)), Ok(line.to_owned()));
        let fine = State { setup: exited(Outcome::Code(0)), ..state(Phase::Running) };
        assert_eq!(readiness(Ok(fine)), Ok("ready".to_owned()));
    }
}
