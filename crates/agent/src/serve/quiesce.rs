//! Makes a server fit to be put away: its preStop script has run, everything is on disk, and what the home holds is
//! written down. May be asked for again and again; the script runs once.

use std::fs::File;
use std::os::unix::process::CommandExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use odc_control::{Listing, Quiesced, Text};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout, timeout_at};

use crate::init::flush::Flush;
use crate::init::once::{Claim, Look, Once};
use crate::init::script;
use crate::outcome::Outcome;
use crate::serve::listing::{self, render};
use crate::state::process::Process;

/// How long a listing may take.
const LISTING: Duration = Duration::from_secs(10);
/// What is kept of the time for what follows the script.
const AFTER_SCRIPT: Duration = Duration::from_secs(20);
const GLANCE: Duration = Duration::from_millis(20);

#[derive(Clone, Debug)]
pub struct Quiesce {
    pub state: PathBuf,
    pub home: PathBuf,
    pub pre_stop: Option<PathBuf>,
}

impl Quiesce {
    /// Ends within the time, whatever hangs.
    pub async fn run(&self, within: Duration) -> Quiesced {
        let end = Instant::now() + within;
        let after_script = AFTER_SCRIPT.min(within / 3);
        let script_until = Instant::now() + within.saturating_sub(after_script);
        let pre_stop = match &self.pre_stop {
            Some(script) => Some(self.pre_stop(script, script_until).await),
            None => None,
        };
        let listing_until = end.min(Instant::now() + LISTING).checked_sub(after_script / 4).unwrap_or(end);
        let (synced, listing) = tokio::join!(flush(end), list(self.home.clone(), listing_until, end));
        let (listing, listing_cut) = listing.unzip();
        Quiesced { pre_stop: pre_stop.map(told), synced, listing, listing_cut: listing_cut.unwrap_or_default() }
    }

    async fn pre_stop(&self, script: &Path, until: Instant) -> Outcome {
        let once = Once::new(&self.state);
        if matches!(once.claim(), Ok(Claim::Theirs)) {
            return others(&once, until).await;
        }
        let outcome = self.run_script(script, &once, until).await.unwrap_or_else(|outcome| outcome);
        // If it cannot be written, whoever asks next runs it again, which is better than never.
        let _ = once.finish(&outcome);
        outcome
    }

    async fn run_script(&self, script: &Path, once: &Once, until: Instant) -> Result<Outcome, Outcome> {
        let failed = |error: std::io::Error| Outcome::failed_to_start(&script.display().to_string(), &error);
        let log = File::create(self.state.join("pre-stop.log")).ok();
        let (mut command, _carrier) = script::prepare(script, "pre-stop", log)?;
        command.process_group(0);
        let mut child = tokio::process::Command::from(command).spawn().map_err(failed)?;
        let pid = child.id();
        if let Some(process) = pid.and_then(Process::of) {
            let _ = once.began(process);
        }
        if let Ok(status) = timeout_at(until.into(), child.wait()).await {
            return Ok(ended(status.map_err(failed)?));
        }
        // It is not reaped yet, so the number is still its own.
        if let Some(pid) = pid.and_then(|pid| Pid::from_raw(pid.try_into().ok()?)) {
            let _ = kill_process_group(pid, Signal::KILL);
        }
        let _ = timeout(Duration::from_secs(1), child.wait()).await;
        Ok(Outcome::TimedOut)
    }
}

/// Waits for the script that somebody else runs.
async fn others(once: &Once, until: Instant) -> Outcome {
    loop {
        if let Look::Ended(outcome) = once.look() {
            return outcome;
        }
        if Instant::now() >= until {
            return Outcome::TimedOut;
        }
        sleep(GLANCE).await;
    }
}

fn ended(status: ExitStatus) -> Outcome {
    status.code().map_or_else(|| Outcome::Signal(status.signal().unwrap_or_default()), Outcome::Code)
}

fn told(outcome: Outcome) -> odc_control::Outcome {
    match outcome {
        Outcome::Code(code) => odc_control::Outcome::Code(code),
        Outcome::Signal(signal) => odc_control::Outcome::Signal(signal),
        Outcome::TimedOut => odc_control::Outcome::TimedOut,
        Outcome::NotStarted { code, reason } => odc_control::Outcome::NotStarted { code, reason: Text::new(reason) },
    }
}

/// Whether everything is on disk. A file system that hangs is not waited for beyond the end.
async fn flush(end: Instant) -> bool {
    let mut flush = Flush::default();
    if flush.begin().is_err() {
        return false;
    }
    while !flush.is_done() {
        if Instant::now() >= end {
            return false;
        }
        sleep(GLANCE).await;
    }
    true
}

async fn list(home: PathBuf, until: Instant, end: Instant) -> Option<(Listing, bool)> {
    let read = spawn_blocking(move || Some(render::text(&listing::read(&home, until).ok()?)));
    timeout_at(end.into(), read).await.ok()?.ok()?
}

#[cfg(test)]
mod tests;
