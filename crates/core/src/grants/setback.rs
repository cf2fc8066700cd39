//! Servers about which a decision could not be stored: how long they are left alone, and for whom nothing is planned
//! meanwhile.
//!
//! An answer that says no says it again until the object or a rule of the cluster is another one. Whoever is planned for
//! all the same keeps room from everybody else that nobody ever uses. Any other failure may pass by itself, and then the
//! room is still theirs.
//!
//! This is a memory, not a fact that anything rests on: whoever forgets it tries once more. Times are those of a clock
//! that never goes back.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{Decision, What};
use crate::plan::Again;

/// By the uid of the server.
#[derive(Clone, Debug, Default)]
pub struct Setbacks(BTreeMap<String, Setback>);

#[derive(Clone, Copy, Debug)]
struct Setback {
    /// In a row.
    failures: u32,
    until: Duration,
    /// The generation of the server in which the API server refused it; nothing if it did not say no.
    refused_in: Option<i64>,
    what: What,
}

impl Setback {
    /// How long it is left alone. One that was refused and asks for something else since is not. What is written into its
    /// status, by us too, does not count: a new reason each time would make it try without end.
    fn left(self, generation: Option<i64>, now: Duration) -> Option<Duration> {
        let same = self.refused_in.is_none_or(|refused_in| generation == Some(refused_in));
        Some(self.until.saturating_sub(now)).filter(|left| same && !left.is_zero())
    }
}

impl Setbacks {
    /// How often in a row it failed.
    pub fn failures(&self, uid: &str) -> u32 {
        self.0.get(uid).map_or(0, |setback| setback.failures)
    }

    /// It failed once more in this generation, and is left alone until then; `refused` is whether the API server said no.
    /// A failure of another kind takes nothing back that it said before of the same generation.
    pub fn note(&mut self, decision: &Decision, generation: Option<i64>, refused: bool, until: Duration) {
        let failures = self.failures(&decision.uid).saturating_add(1);
        let before = self.0.get(&decision.uid).filter(|_| self.was_refused_in(&decision.uid, generation));
        let (refused_in, what) = match before {
            Some(before) if !refused => (before.refused_in, before.what),
            _ => (generation.filter(|_| refused), decision.what),
        };
        self.0.insert(decision.uid.clone(), Setback { failures, until, refused_in, what });
    }

    /// Whether the API server said no to it in this generation.
    pub fn was_refused_in(&self, uid: &str, generation: Option<i64>) -> bool {
        generation.is_some() && self.0.get(uid).is_some_and(|setback| setback.refused_in == generation)
    }

    /// A decision about it was stored. That ends a refusal only of its own kind: who may wait and may not be granted
    /// anything would otherwise be tried anew, at the shortest distance, whenever there is room.
    pub fn stored(&mut self, decision: &Decision) {
        let kind = std::mem::discriminant(&decision.what);
        let ends = |setback: &Setback| setback.refused_in.is_none() || std::mem::discriminant(&setback.what) == kind;
        if self.0.get(&decision.uid).is_some_and(ends) {
            self.0.remove(&decision.uid);
        }
    }

    /// Only these servers are still there.
    pub fn retain(&mut self, is_there: impl Fn(&str) -> bool) {
        self.0.retain(|uid, _| is_there(uid));
    }

    /// Those for whom nothing is planned, and when the first of them is tried again. `generation` says in which one a
    /// server is now.
    pub fn aside(&self, generation: impl Fn(&str) -> Option<i64>, now: Duration) -> (BTreeSet<String>, Again) {
        let refused = self.0.iter().filter(|(_, setback)| setback.refused_in.is_some());
        let aside: BTreeMap<&String, Duration> =
            refused.filter_map(|(uid, setback)| Some((uid, setback.left(generation(uid), now)?))).collect();
        let again = aside.values().min().map_or(Again::OnChange, |left| Again::After(*left));
        (aside.into_keys().cloned().collect(), again)
    }

    /// What is to be written now, what would probably fail again, and when to try that: apart from the rest, so that one
    /// bad object harms only itself.
    pub fn part(
        &self,
        decisions: Vec<Decision>,
        generation: impl Fn(&str) -> Option<i64>,
        now: Duration,
    ) -> (Vec<Decision>, Vec<Decision>, Again) {
        let left = |decision: &Decision| self.0.get(&decision.uid)?.left(generation(&decision.uid), now);
        let soonest = decisions.iter().filter_map(left).min();
        let (held, due) = decisions.into_iter().partition(|decision| left(decision).is_some());
        (due, held, soonest.map_or(Again::OnChange, Again::After))
    }
}

#[cfg(test)]
mod tests {
    use odc_api::v1alpha1::Admission;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn decision(uid: &str) -> Decision {
        of_kind(uid, What::Grant)
    }

    fn of_kind(uid: &str, what: What) -> Decision {
        let (namespace, name) = ("dev-ada".into(), "box".into());
        Decision { namespace, name, uid: uid.into(), what, admission: Admission::default() }
    }

    #[test]
    fn who_was_refused_is_left_out_until_it_changes_or_its_time_has_come() {
        let mut setbacks = Setbacks::default();
        setbacks.note(&decision("a"), Some(7), true, 10 * SECOND);
        let aside = |generation, now| setbacks.aside(|_| generation, now);
        assert_eq!(aside(Some(7), SECOND), (["a".to_owned()].into(), Again::After(9 * SECOND)));
        assert_eq!(aside(Some(8), SECOND), (BTreeSet::new(), Again::OnChange));
        assert_eq!(aside(Some(7), 10 * SECOND), (BTreeSet::new(), Again::OnChange));
        // The same for what is decided about it in the meantime.
        let due = |generation, now| setbacks.part(vec![decision("a")], |_| generation, now).0.len();
        assert_eq!((due(Some(7), SECOND), due(Some(8), SECOND), due(Some(7), 10 * SECOND)), (0, 1, 1));
    }

    #[test]
    fn what_may_pass_by_itself_takes_no_room_away() {
        let mut setbacks = Setbacks::default();
        setbacks.note(&decision("a"), Some(7), false, 10 * SECOND);
        assert_eq!(setbacks.aside(|_| Some(7), SECOND).0, BTreeSet::new());
        // But it is not tried before its time, whatever changes.
        for generation in [7, 8] {
            let (due, held, again) = setbacks.part(vec![decision("a"), decision("b")], |_| Some(generation), SECOND);
            assert_eq!((due, held), (vec![decision("b")], vec![decision("a")]));
            assert_eq!(again, Again::After(9 * SECOND));
        }
    }

    #[test]
    fn what_passes_takes_no_refusal_back() {
        let mut setbacks = Setbacks::default();
        setbacks.note(&decision("a"), Some(7), true, SECOND);
        setbacks.note(&of_kind("a", What::Wait), Some(7), false, 10 * SECOND);
        assert_eq!(setbacks.aside(|_| Some(7), 2 * SECOND).0, ["a".to_owned()].into());
        assert!(setbacks.was_refused_in("a", Some(7)));
        setbacks.stored(&of_kind("a", What::Wait));
        assert_eq!(setbacks.failures("a"), 2);
        // It asks for something else since.
        setbacks.note(&decision("a"), Some(8), false, 20 * SECOND);
        assert_eq!(setbacks.aside(|_| Some(8), 11 * SECOND).0, BTreeSet::new());
    }

    #[test]
    fn refusals_are_counted_until_one_of_the_kind_is_stored() {
        let mut setbacks = Setbacks::default();
        assert!(!setbacks.was_refused_in("a", Some(7)));
        for expect in 1..4 {
            setbacks.note(&decision("a"), Some(7), true, SECOND);
            assert_eq!(setbacks.failures("a"), expect);
        }
        assert!(setbacks.was_refused_in("a", Some(7)) && !setbacks.was_refused_in("a", Some(8)));
        for other in [What::Wait, What::Book, What::Release] {
            setbacks.stored(&of_kind("a", other));
            assert_eq!(setbacks.failures("a"), 3, "{other:?}");
        }
        setbacks.stored(&decision("a"));
        assert_eq!(setbacks.failures("a"), 0);
    }

    #[test]
    fn what_passed_by_itself_is_over_with_anything_that_is_stored() {
        let mut setbacks = Setbacks::default();
        setbacks.note(&decision("a"), Some(7), false, SECOND);
        assert!(!setbacks.was_refused_in("a", None));
        setbacks.stored(&of_kind("a", What::Wait));
        assert_eq!(setbacks.failures("a"), 0);
    }
}
