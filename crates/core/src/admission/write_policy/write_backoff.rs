//! Back-off for admission writes, per server.
//!
//! A rejection (4xx about the content) repeats until the spec changes, so the server is excluded from planning until then or
//! until the back-off ends; otherwise it would hold capacity that it cannot use. Other errors only delay the write.
//!
//! Kept in memory only: losing it costs one more attempt. Times are those of a monotonic clock.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::admission::{Action, Decision};
use crate::plan::Requeue;

/// By the uid of the server.
#[derive(Clone, Debug, Default)]
pub struct WriteBackoff(BTreeMap<String, Failure>);

#[derive(Clone, Copy, Debug)]
struct Failure {
    /// Consecutive failures.
    count: u32,
    until: Duration,
    /// The generation of the server that the API server rejected; `None` for other errors.
    rejected_generation: Option<i64>,
    action: Action,
}

impl Failure {
    /// Returns the remaining back-off. A rejection ends when the generation changes. Status changes do not end it: our own
    /// writes would cause retries without end.
    fn remaining(self, generation: Option<i64>, now: Duration) -> Option<Duration> {
        let is_same = self.rejected_generation.is_none_or(|rejected| generation == Some(rejected));
        Some(self.until.saturating_sub(now)).filter(|remaining| is_same && !remaining.is_zero())
    }
}

impl WriteBackoff {
    /// Returns the number of consecutive failures.
    pub fn failures(&self, uid: &str) -> u32 {
        self.0.get(uid).map_or(0, |failure| failure.count)
    }

    /// Records a failure and backs off until `until`. `is_rejection` is whether the API server rejected the content. Another
    /// error does not end a rejection of the same generation.
    pub fn record_failure(
        &mut self,
        decision: &Decision,
        generation: Option<i64>,
        is_rejection: bool,
        until: Duration,
    ) {
        let count = self.failures(&decision.uid).saturating_add(1);
        let before = self.0.get(&decision.uid).filter(|_| self.is_rejected(&decision.uid, generation));
        let (rejected_generation, action) = match before {
            Some(before) if !is_rejection => (before.rejected_generation, before.action),
            _ => (generation.filter(|_| is_rejection), decision.action),
        };
        self.0.insert(decision.uid.clone(), Failure { count, until, rejected_generation, action });
    }

    /// Reports whether the API server rejected a write for this generation.
    pub fn is_rejected(&self, uid: &str, generation: Option<i64>) -> bool {
        generation.is_some() && self.0.get(uid).is_some_and(|failure| failure.rejected_generation == generation)
    }

    /// Records a successful write. It ends a rejection only of the same kind of action: otherwise a server whose pending
    /// status can be written would be admitted again, with the shortest back-off, whenever capacity is free.
    pub fn record_success(&mut self, decision: &Decision) {
        let kind = std::mem::discriminant(&decision.action);
        let is_ended = |failure: &Failure| {
            failure.rejected_generation.is_none() || std::mem::discriminant(&failure.action) == kind
        };
        if self.0.get(&decision.uid).is_some_and(is_ended) {
            self.0.remove(&decision.uid);
        }
    }

    /// Removes servers that do not exist any more.
    pub fn retain(&mut self, exists: impl Fn(&str) -> bool) {
        self.0.retain(|uid, _| exists(uid));
    }

    /// Returns the servers to exclude from planning, and when the first of them is retried. `generation` returns the current
    /// generation of a server.
    pub fn inadmissible(&self, generation: impl Fn(&str) -> Option<i64>, now: Duration) -> (BTreeSet<String>, Requeue) {
        let rejected = self.0.iter().filter(|(_, failure)| failure.rejected_generation.is_some());
        let remaining = rejected.filter_map(|(uid, failure)| Some((uid, failure.remaining(generation(uid), now)?)));
        let remaining: BTreeMap<&String, Duration> = remaining.collect();
        let requeue = remaining.values().min().map_or(Requeue::AwaitChange, |first| Requeue::After(*first));
        (remaining.into_keys().cloned().collect(), requeue)
    }

    /// Splits decisions into those to write now and those that are backed off, and returns when to retry.
    pub fn split_due(
        &self,
        decisions: Vec<Decision>,
        generation: impl Fn(&str) -> Option<i64>,
        now: Duration,
    ) -> (Vec<Decision>, Vec<Decision>, Requeue) {
        let remaining = |decision: &Decision| self.0.get(&decision.uid)?.remaining(generation(&decision.uid), now);
        let first = decisions.iter().filter_map(remaining).min();
        let (held, due) = decisions.into_iter().partition(|decision| remaining(decision).is_some());
        (due, held, first.map_or(Requeue::AwaitChange, Requeue::After))
    }
}

#[cfg(test)]
mod tests {
    use odc_api::v1alpha1::Admission;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn admit(uid: &str) -> Decision {
        decision(uid, Action::Admit)
    }

    fn decision(uid: &str, action: Action) -> Decision {
        let (namespace, name) = ("dev-ada".into(), "box".into());
        Decision { namespace, name, uid: uid.into(), action, admission: Admission::default() }
    }

    #[test]
    fn rejected_server_is_inadmissible_until_it_changes_or_backoff_ends() {
        let mut backoff = WriteBackoff::default();
        backoff.record_failure(&admit("a"), Some(7), true, 10 * SECOND);
        let inadmissible = |generation, now| backoff.inadmissible(|_| generation, now);
        assert_eq!(inadmissible(Some(7), SECOND), (["a".to_owned()].into(), Requeue::After(9 * SECOND)));
        assert_eq!(inadmissible(Some(8), SECOND), (BTreeSet::new(), Requeue::AwaitChange));
        assert_eq!(inadmissible(Some(7), 10 * SECOND), (BTreeSet::new(), Requeue::AwaitChange));
        // The same for decisions about it.
        let due = |generation, now| backoff.split_due(vec![admit("a")], |_| generation, now).0.len();
        assert_eq!((due(Some(7), SECOND), due(Some(8), SECOND), due(Some(7), 10 * SECOND)), (0, 1, 1));
    }

    #[test]
    fn transient_error_delays_write_but_keeps_server_admissible() {
        let mut backoff = WriteBackoff::default();
        backoff.record_failure(&admit("a"), Some(7), false, 10 * SECOND);
        assert_eq!(backoff.inadmissible(|_| Some(7), SECOND).0, BTreeSet::new());
        // Changes of the server do not end the delay.
        for generation in [7, 8] {
            let (due, held, requeue) = backoff.split_due(vec![admit("a"), admit("b")], |_| Some(generation), SECOND);
            assert_eq!((due, held), (vec![admit("b")], vec![admit("a")]));
            assert_eq!(requeue, Requeue::After(9 * SECOND));
        }
    }

    #[test]
    fn transient_error_does_not_end_rejection() {
        let mut backoff = WriteBackoff::default();
        backoff.record_failure(&admit("a"), Some(7), true, SECOND);
        backoff.record_failure(&decision("a", Action::UpdatePending), Some(7), false, 10 * SECOND);
        assert_eq!(backoff.inadmissible(|_| Some(7), 2 * SECOND).0, ["a".to_owned()].into());
        assert!(backoff.is_rejected("a", Some(7)));
        backoff.record_success(&decision("a", Action::UpdatePending));
        assert_eq!(backoff.failures("a"), 2);
        // The spec changed.
        backoff.record_failure(&admit("a"), Some(8), false, 20 * SECOND);
        assert_eq!(backoff.inadmissible(|_| Some(8), 11 * SECOND).0, BTreeSet::new());
    }

    #[test]
    fn rejections_are_counted_until_success_of_same_action() {
        let mut backoff = WriteBackoff::default();
        assert!(!backoff.is_rejected("a", Some(7)));
        for expect in 1..4 {
            backoff.record_failure(&admit("a"), Some(7), true, SECOND);
            assert_eq!(backoff.failures("a"), expect);
        }
        assert!(backoff.is_rejected("a", Some(7)) && !backoff.is_rejected("a", Some(8)));
        for other in [Action::UpdatePending, Action::ConfirmBooking, Action::Release] {
            backoff.record_success(&decision("a", other));
            assert_eq!(backoff.failures("a"), 3, "{other:?}");
        }
        backoff.record_success(&admit("a"));
        assert_eq!(backoff.failures("a"), 0);
    }

    #[test]
    fn any_success_ends_transient_errors() {
        let mut backoff = WriteBackoff::default();
        backoff.record_failure(&admit("a"), Some(7), false, SECOND);
        assert!(!backoff.is_rejected("a", None));
        backoff.record_success(&decision("a", Action::UpdatePending));
        assert_eq!(backoff.failures("a"), 0);
    }
}
