//! Coordinates `serve` and `init` so that the preStop script runs exactly once per stop. A claimant that dies before it
//! started the script loses its claim, and a run for a cancelled stop does not count for the next stop.
//!
//! Runs are numbered, and each has files in the state directory: one, which only one process can create, names the
//! claimant; the others record the progress. The directory may outlive the container, so the file names contain the
//! start time of PID 1.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use odc_control::Outcome;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::atomic_write::write_atomic;
use crate::bounded_read::read_bounded;
use crate::process_id::ProcessId;
use crate::random;

const MAX_FILE_BYTES: u64 = 64 << 10;

/// Suffixes of the files of a run.
const CLAIMANT: &str = "claimant";
const SCRIPT_PROCESS: &str = "process";
const OUTCOME: &str = "outcome";
const CANCELLED: &str = "cancelled";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreStopRuns {
    directory: PathBuf,
    /// Identifies the run of the container.
    boot_id: String,
}

/// One run of the script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    runs: PreStopRuns,
    number: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    /// This process runs the script and must record the outcome.
    Acquired(Run),
    /// Another process runs or ran the script for this stop.
    HeldByOther(Run),
    /// The script still runs for a cancelled stop. It can be claimed for this one when it has exited.
    PreviousStillRunning(Run),
}

/// What exists for the current stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Availability {
    /// The script can be claimed.
    Unclaimed,
    /// The script still runs for a cancelled stop.
    PreviousStillRunning(Run),
    Claimed(Run),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunState {
    Running,
    Finished(Outcome),
    /// The claimant died before it started the script.
    Abandoned,
}

impl PreStopRuns {
    pub fn new(state_dir: &Path) -> Self {
        let start_ticks = ProcessId::init().start_ticks;
        let boot_id = start_ticks.map_or_else(|| "unknown".to_owned(), |ticks| ticks.to_string());
        Self { directory: state_dir.to_owned(), boot_id }
    }

    /// Claims the script for the current stop. On an error no coordination is possible, and the caller should run the
    /// script.
    pub fn try_claim(&self) -> io::Result<Claim> {
        loop {
            // The next number must follow the run whose state was evaluated, or a concurrent claim would be skipped.
            let last = self.last();
            let next = self.run(last.as_ref().map_or(0, |last| last.number + 1));
            match Self::availability_after(last) {
                Availability::Claimed(run) => return Ok(Claim::HeldByOther(run)),
                Availability::PreviousStillRunning(run) => return Ok(Claim::PreviousStillRunning(run)),
                Availability::Unclaimed => {}
            }
            // On failure another process claimed the number first; evaluate its claim.
            if next.try_create()? {
                return Ok(Claim::Acquired(next));
            }
        }
    }

    pub fn availability(&self) -> Availability {
        Self::availability_after(self.last())
    }

    fn availability_after(last: Option<Run>) -> Availability {
        let Some(last) = last else { return Availability::Unclaimed };
        match (last.state(), last.file(CANCELLED).exists()) {
            (RunState::Abandoned, _) | (RunState::Finished(_), true) => Availability::Unclaimed,
            (RunState::Running, true) => Availability::PreviousStillRunning(last),
            (RunState::Running | RunState::Finished(_), false) => Availability::Claimed(last),
        }
    }

    /// Records that the stop of the last run was cancelled; the next stop runs the script again.
    pub fn cancel(&self) -> io::Result<()> {
        let Some(last) = self.last().filter(|last| !last.file(CANCELLED).exists()) else { return Ok(()) };
        write(&last.file(CANCELLED), &())
    }

    fn last(&self) -> Option<Run> {
        (0..=u32::MAX).map(|number| self.run(number)).take_while(|run| run.file(CLAIMANT).exists()).last()
    }

    fn run(&self, number: u32) -> Run {
        Run { runs: self.clone(), number }
    }
}

impl Run {
    /// Records the script's process, so that others can see when it exits if the claimant dies.
    pub fn record_process(&self, script: ProcessId) -> io::Result<()> {
        write(&self.file(SCRIPT_PROCESS), &script)
    }

    pub fn finish(&self, outcome: &Outcome) -> io::Result<()> {
        write(&self.file(OUTCOME), outcome)
    }

    pub fn state(&self) -> RunState {
        if let Some(outcome) = read(&self.file(OUTCOME)) {
            return RunState::Finished(outcome);
        }
        let claimant = read::<ProcessId>(&self.file(CLAIMANT));
        if claimant.is_some_and(|claimant| claimant.is_running()) {
            return RunState::Running;
        }
        // Read after the check of the claimant: a dead claimant writes nothing more.
        let script = read::<ProcessId>(&self.file(SCRIPT_PROCESS));
        match (read(&self.file(OUTCOME)), script) {
            (Some(outcome), _) => RunState::Finished(outcome),
            (None, Some(script)) if script.is_running() => RunState::Running,
            (None, Some(_)) => RunState::Finished(unknown_outcome()),
            (None, None) => RunState::Abandoned,
        }
    }

    /// Creates the claimant file. Returns false if it exists.
    fn try_create(&self) -> io::Result<bool> {
        // A hard link is created atomically with its content, so no other process sees a partial file.
        let temporary = self.runs.directory.join(format!("pre-stop-{}.claim", random::hex::<8>()));
        write(&temporary, &ProcessId::current())?;
        let linked = fs::hard_link(&temporary, self.file(CLAIMANT));
        let _ = fs::remove_file(&temporary);
        match linked {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            linked => linked.map(|()| true),
        }
    }

    fn file(&self, suffix: &str) -> PathBuf {
        let Self { runs: PreStopRuns { directory, boot_id }, number } = self;
        directory.join(format!("pre-stop-{boot_id}-{number}.{suffix}"))
    }
}

/// The outcome of a script that exited after its claimant had died.
fn unknown_outcome() -> Outcome {
    Outcome::NotStarted { code: 126, reason: "unknown outcome: the process that ran the script died".into() }
}

fn write(path: &Path, value: &impl Serialize) -> io::Result<()> {
    let text = serde_json::to_vec(value)?;
    write_atomic(path, 0o644, |file| file.write_all(&text))
}

fn read<T: DeserializeOwned>(path: &Path) -> Option<T> {
    serde_json::from_slice(&read_bounded(path, MAX_FILE_BYTES).ok()?).ok()
}

#[cfg(test)]
mod tests;
