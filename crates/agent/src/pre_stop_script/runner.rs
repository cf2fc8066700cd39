//! `odc-agent pre-stop`: runs the preStop script for `serve` in a separate process, so that the script continues, its
//! output is read and its outcome is recorded even if `serve` exits.

use std::fs::File;
use std::io;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::PathBuf;
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use odc_control::Outcome;
use rustix::process::{Pid, Signal, kill_process_group};

use crate::args;
use crate::log::join_timeout;
use crate::pre_stop_script::claim::{Claim, PreStopRuns, Run};
use crate::process_id::{ProcessId, SELF_EXE};
use crate::script::{self, Script};

const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Time for the output to reach the log before the outcome is recorded.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(200);

#[derive(Clone, Debug)]
pub struct Runner {
    pub state_dir: PathBuf,
    pub script: PathBuf,
    pub timeout: Duration,
}

impl Runner {
    /// Returns the command line of the separate process. It gets its own process group, so that signals to the group of
    /// `serve` do not reach it.
    pub fn command(&self) -> Command {
        let Self { state_dir, script, timeout } = self;
        let mut command = Command::new(SELF_EXE);
        command.arg("pre-stop").arg("--state-dir").arg(state_dir).arg("--script").arg(script);
        command.args(["--timeout-milliseconds", &timeout.as_millis().to_string()]);
        command.stdin(Stdio::null()).process_group(0);
        command
    }

    /// Runs the script, unless another process runs or ran it for this stop. Returns when the output is closed.
    pub fn run(&self) -> Option<Outcome> {
        let run = match PreStopRuns::new(&self.state_dir).try_claim() {
            Ok(Claim::Acquired(run)) => Some(run),
            Ok(Claim::HeldByOther(_) | Claim::PreviousStillRunning(_)) => return None,
            // Without coordination, running the script twice is better than not at all.
            Err(_) => None,
        };
        let log = File::create(self.state_dir.join("pre-stop.log")).ok();
        let (outcome, output_threads) = match script::prepare(&self.script, "pre-stop", log) {
            Ok(Script { command, output_thread, exec_error }) => {
                (exec_error.outcome(self.wait(command, run.as_ref())), vec![output_thread])
            }
            Err(outcome) => (outcome, vec![]),
        };
        join_timeout(&output_threads, DRAIN_TIMEOUT);
        // If this fails, the outcome is reported as unknown.
        let _ = run.map(|run| run.finish(&outcome));
        for thread in output_threads {
            let _ = thread.join();
        }
        Some(outcome)
    }

    fn wait(&self, mut command: Command, run: Option<&Run>) -> Outcome {
        let failed = |error: io::Error| Outcome::failed_to_start(&self.script.display().to_string(), &error);
        let deadline = Instant::now() + self.timeout;
        let mut child = match command.process_group(0).spawn() {
            Ok(child) => child,
            Err(error) => return failed(error),
        };
        // Closes the write end of the output pipe, or its reader would never see the end.
        drop(command);
        if let (Some(process), Some(run)) = (ProcessId::of_pid(child.id()), run) {
            let _ = run.record_process(process);
        }
        loop {
            match child.try_wait() {
                Ok(Some(status)) => return outcome(status),
                Ok(None) if Instant::now() < deadline => thread::sleep(POLL_INTERVAL),
                Ok(None) => break,
                Err(error) => return failed(error),
            }
        }
        // The child is not reaped yet, so its PID cannot be reused.
        if let Some(pid) = child.id().try_into().ok().and_then(Pid::from_raw) {
            let _ = kill_process_group(pid, Signal::KILL);
        }
        Outcome::TimedOut
    }
}

pub fn run(args: &args::PreStop) -> ExitCode {
    let args::PreStop { state_dir, script, timeout_milliseconds } = args;
    let timeout = Duration::from_millis(*timeout_milliseconds);
    let outcome = Runner { state_dir: state_dir.clone(), script: script.clone(), timeout }.run();
    ExitCode::from(outcome.map_or(0, |outcome| outcome.exit_code()))
}

pub fn outcome(status: ExitStatus) -> Outcome {
    status.code().map_or_else(|| Outcome::Signal(status.signal().unwrap_or_default()), Outcome::Code)
}
