//! How to wake a server, depending on why it hibernated.

use odc_api::v1alpha1::Phase;
use serde_json::{Value, json};

use crate::model::server::ServerSummary;

#[derive(Clone, Debug, PartialEq)]
pub enum WakeAction {
    /// The server is not hibernated and is not meant to be.
    NotNeeded,
    /// A wake was requested already.
    InProgress,
    /// This patch wakes the server.
    Patch(Value),
}

/// Returns how to wake a server; `id` is a fresh value for `spec.wake`.
pub fn wake_action(server: &ServerSummary, id: &str) -> WakeAction {
    // Hibernated by the user.
    if server.spec.desired.as_deref() == Some("Hibernated") {
        return WakeAction::Patch(json!({"spec": {"desired": "Running"}}));
    }
    if !matches!(server.phase(), Some(Phase::Hibernating | Phase::Hibernated)) {
        return WakeAction::NotNeeded;
    }
    match &server.status.hibernation {
        // The user changed `spec.desired`, or `spec.wake` changed since the hibernation.
        Some(hibernation) if hibernation.cause == "User" || hibernation.observed_wake != server.spec.wake => {
            WakeAction::InProgress
        }
        // Hibernated because of idleness or a drain: any new value of `spec.wake` wakes it.
        _ => WakeAction::Patch(json!({"spec": {"wake": id}})),
    }
}

/// Returns a fresh value for `spec.wake`.
pub fn new_id() -> String {
    format!("devctl-{:016x}", rand::random::<u64>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(desired: &str, wake: Option<&str>, status: &Value) -> ServerSummary {
        let spec = json!({"desired": desired, "wake": wake, "home": {}});
        serde_json::from_value(json!({"metadata": {"name": "box"}, "spec": spec, "status": status})).unwrap()
    }

    fn hibernated(cause: &str, seen: Option<&str>) -> Value {
        json!({"phase": "Hibernated", "hibernation": {"since": "2026-01-01T00:00:00Z", "cause": cause, "observedWake": seen}})
    }

    #[test]
    fn wake_patch_depends_on_the_cause_of_hibernation() {
        let by_user = server("Hibernated", None, &hibernated("User", None));
        assert_eq!(wake_action(&by_user, "new"), WakeAction::Patch(json!({"spec": {"desired": "Running"}})));
        for cause in ["Idle", "Drain"] {
            for seen in [None, Some("old")] {
                let idle = server("Running", seen, &hibernated(cause, seen));
                assert_eq!(wake_action(&idle, "new"), WakeAction::Patch(json!({"spec": {"wake": "new"}})));
            }
        }
    }

    #[test]
    fn requested_wake_is_not_repeated() {
        assert_eq!(
            wake_action(&server("Running", Some("new"), &hibernated("Idle", None)), "newer"),
            WakeAction::InProgress
        );
        assert_eq!(wake_action(&server("Running", None, &hibernated("User", None)), "new"), WakeAction::InProgress);
    }

    #[test]
    fn pending_hibernation_is_cancelled() {
        let soon = server("Hibernated", None, &json!({"phase": "Running"}));
        assert_eq!(wake_action(&soon, "new"), WakeAction::Patch(json!({"spec": {"desired": "Running"}})));
        assert_eq!(wake_action(&server("Running", None, &json!({"phase": "Queued"})), "new"), WakeAction::NotNeeded);
    }

    #[test]
    fn wake_ids_are_unique_and_short() {
        let (one, other) = (new_id(), new_id());
        assert_ne!(one, other);
        assert!(one.len() <= 64);
    }
}
