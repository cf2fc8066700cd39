//! Facts about single objects that the caches do not have, by uid, in memory only.
//!
//! It is never needed for correctness; losing it costs an extra request or a delayed write. Entries exist only while
//! the object is in the cache, so a late reconcile cannot leak one.

use std::collections::HashMap;

use jiff::Timestamp;
use odc_api::v1alpha1::Phase;
use odc_core::devserver::SecretState;
use odc_core::devserver::agent_requests::AgentState;
use parking_lot::Mutex;

#[derive(Default)]
pub struct SoftStates {
    /// Boxed because the table has more slots than entries.
    entries: Mutex<HashMap<String, Box<ServerSoftState>>>,
    /// Of users and disks.
    objects: Mutex<HashMap<String, ObjectState>>,
}

#[derive(Default)]
struct ObjectState {
    /// Consecutive failed reconciliations.
    failures: u32,
    /// Why the last write of an object for it was refused.
    error: Option<String>,
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

    /// Adds a user or disk unless it is known.
    pub fn insert_object(&self, uid: &str) {
        self.objects.lock().entry(uid.to_owned()).or_default();
    }

    pub fn remove_object(&self, uid: &str) {
        self.objects.lock().remove(uid);
    }

    /// As [`Self::record_failure`], for a user or disk.
    pub fn record_object_failure(&self, uid: &str) -> u32 {
        self.objects.lock().get_mut(uid).map_or(1, |object| {
            object.failures = object.failures.saturating_add(1);
            object.failures
        })
    }

    /// Resets the number of failures of a user or disk.
    pub fn record_object_success(&self, uid: &str) {
        if let Some(object) = self.objects.lock().get_mut(uid) {
            object.failures = 0;
        }
    }

    /// Records why the last write for a disk was refused.
    pub fn set_object_error(&self, uid: &str, error: Option<String>) {
        if let Some(object) = self.objects.lock().get_mut(uid) {
            object.error = error;
        }
    }

    pub fn object_error(&self, uid: &str) -> Option<String> {
        self.objects.lock().get(uid)?.error.clone()
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.entries.lock().len() + self.objects.lock().len()
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
