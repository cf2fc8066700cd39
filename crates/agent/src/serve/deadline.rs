//! How long the server has, and what it is to be warned of. The operator says so whenever it likes; in between time is
//! counted here, on a clock that nobody can set, and a new `serve` goes on counting.

pub mod warning;

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use odc_control::IdleTerms;
use serde::{Deserialize, Serialize};

use crate::serve::deadline::warning::Warning;
use crate::serve::kept;

const FILE: &str = "deadline.json";

/// The operator says the same again and again, each time a little earlier or later. Warnings must not come and go with it.
const SAME: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub struct Deadline {
    file: PathBuf,
    said: Mutex<Said>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Said {
    /// Since the node was started.
    end_milliseconds: Option<u64>,
    idle: Option<IdleTerms>,
    /// The last warning that was given.
    warned: Option<Warning>,
}

impl Deadline {
    /// Goes on with what was said in this life of the container.
    pub fn begin(state: &Path) -> Self {
        let file = state.join(FILE);
        Self { said: Mutex::new(kept::load(&file).unwrap_or_default()), file }
    }

    pub fn set(&self, remaining: Option<Duration>, idle: Option<IdleTerms>, now: Duration) {
        let mut said = self.said();
        let before = said.clone();
        let end = remaining.map(|remaining| milliseconds(now.saturating_add(remaining)));
        let moved = match (end, said.end_milliseconds) {
            (Some(new), Some(old)) => new.abs_diff(old) > milliseconds(SAME),
            (new, old) => new != old,
        };
        if moved {
            said.end_milliseconds = end;
        }
        said.idle = idle;
        self.keep(&before, &said);
    }

    pub fn remaining(&self, now: Duration) -> Option<Duration> {
        self.said().end_milliseconds.map(|end| Duration::from_millis(end).saturating_sub(now))
    }

    pub fn idle(&self) -> Option<IdleTerms> {
        self.said().idle
    }

    /// The warning that holds now, and whether it has to be given because it was not.
    pub fn look(&self, now: Duration) -> (Option<Warning>, bool) {
        let remaining = self.remaining(now);
        let mut said = self.said();
        let before = said.clone();
        let holds = remaining.and_then(Warning::at);
        said.warned = holds;
        self.keep(&before, &said);
        (holds, holds.is_some() && holds != before.warned)
    }

    fn keep(&self, before: &Said, said: &Said) {
        if said != before {
            // Without it, a new `serve` knows nothing until the operator tells it again.
            let _ = kept::store(&self.file, said);
        }
    }

    fn said(&self) -> MutexGuard<'_, Said> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
