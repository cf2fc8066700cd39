//! What wakes a server, depending on who put it to sleep. Pure.

use odc_api::v1alpha1::Phase;
use serde_json::{Value, json};

use crate::glance::Glance;

#[derive(Clone, Debug, PartialEq)]
pub enum Waking {
    /// It does not sleep, and nobody wants it to.
    Awake,
    /// Somebody has asked already.
    UnderWay,
    /// This change of it wakes it.
    By(Value),
}

/// `id` is one that was never used before.
pub fn waking(server: &Glance, id: &str) -> Waking {
    // Whoever said that it should sleep says that it should run.
    if server.spec.desired.as_deref() == Some("Hibernated") {
        return Waking::By(json!({"spec": {"desired": "Running"}}));
    }
    if !matches!(server.phase(), Some(Phase::Hibernating | Phase::Hibernated)) {
        return Waking::Awake;
    }
    match &server.status.hibernation {
        // They have said so meanwhile; or somebody has, as below.
        Some(asleep) if asleep.by == "User" || asleep.wake_seen != server.spec.wake => Waking::UnderWay,
        // Idleness or a drain: any value other than the one of that moment.
        _ => Waking::By(json!({"spec": {"wake": id}})),
    }
}

/// An id for [`waking`].
pub fn new_id() -> String {
    format!("devctl-{:016x}", rand::random::<u64>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(desired: &str, wake: Option<&str>, status: &Value) -> Glance {
        let spec = json!({"desired": desired, "wake": wake, "home": {}});
        serde_json::from_value(json!({"metadata": {"name": "box"}, "spec": spec, "status": status})).unwrap()
    }

    fn asleep(by: &str, seen: Option<&str>) -> Value {
        json!({"phase": "Hibernated", "hibernation": {"since": "2026-01-01T00:00:00Z", "by": by, "wakeSeen": seen}})
    }

    #[test]
    fn whoever_put_it_to_sleep_decides_what_wakes_it() {
        let by_user = server("Hibernated", None, &asleep("User", None));
        assert_eq!(waking(&by_user, "new"), Waking::By(json!({"spec": {"desired": "Running"}})));
        for by in ["Idle", "Drain"] {
            for seen in [None, Some("old")] {
                let idle = server("Running", seen, &asleep(by, seen));
                assert_eq!(waking(&idle, "new"), Waking::By(json!({"spec": {"wake": "new"}})));
            }
        }
    }

    #[test]
    fn a_wake_that_was_asked_for_is_not_asked_for_again() {
        assert_eq!(waking(&server("Running", Some("new"), &asleep("Idle", None)), "newer"), Waking::UnderWay);
        assert_eq!(waking(&server("Running", None, &asleep("User", None)), "new"), Waking::UnderWay);
    }

    #[test]
    fn one_that_is_to_be_put_to_sleep_is_woken_before() {
        let soon = server("Hibernated", None, &json!({"phase": "Running"}));
        assert_eq!(waking(&soon, "new"), Waking::By(json!({"spec": {"desired": "Running"}})));
        assert_eq!(waking(&server("Running", None, &json!({"phase": "Queued"})), "new"), Waking::Awake);
    }

    #[test]
    fn ids_are_new_and_fit() {
        let (one, other) = (new_id(), new_id());
        assert_ne!(one, other);
        assert!(one.len() <= 64);
    }
}
