//! Who is told where they stand, and when: nobody who waits only a moment, nobody often, never many at once, and the
//! first ones first. Times are those of a clock that never goes back.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use super::{Decision, What};
use crate::plan::Again;

/// Who waits only a moment is not told.
const PATIENCE: Duration = Duration::from_secs(1);
/// Who was told is not told again for so long.
const CALM: Duration = Duration::from_secs(30);
/// How many are told within any second.
const TOGETHER: usize = 20;
const SECOND: Duration = Duration::from_secs(1);

#[derive(Clone, Debug, Default)]
pub struct Telling {
    /// Everybody who competes, by uid.
    waits: HashMap<String, Heard>,
    /// When the last ones were told.
    lately: VecDeque<Duration>,
}

#[derive(Clone, Copy, Debug)]
struct Heard {
    since: Duration,
    told: Option<Duration>,
}

impl Heard {
    /// How long it is not told anything yet.
    fn left(self, now: Duration) -> Duration {
        let first = (self.since + PATIENCE).saturating_sub(now);
        first.max(self.told.map_or(Duration::ZERO, |told| (told + CALM).saturating_sub(now)))
    }
}

impl Telling {
    /// These compete now, and nobody else.
    pub fn compete(&mut self, uids: &HashSet<&str>, now: Duration) {
        self.waits.retain(|uid, _| uids.contains(uid.as_str()));
        for uid in uids {
            if !self.waits.contains_key(*uid) {
                self.waits.insert((*uid).to_owned(), Heard { since: now, told: None });
            }
        }
    }

    /// What is to be written now of what was decided, and when to look again for the rest. Only what people are told can
    /// wait; everything else is due.
    pub fn due(&mut self, decisions: Vec<Decision>, now: Duration) -> (Vec<Decision>, Again) {
        while self.lately.front().is_some_and(|told| *told + SECOND <= now) {
            self.lately.pop_front();
        }
        let mut again = Again::OnChange;
        let mut is_due = |decision: &Decision| {
            if decision.what != What::Wait {
                return true;
            }
            let left = self.waits.get(&decision.uid).map_or(Duration::ZERO, |heard| heard.left(now));
            let crowd = if self.lately.len() < TOGETHER { None } else { self.lately.front() };
            let left = left.max(crowd.map_or(Duration::ZERO, |first| (*first + SECOND).saturating_sub(now)));
            if left.is_zero() {
                self.lately.push_back(now);
            } else {
                again = again.or(Again::After(left));
            }
            left.is_zero()
        };
        let due = decisions.into_iter().filter(|decision| is_due(decision)).collect();
        (due, again)
    }

    /// It was written. What was not is due again.
    pub fn told(&mut self, uid: &str, now: Duration) {
        if let Some(heard) = self.waits.get_mut(uid) {
            heard.told = Some(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use odc_api::v1alpha1::Admission;

    use super::*;

    fn decision(number: usize, what: What) -> Decision {
        let name = format!("s{number}");
        let uid = format!("uid-{number}");
        Decision { namespace: "dev-ada".into(), name, uid, what, admission: Admission::default() }
    }

    /// So many wait, since a while.
    fn crowd(size: usize) -> (Telling, Vec<Decision>) {
        let mut telling = Telling::default();
        let waits: Vec<Decision> = (0..size).map(|number| decision(number, What::Wait)).collect();
        telling.compete(&waits.iter().map(|wait| wait.uid.as_str()).collect(), Duration::ZERO);
        (telling, waits)
    }

    fn names((due, _): &(Vec<Decision>, Again)) -> Vec<&str> {
        due.iter().map(|decision| decision.name.as_str()).collect()
    }

    #[test]
    fn who_waits_only_a_moment_is_not_told() {
        let (mut telling, waits) = crowd(1);
        let (due, again) = telling.due(waits.clone(), Duration::from_millis(400));
        assert_eq!((due, again), (vec![], Again::After(Duration::from_millis(600))));
        assert_eq!(names(&telling.due(waits, Duration::from_secs(1))), ["s0"]);
    }

    #[test]
    fn nobody_is_told_twice_within_half_a_minute() {
        let (mut telling, waits) = crowd(1);
        assert_eq!(names(&telling.due(waits.clone(), Duration::from_secs(5))), ["s0"]);
        // It was not written, so it is due again.
        assert_eq!(names(&telling.due(waits.clone(), Duration::from_secs(7))), ["s0"]);
        telling.told("uid-0", Duration::from_secs(7));
        let (due, again) = telling.due(waits.clone(), Duration::from_secs(20));
        assert_eq!((due, again), (vec![], Again::After(Duration::from_secs(17))));
        assert_eq!(names(&telling.due(waits, Duration::from_secs(37))), ["s0"]);
    }

    #[test]
    fn never_more_than_twenty_are_told_within_a_second_and_the_first_ones_first() {
        let (mut telling, waits) = crowd(45);
        let mut told: Vec<(Duration, String)> = Vec::new();
        for tick in 0..40_u32 {
            let now = Duration::from_millis(2_000 + u64::from(tick) * 100);
            let rest: Vec<Decision> =
                waits.iter().filter(|wait| told.iter().all(|(_, uid)| *uid != wait.uid)).cloned().collect();
            for decision in telling.due(rest, now).0 {
                telling.told(&decision.uid, now);
                told.push((now, decision.uid));
            }
        }
        assert_eq!(
            told.iter().map(|(_, uid)| uid).collect::<Vec<_>>(),
            waits.iter().map(|wait| &wait.uid).collect::<Vec<_>>()
        );
        for (from, _) in &told {
            let within = told.iter().filter(|(at, _)| (*from..*from + SECOND).contains(at)).count();
            assert!(within <= TOGETHER, "{within} from {from:?} on");
        }
    }

    #[test]
    fn what_is_given_and_taken_is_never_late() {
        let (mut telling, _) = crowd(50);
        let given: Vec<Decision> = (0..50).map(|number| decision(number, What::Grant)).collect();
        let (due, again) = telling.due(given, Duration::ZERO);
        assert_eq!((due.len(), again), (50, Again::OnChange));
    }

    #[test]
    fn whoever_leaves_the_queue_is_forgotten() {
        let (mut telling, waits) = crowd(1);
        telling.told("uid-0", Duration::from_secs(5));
        telling.compete(&HashSet::new(), Duration::from_secs(6));
        telling.compete(&["uid-0"].into(), Duration::from_secs(7));
        assert_eq!(names(&telling.due(waits, Duration::from_secs(8))), ["s0"]);
    }
}
