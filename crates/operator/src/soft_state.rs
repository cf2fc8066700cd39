//! Facts about single objects that the caches do not have, by uid, in memory only.
//!
//! It is never needed for correctness; losing it costs an extra request or a delayed write. Entries exist only while
//! the object is in the cache, so a late reconcile cannot leak one.

use std::collections::HashMap;

use jiff::Timestamp;
use odc_api::v1alpha1::Phase;
use odc_core::devserver::SecretState;
use odc_core::devserver::agent_requests::AgentState;
use odc_core::disk::DiskState;
use parking_lot::Mutex;

#[derive(Default)]
pub struct SoftStates {
    /// Boxed because the table has more slots than entries.
    entries: Mutex<HashMap<String, Box<ServerSoftState>>>,
    disks: Mutex<HashMap<String, DiskState>>,
    /// Consecutive failed reconciliations of users and disks.
    object_failures: Mutex<HashMap<String, u32>>,
}

#[derive(Clone, Default)]
pub struct ServerSoftState {
    /// The phase that was decided last but is not written yet, and since when.
    pub deferred_phase: Option<(Phase, Timestamp)>,
    pub secret: SecretState,
    pub secret_checked_at: Option<Timestamp>,
    pub entrypoint: Option<Result<Vec<String>, String>>,
    /// The agents of its pods, by pod uid. A vector because most servers have one pod.
    pub agents: Vec<(String, AgentState)>,
    /// Consecutive failed reconciliations.
    pub failures: u32,
    /// The message of the last failure, once it is shown to the owner.
    pub recurring_error: Option<String>,
    /// Why the API server rejects the scheduler's writes to this server.
    pub rejection: Option<String>,
}

impl ServerSoftState {
    pub fn agent_mut(&mut self, pod_uid: &str) -> &mut AgentState {
        let index = self.agents.iter().position(|(uid, _)| uid == pod_uid).unwrap_or_else(|| {
            self.agents.reserve_exact(1);
            self.agents.push((pod_uid.to_owned(), AgentState::default()));
            self.agents.len() - 1
        });
        &mut self.agents[index].1
    }
}

impl SoftStates {
    pub fn get(&self, uid: &str) -> ServerSoftState {
        self.entries.lock().get(uid).map(|entry| ServerSoftState::clone(entry)).unwrap_or_default()
    }

    /// Updates an entry. If there is none, the update is applied to a default value and discarded.
    pub fn update<T>(&self, uid: &str, update: impl FnOnce(&mut ServerSoftState) -> T) -> T {
        update(self.entries.lock().get_mut(uid).unwrap_or(&mut Box::default()))
    }

    /// Adds an empty entry unless there is one.
    pub fn insert(&self, uid: &str) {
        let mut entries = self.entries.lock();
        if !entries.contains_key(uid) {
            entries.insert(uid.to_owned(), Box::default());
        }
    }

    pub fn contains(&self, uid: &str) -> bool {
        self.entries.lock().contains_key(uid)
    }

    /// Counts a failed reconciliation. Returns the number of consecutive failures, this one included.
    pub fn record_failure(&self, uid: &str) -> u32 {
        self.update(uid, |entry| {
            entry.failures = entry.failures.saturating_add(1);
            entry.failures
        })
    }

    pub fn remove_pod(&self, server_uid: &str, pod_uid: &str) {
        if let Some(entry) = self.entries.lock().get_mut(server_uid) {
            entry.agents.retain(|(uid, _)| uid != pod_uid);
        }
    }

    pub fn remove(&self, uid: &str) {
        self.entries.lock().remove(uid);
    }

    /// Adds an empty entry for a disk unless there is one.
    pub fn insert_disk(&self, uid: &str) {
        self.disks.lock().entry(uid.to_owned()).or_default();
    }

    pub fn remove_disk(&self, uid: &str) {
        self.disks.lock().remove(uid);
    }

    pub fn disk(&self, uid: &str) -> DiskState {
        self.disks.lock().get(uid).cloned().unwrap_or_default()
    }

    /// Updates the entry of a disk. If there is none, the update is discarded.
    pub fn update_disk(&self, uid: &str, update: impl FnOnce(&mut DiskState)) {
        if let Some(state) = self.disks.lock().get_mut(uid) {
            update(state);
        }
    }

    /// Adds a user or disk unless it is known.
    pub fn insert_object(&self, uid: &str) {
        self.object_failures.lock().entry(uid.to_owned()).or_default();
    }

    pub fn remove_object(&self, uid: &str) {
        self.object_failures.lock().remove(uid);
    }

    /// As [`Self::record_failure`], for a user or disk.
    pub fn record_object_failure(&self, uid: &str) -> u32 {
        self.object_failures.lock().get_mut(uid).map_or(1, |failures| {
            *failures = failures.saturating_add(1);
            *failures
        })
    }

    /// Resets the number of failures of a user or disk.
    pub fn record_object_success(&self, uid: &str) {
        if let Some(failures) = self.object_failures.lock().get_mut(uid) {
            *failures = 0;
        }
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.entries.lock().len() + self.disks.lock().len() + self.object_failures.lock().len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn update_of_removed_entry_is_discarded() {
        let soft_states = SoftStates::default();
        soft_states.insert("a");
        assert_eq!((soft_states.record_failure("a"), soft_states.record_failure("a")), (1, 2));
        // A second insert keeps the entry.
        soft_states.insert("a");
        assert_eq!(soft_states.record_failure("a"), 3);
        soft_states.remove("a");
        assert_eq!((soft_states.record_failure("a"), soft_states.record_failure("a")), (1, 1));
        assert!(!soft_states.contains("a"));
    }
}
