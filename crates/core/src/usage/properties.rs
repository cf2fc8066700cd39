//! Properties of the usage of arbitrary servers.

use k8s_openapi::jiff::Timestamp;
use odc_api::v1alpha1::Phase;
use proptest::prelude::*;

use super::{Interval, Usage, derive};

type Transitions = Vec<(Phase, Timestamp)>;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// Generates transitions that can follow each other, with increasing times.
fn any_life() -> impl Strategy<Value = Transitions> {
    prop::collection::vec((any::<prop::sample::Index>(), 0..100_i64), 1..40).prop_map(|steps| {
        let (mut phase, mut second) = (Phase::Pending, 0);
        let mut transitions = vec![(phase, at(second))];
        for (choice, seconds) in steps {
            let Some(next) = phase.successors().get(choice.index(phase.successors().len().max(1))) else { break };
            (phase, second) = (*next, second + seconds);
            transitions.push((phase, at(second)));
        }
        transitions
    })
}

/// Generates transitions in any order, with times that can decrease.
fn any_transitions() -> impl Strategy<Value = Transitions> {
    let transition = (prop::sample::select(Phase::ALL), 0..50_i64);
    prop::collection::vec(transition.prop_map(|(phase, second)| (phase, at(second))), 0..20)
}

fn seconds(interval: &Interval, now: Timestamp) -> i64 {
    interval.ended_at.unwrap_or(now).as_second() - interval.started_at.as_second()
}

/// Sums the time of the phases in which a server has pods.
fn held_seconds(transitions: &Transitions, now: Timestamp) -> i64 {
    let ends = transitions.iter().skip(1).map(|(_, at)| *at).chain([now]);
    let mut held = false;
    let mut sum = 0;
    for ((phase, start), end) in transitions.iter().zip(ends) {
        held = match phase {
            Phase::Starting | Phase::Running | Phase::Hibernating => true,
            Phase::Stopping => held,
            _ => false,
        };
        sum += if held { end.as_second() - start.as_second() } else { 0 };
    }
    sum
}

/// Combines the usage that is derived from the last transitions with stored intervals, as the database does.
fn combine(mut stored: Vec<Interval>, derived: &Usage) -> Vec<Interval> {
    for interval in &mut stored {
        if let Some(ended_by) = derived.ended_by.filter(|at| interval.ended_at.is_none() && interval.started_at < *at) {
            interval.ended_at = Some(ended_by);
        }
    }
    for interval in &derived.intervals {
        let overlaps = |known: &&mut Interval| {
            let continued = known.started_at <= interval.started_at
                && known.ended_at.is_none_or(|ended_at| ended_at > interval.started_at);
            known.started_at == interval.started_at || (interval.continued && continued)
        };
        match stored.iter_mut().find(overlaps) {
            Some(known) => known.ended_at = interval.ended_at,
            None => stored.push(*interval),
        }
    }
    stored.sort_by_key(|interval| interval.started_at);
    stored
}

proptest! {
    #[test]
    fn intervals_are_ordered_and_disjoint(transitions in any_transitions(), truncated: bool) {
        let usage = derive(transitions, truncated);
        for interval in &usage.intervals {
            prop_assert!(interval.ended_at.is_none_or(|ended_at| ended_at >= interval.started_at));
        }
        for pair in usage.intervals.windows(2) {
            prop_assert!(pair[0].started_at < pair[1].started_at);
            prop_assert!(pair[0].ended_at.is_some_and(|ended_at| ended_at <= pair[1].started_at), "{:?}", pair);
        }
    }

    #[test]
    fn sum_of_intervals_equals_the_time_of_phases_with_devices(transitions in any_life(), rest in 0..100_i64) {
        let now = at(transitions.last().unwrap().1.as_second() + rest);
        let usage = derive(transitions.clone(), false);
        let sum: i64 = usage.intervals.iter().map(|interval| seconds(interval, now)).sum();
        prop_assert_eq!(sum, held_seconds(&transitions, now));
    }

    #[test]
    fn suffix_ends_like_the_whole(transitions in any_life(), cut in any::<prop::sample::Index>()) {
        let cut = cut.index(transitions.len());
        let whole = derive(transitions.clone(), false);
        let suffix = derive(transitions[cut..].to_vec(), true);
        let known = |interval: &&Interval| !interval.continued;
        for interval in suffix.intervals.iter().filter(known) {
            prop_assert!(
                whole.intervals.iter().any(|other| other.ended_at == interval.ended_at
                    && other.started_at <= interval.started_at),
                "{:?} is not in {:?}", interval, whole
            );
        }
        if let Some(first) = suffix.intervals.first().filter(|interval| interval.continued) {
            let contains = |other: &&Interval| other.started_at <= first.started_at && other.ended_at == first.ended_at;
            prop_assert!(whole.intervals.iter().any(|other| contains(&other)), "{:?} is not in {:?}", first, whole);
        }
    }

    /// The projection observes a server at arbitrary times and then sees the last transitions only.
    #[test]
    fn observations_add_up_to_the_whole(transitions in any_life(), length in 3..8_usize, skipped in 1..3_usize) {
        let mut stored = vec![];
        for end in (1..=transitions.len()).filter(|end| end % skipped == 0 || *end == transitions.len()) {
            let start = end.saturating_sub(length);
            stored = combine(stored, &derive(transitions[start..end].to_vec(), end >= length));
        }
        let whole = derive(transitions.clone(), false).intervals;
        prop_assert_eq!(stored, whole, "{:?}", transitions);
    }
}
