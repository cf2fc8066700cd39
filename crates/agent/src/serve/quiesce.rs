//! Makes a server fit to be put away: its preStop script has run, everything is on disk, and what the home holds is
//! written down. May be asked for again and again; for one stop, the script runs once.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use odc_control::{Listing, Outcome, Quiesced, Text};
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout_at};

use crate::init::flush::Flush;
use crate::init::once::{Look, Once, Standing};
#[cfg(not(test))]
use crate::pre_stop;
use crate::pre_stop::Job;
use crate::serve::listing::{self, render};

/// How long a listing may take.
const LISTING: Duration = Duration::from_secs(10);
/// What is kept of the time for what follows the script.
const AFTER_SCRIPT: Duration = Duration::from_secs(20);
const GLANCE: Duration = Duration::from_millis(20);
/// How much of a script's output is told if it fails.
const LOG_TAIL: usize = 2 << 10;

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
        let failed = pre_stop.as_ref().is_some_and(|outcome| !outcome.is_success());
        let pre_stop_log = if failed { tail(self.state.join("pre-stop.log"), end).await } else { None };
        let listing_until = end.min(Instant::now() + LISTING).checked_sub(after_script / 4).unwrap_or(end);
        let (synced, listing) = tokio::join!(flush(end), list(self.home.clone(), listing_until, end));
        let (listing, listing_cut) = listing.unzip();
        Quiesced {
            pre_stop,
            pre_stop_log,
            synced: synced.is_ok(),
            not_synced: synced.err().map(Text::new),
            listing,
            listing_cut: listing_cut.unwrap_or_default(),
        }
    }

    /// The stop does not take place; the next one has its own run of the script.
    pub fn call_off(&self) -> std::io::Result<()> {
        Once::new(&self.state).call_off()
    }

    async fn pre_stop(&self, script: &Path, until: Instant) -> Outcome {
        let once = Once::new(&self.state);
        let (mut run, mut runner) = (None, None);
        loop {
            match (&run, &mut runner) {
                (None, asked) => match once.standing() {
                    Standing::Taken(taken) => {
                        run = Some(taken);
                        continue;
                    }
                    Standing::Busy(_) => {}
                    Standing::Open => match asked {
                        None => *asked = Some(tokio::spawn(run_apart(self.job(script, until)))),
                        // It could not say so, but it is done.
                        Some(over) if over.is_finished() => return over.await.unwrap_or(Outcome::TimedOut),
                        Some(_) => {}
                    },
                },
                (Some(taken), _) => match taken.look() {
                    Look::Ended(outcome) => return outcome,
                    Look::Running => {}
                    // Whoever wanted to run it is gone.
                    Look::Abandoned => {
                        (run, runner) = (None, None);
                        continue;
                    }
                },
            }
            if Instant::now() >= until {
                return Outcome::TimedOut;
            }
            sleep(GLANCE).await;
        }
    }

    fn job(&self, script: &Path, until: Instant) -> Job {
        let within = until.saturating_duration_since(Instant::now());
        Job { state: self.state.clone(), script: script.to_owned(), within }
    }
}

/// In a process of its own, which outlives us.
#[cfg(not(test))]
async fn run_apart(job: Job) -> Outcome {
    let mut command = tokio::process::Command::from(job.command());
    match command.status().await {
        Ok(status) => pre_stop::ended(status),
        Err(error) => Outcome::failed_to_start("the agent", &error),
    }
}

/// Here, because what runs the tests is not the agent.
#[cfg(test)]
async fn run_apart(job: Job) -> Outcome {
    spawn_blocking(move || job.run()).await.ok().flatten().unwrap_or(Outcome::Code(0))
}

/// The end of a log, if it can be had in time.
async fn tail(log: PathBuf, end: Instant) -> Option<Text> {
    let read = move || {
        let mut file = File::open(log).ok()?;
        let length = file.metadata().ok()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(LOG_TAIL as u64))).ok()?;
        let mut end = Vec::new();
        file.take(LOG_TAIL as u64).read_to_end(&mut end).ok()?;
        Some(String::from_utf8_lossy(&end).trim().to_owned()).filter(|text| !text.is_empty()).map(Text::new)
    };
    timeout_at(end.into(), spawn_blocking(read)).await.ok()?.ok()?
}

/// Whether everything is on disk, or why not. A file system that hangs is not waited for beyond the end.
async fn flush(end: Instant) -> Result<(), String> {
    let mut flush = Flush::default();
    flush.begin().map_err(|error| error.to_string())?;
    while !flush.is_done() {
        if Instant::now() >= end {
            return Err("a file system takes too long".to_owned());
        }
        sleep(GLANCE).await;
    }
    let failures = flush.failures();
    if failures.is_empty() { Ok(()) } else { Err(failures.join("; ")) }
}

async fn list(home: PathBuf, until: Instant, end: Instant) -> Option<(Listing, bool)> {
    let read = spawn_blocking(move || Some(render::text(&listing::read(&home, until).ok()?)));
    timeout_at(end.into(), read).await.ok()?.ok()?
}

#[cfg(test)]
mod tests;
