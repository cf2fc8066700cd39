//! The expiry time of the server and its idle settings, as the operator sets them. The agent counts the remaining time
//! on the boot clock, and a restarted `serve` continues.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use odc_control::IdlePolicy;
use serde::{Deserialize, Serialize};

use crate::serve::notify::expiry_warning::ExpiryWarning;
use crate::serve::persisted_state;

const FILE: &str = "deadline.json";

/// The operator repeats the remaining time, each time slightly off. Smaller differences are ignored, so that warnings
/// do not flap.
const DRIFT_TOLERANCE: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub struct Deadline {
    file: PathBuf,
    state: Mutex<DeadlineState>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct DeadlineState {
    /// Expiry in milliseconds since the boot of the node.
    end_milliseconds: Option<u64>,
    idle: Option<IdlePolicy>,
    /// The last warning that was given.
    warned: Option<ExpiryWarning>,
}

impl Deadline {
    /// Loads what a previous `serve` has stored in this run of the container.
    pub fn load(state_dir: &Path) -> Self {
        let file = state_dir.join(FILE);
        Self { state: Mutex::new(persisted_state::load(&file).unwrap_or_default()), file }
    }

    pub fn set(&self, remaining: Option<Duration>, idle: Option<IdlePolicy>, now: Duration) {
        let mut state = self.state();
        let previous = state.clone();
        let end = remaining.map(|remaining| milliseconds(now.saturating_add(remaining)));
        let changed = match (end, state.end_milliseconds) {
            (Some(new), Some(old)) => new.abs_diff(old) > milliseconds(DRIFT_TOLERANCE),
            (new, old) => new != old,
        };
        if changed {
            state.end_milliseconds = end;
        }
        state.idle = idle;
        self.persist(&previous, &state);
    }

    pub fn remaining(&self, now: Duration) -> Option<Duration> {
        self.state().end_milliseconds.map(|end| Duration::from_millis(end).saturating_sub(now))
    }

    pub fn idle_policy(&self) -> Option<IdlePolicy> {
        self.state().idle
    }

    /// Returns the current warning, and whether it is new and must be given.
    pub fn poll_warning(&self, now: Duration) -> (Option<ExpiryWarning>, bool) {
        let remaining = self.remaining(now);
        let mut state = self.state();
        let previous = state.clone();
        let current = remaining.and_then(ExpiryWarning::for_remaining);
        state.warned = current;
        self.persist(&previous, &state);
        (current, current.is_some() && current != previous.warned)
    }

    fn persist(&self, previous: &DeadlineState, state: &DeadlineState) {
        if state != previous {
            // On failure a restarted `serve` has no deadline until the operator sets it again.
            let _ = persisted_state::store(&self.file, state);
        }
    }

    fn state(&self) -> MutexGuard<'_, DeadlineState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
