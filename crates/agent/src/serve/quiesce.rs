//! Quiesces a server before a stop: runs the preStop script, syncs the file systems, and lists the home directory.
//! Processes keep running. May be repeated; the script runs once per stop. Also flushes the home before a snapshot.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use odc_control::{Flushed, HomeContent, Outcome, Quiesced, Text};
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout_at};

use crate::bounded_read::read_tail;
use crate::pre_stop_script::claim::{Availability, PreStopRuns, RunState};
#[cfg(not(test))]
use crate::pre_stop_script::runner;
use crate::pre_stop_script::runner::Runner;
use crate::syncfs::FileSystemSync;
use crate::tree::home_listing;

const LISTING_TIMEOUT: Duration = Duration::from_secs(10);
/// Part of the timeout that is reserved for the steps after the script.
const RESERVED_AFTER_SCRIPT: Duration = Duration::from_secs(20);
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Part of the script's output that is reported if it fails.
const LOG_TAIL_BYTES: u64 = 2 << 10;

#[derive(Clone, Debug)]
pub struct Quiesce {
    pub state_dir: PathBuf,
    pub home: PathBuf,
    pub pre_stop: Option<PathBuf>,
}

impl Quiesce {
    /// Returns before the timeout, even if a step hangs.
    pub async fn run(&self, timeout: Duration) -> Quiesced {
        let deadline = Instant::now() + timeout;
        let after_script = RESERVED_AFTER_SCRIPT.min(timeout / 3);
        let script_deadline = Instant::now() + timeout.saturating_sub(after_script);
        let pre_stop = match &self.pre_stop {
            Some(script) => Some(self.pre_stop(script, script_deadline).await),
            None => None,
        };
        let has_failed = pre_stop.as_ref().is_some_and(|outcome| !outcome.is_success());
        let pre_stop_log = if has_failed { tail(self.state_dir.join("pre-stop.log"), deadline).await } else { None };
        let listing_deadline =
            deadline.min(Instant::now() + LISTING_TIMEOUT).checked_sub(after_script / 4).unwrap_or(deadline);
        let mut sync = FileSystemSync::default();
        let started = sync.start();
        let (synced, home) =
            tokio::join!(finish(sync, started, deadline), list(self.home.clone(), listing_deadline, deadline));
        let (synced, sync_error) = (synced.is_ok(), synced.err().map(Text::new));
        Quiesced { pre_stop, pre_stop_log, synced, sync_error, home }
    }

    /// Syncs and lists the home of a server that continues to run. Returns before the timeout, even if a step hangs.
    pub async fn flush(&self, timeout: Duration) -> Flushed {
        let deadline = Instant::now() + timeout;
        let listing_deadline = Instant::now() + LISTING_TIMEOUT.min(timeout.saturating_sub(timeout / 4));
        let mut sync = FileSystemSync::default();
        let started = sync.start_at(self.home.clone());
        let (synced, home) =
            tokio::join!(finish(sync, started, deadline), list(self.home.clone(), listing_deadline, deadline));
        Flushed { synced: synced.is_ok(), sync_error: synced.err().map(Text::new), home }
    }

    /// Records that the stop was cancelled; the next one runs the script again.
    pub fn cancel(&self) -> io::Result<()> {
        PreStopRuns::new(&self.state_dir).cancel()
    }

    /// Runs the script, or waits for the process that runs it.
    async fn pre_stop(&self, script: &Path, deadline: Instant) -> Outcome {
        let runs = PreStopRuns::new(&self.state_dir);
        let (mut run, mut runner) = (None, None);
        loop {
            match (&run, &mut runner) {
                (None, runner) => match runs.availability() {
                    Availability::Claimed(claimed) => {
                        run = Some(claimed);
                        continue;
                    }
                    Availability::PreviousStillRunning(_) => {}
                    Availability::Unclaimed => match runner {
                        None => *runner = Some(tokio::spawn(spawn_runner(self.runner(script, deadline)))),
                        // It could not record the outcome.
                        Some(task) if task.is_finished() => return task.await.unwrap_or(Outcome::TimedOut),
                        Some(_) => {}
                    },
                },
                (Some(claimed), _) => match claimed.state() {
                    RunState::Finished(outcome) => return outcome,
                    RunState::Running => {}
                    RunState::Abandoned => {
                        (run, runner) = (None, None);
                        continue;
                    }
                },
            }
            if Instant::now() >= deadline {
                return Outcome::TimedOut;
            }
            sleep(POLL_INTERVAL).await;
        }
    }

    fn runner(&self, script: &Path, deadline: Instant) -> Runner {
        let timeout = deadline.saturating_duration_since(Instant::now());
        Runner { state_dir: self.state_dir.clone(), script: script.to_owned(), timeout }
    }
}

/// Runs the script in a separate process, which outlives `serve`.
#[cfg(not(test))]
async fn spawn_runner(runner: Runner) -> Outcome {
    let mut command = tokio::process::Command::from(runner.command());
    match command.status().await {
        Ok(status) => runner::outcome(status),
        Err(error) => Outcome::failed_to_start("the agent", &error),
    }
}

/// In this process, because unit tests do not run in the agent's executable.
#[cfg(test)]
async fn spawn_runner(runner: Runner) -> Outcome {
    spawn_blocking(move || runner.run()).await.ok().flatten().unwrap_or(Outcome::Code(0))
}

/// Returns the end of a log, if it can be read before the deadline.
async fn tail(log: PathBuf, deadline: Instant) -> Option<Text> {
    let read = move || {
        let tail = read_tail(&log, LOG_TAIL_BYTES).ok()?;
        Some(tail.trim()).filter(|text| !text.is_empty()).map(Text::new)
    };
    timeout_at(deadline.into(), spawn_blocking(read)).await.ok()?.ok()?
}

/// Waits for a sync, but not for a file system that hangs beyond the deadline.
async fn finish(mut sync: FileSystemSync, started: io::Result<()>, deadline: Instant) -> Result<(), String> {
    started.map_err(|error| error.to_string())?;
    while !sync.is_done() {
        if Instant::now() >= deadline {
            return Err("a file system is not responding".to_owned());
        }
        sleep(POLL_INTERVAL).await;
    }
    let failures = sync.failures();
    if failures.is_empty() { Ok(()) } else { Err(failures.join("; ")) }
}

async fn list(home: PathBuf, listing_deadline: Instant, deadline: Instant) -> Option<HomeContent> {
    let read = spawn_blocking(move || home_listing::read(&home, listing_deadline).ok());
    timeout_at(deadline.into(), read).await.ok()?.ok()?
}

#[cfg(test)]
mod tests;
