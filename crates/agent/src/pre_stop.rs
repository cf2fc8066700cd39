//! `odc-agent pre-stop`: runs the preStop script for `serve`, in a process of its own. Whatever happens to `serve`
//! meanwhile, the script goes on, somebody takes what it prints, and how it ended is written down.

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
use crate::init::journal::finished_within;
use crate::init::once::{Claim, Once, Run};
use crate::init::script::{self, Script};
use crate::state::process::Process;

/// This executable, even if its file was replaced meanwhile.
const OWN_EXECUTABLE: &str = "/proc/self/exe";
const GLANCE: Duration = Duration::from_millis(20);
/// How long what it printed may take into its log before it is said that it ended.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// What there is to run, and where it is written down.
#[derive(Clone, Debug)]
pub struct Job {
    pub state: PathBuf,
    pub script: PathBuf,
    pub within: Duration,
}

impl Job {
    /// What does it. Away from our group, so that what ends us does not end it.
    pub fn command(&self) -> Command {
        let Self { state, script, within } = self;
        let mut command = Command::new(OWN_EXECUTABLE);
        command.arg("pre-stop").arg("--state-dir").arg(state).arg("--script").arg(script);
        command.args(["--within-milliseconds", &within.as_millis().to_string()]);
        command.stdin(Stdio::null()).process_group(0);
        command
    }

    /// Runs it, unless somebody else does or did. Returns when nobody writes to its output any more.
    pub fn run(&self) -> Option<Outcome> {
        let run = match Once::new(&self.state).claim() {
            Ok(Claim::Ours(run)) => Some(run),
            Ok(Claim::Theirs(_) | Claim::Busy(_)) => return None,
            // Where nobody can take turns, twice is better than never.
            Err(_) => None,
        };
        let log = File::create(self.state.join("pre-stop.log")).ok();
        let (outcome, carrier) = match script::prepare(&self.script, "pre-stop", log) {
            Ok(Script { command, carrier, report }) => {
                (report.outcome(self.watch(command, run.as_ref())), vec![carrier])
            }
            Err(outcome) => (outcome, vec![]),
        };
        finished_within(LAST_WORDS, &carrier);
        // If it cannot be written, whoever asks next takes it for lost, and says so.
        let _ = run.map(|run| run.finish(&outcome));
        for carrier in carrier {
            let _ = carrier.join();
        }
        Some(outcome)
    }

    fn watch(&self, mut command: Command, run: Option<&Run>) -> Outcome {
        let failed = |error: io::Error| Outcome::failed_to_start(&self.script.display().to_string(), &error);
        let until = Instant::now() + self.within;
        let mut child = match command.process_group(0).spawn() {
            Ok(child) => child,
            Err(error) => return failed(error),
        };
        // Our end of its output, or nobody would ever see the last writer go.
        drop(command);
        if let (Some(process), Some(run)) = (Process::of(child.id()), run) {
            let _ = run.began(process);
        }
        loop {
            match child.try_wait() {
                Ok(Some(status)) => return ended(status),
                Ok(None) if Instant::now() < until => thread::sleep(GLANCE),
                Ok(None) => break,
                Err(error) => return failed(error),
            }
        }
        // It is not reaped yet, so the number is still its own.
        if let Some(pid) = child.id().try_into().ok().and_then(Pid::from_raw) {
            let _ = kill_process_group(pid, Signal::KILL);
        }
        Outcome::TimedOut
    }
}

pub fn run(args: &args::PreStop) -> ExitCode {
    let args::PreStop { state_dir, script, within_milliseconds } = args;
    let within = Duration::from_millis(*within_milliseconds);
    let outcome = Job { state: state_dir.clone(), script: script.clone(), within }.run();
    ExitCode::from(outcome.map_or(0, |outcome| outcome.exit_code()))
}

pub fn ended(status: ExitStatus) -> Outcome {
    status.code().map_or_else(|| Outcome::Signal(status.signal().unwrap_or_default()), Outcome::Code)
}
