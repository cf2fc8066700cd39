//! The preStop script runs once for each stop, whoever is asked first: `serve`, when the operator prepares a stop, or
//! `init`, when the container is told to end. It is never left out because somebody died, and a stop that was called off
//! counts for nothing when the next one comes.
//!
//! Runs have numbers, and each has files. One that only one process can make says who claimed it, the others how far it
//! is. The directory may outlive the container, so the names also carry which life it is.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use odc_control::Outcome;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::random;
use crate::replace::replace;
use crate::state::process::Process;

/// More than any of the files holds.
const LARGEST: u64 = 64 << 10;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Once {
    directory: PathBuf,
    life: String,
}

/// One run of the script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    once: Once,
    number: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    /// We run it, and must say how it ended.
    Ours(Run),
    /// Somebody else does or did, for this stop.
    Theirs(Run),
    /// The script still runs for a stop that was called off. When it has ended, it can be claimed for this one.
    Busy(Run),
}

/// What there is for the stop that is asked for now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Nothing; it can be claimed.
    Open,
    /// The script still runs for a stop that was called off.
    Busy(Run),
    Taken(Run),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Look {
    Running,
    Ended(Outcome),
    /// Whoever claimed it died before the script began.
    Abandoned,
}

impl Once {
    pub fn new(state: &Path) -> Self {
        let life = Process::init().start_ticks.map_or_else(|| "unknown".to_owned(), |ticks| ticks.to_string());
        Self { directory: state.to_owned(), life }
    }

    /// An error means that nobody can take turns here; whoever gets it had better run the script.
    pub fn claim(&self) -> io::Result<Claim> {
        loop {
            // One look for both: what somebody took meanwhile must not be passed over for the next number.
            let last = self.last();
            let next = self.run(last.as_ref().map_or(0, |last| last.number + 1));
            match Self::standing_after(last) {
                Standing::Taken(run) => return Ok(Claim::Theirs(run)),
                Standing::Busy(run) => return Ok(Claim::Busy(run)),
                Standing::Open => {}
            }
            // If somebody else was faster, it is theirs.
            if next.take()? {
                return Ok(Claim::Ours(next));
            }
        }
    }

    pub fn standing(&self) -> Standing {
        Self::standing_after(self.last())
    }

    fn standing_after(last: Option<Run>) -> Standing {
        let Some(last) = last else { return Standing::Open };
        match (last.look(), last.file("off").exists()) {
            (Look::Abandoned, _) | (Look::Ended(_), true) => Standing::Open,
            (Look::Running, true) => Standing::Busy(last),
            (Look::Running | Look::Ended(_), false) => Standing::Taken(last),
        }
    }

    /// The stop that the last run was for does not take place; the next one runs the script again.
    pub fn call_off(&self) -> io::Result<()> {
        let Some(last) = self.last().filter(|last| !last.file("off").exists()) else { return Ok(()) };
        write(&last.file("off"), &())
    }

    fn last(&self) -> Option<Run> {
        (0..=u32::MAX).map(|number| self.run(number)).take_while(|run| run.file("started").exists()).last()
    }

    fn run(&self, number: u32) -> Run {
        Run { once: self.clone(), number }
    }
}

impl Run {
    /// Which process it is. If we die, others can still see when it ends.
    pub fn began(&self, script: Process) -> io::Result<()> {
        write(&self.file("running"), &script)
    }

    pub fn finish(&self, outcome: &Outcome) -> io::Result<()> {
        write(&self.file("json"), outcome)
    }

    pub fn look(&self) -> Look {
        if let Some(outcome) = read(&self.file("json")) {
            return Look::Ended(outcome);
        }
        let claimant = read::<Process>(&self.file("started"));
        if claimant.is_some_and(|claimant| claimant.runs()) {
            return Look::Running;
        }
        // Read only now: whoever is gone writes no more.
        let script = read::<Process>(&self.file("running"));
        match (read(&self.file("json")), script) {
            (Some(outcome), _) => Look::Ended(outcome),
            (None, Some(script)) if script.runs() => Look::Running,
            (None, Some(_)) => Look::Ended(lost()),
            (None, None) => Look::Abandoned,
        }
    }

    /// False if it is somebody else's.
    fn take(&self) -> io::Result<bool> {
        // A link is made as a whole, with the content of what it leads to: nobody ever sees half a claim.
        let draft = self.once.directory.join(format!("pre-stop-{}.claim", random::hex::<8>()));
        write(&draft, &Process::own())?;
        let made = fs::hard_link(&draft, self.file("started"));
        let _ = fs::remove_file(&draft);
        match made {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            made => made.map(|()| true),
        }
    }

    fn file(&self, kind: &str) -> PathBuf {
        let Self { once: Once { directory, life }, number } = self;
        directory.join(format!("pre-stop-{life}-{number}.{kind}"))
    }
}

/// It is over, and nobody is left who knows how it went.
fn lost() -> Outcome {
    Outcome::NotStarted { code: 126, reason: "whoever ran it died before it ended".into() }
}

fn write(path: &Path, value: &impl Serialize) -> io::Result<()> {
    let text = serde_json::to_vec(value)?;
    replace(path, 0o644, |file| file.write_all(&text))
}

fn read<T: DeserializeOwned>(path: &Path) -> Option<T> {
    let mut text = Vec::new();
    File::open(path).ok()?.take(LARGEST).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

#[cfg(test)]
mod tests;
