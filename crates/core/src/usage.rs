//! The times during which a server holds its devices, derived from its phase transitions.
//!
//! The status of a server has only its last transitions, so the first intervals can be known from earlier observations
//! alone. What is derived from a truncated timeline says so and is combined with what is stored.

#[cfg(test)]
mod properties;

use k8s_openapi::jiff::Timestamp;
use odc_api::v1alpha1::{Phase, TIMELINE_LENGTH, TimelineEntry};

/// A time during which a server held its devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    pub started_at: Timestamp,
    /// Unset while it lasts.
    pub ended_at: Option<Timestamp>,
    /// Whether the interval may have started earlier: the timeline no longer has the transition.
    pub continued: bool,
}

/// The usage of a server, as far as its timeline shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Ordered by start. No two intervals have the same start.
    pub intervals: Vec<Interval>,
    /// An interval that started before the known transitions, and is stored without an end, ended at this time at the
    /// latest.
    pub ended_by: Option<Timestamp>,
}

/// Derives the usage of a server from its phase transitions, oldest first.
pub fn from_timeline(timeline: &[TimelineEntry]) -> Usage {
    let truncated = timeline.len() >= TIMELINE_LENGTH;
    derive(timeline.iter().map(|entry| (entry.phase, entry.at.0)), truncated)
}

/// What a phase says about the devices of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Devices {
    Held,
    Free,
    /// As in the phase before.
    Unchanged,
}

/// Returns whether a server holds its devices in a phase.
const fn devices(phase: Phase) -> Devices {
    match phase {
        // A server that hibernates has pods, also if Starting was too short to be stored.
        Phase::Starting | Phase::Running | Phase::Hibernating => Devices::Held,
        // A hibernated server can be stopped as well.
        Phase::Stopping => Devices::Unchanged,
        Phase::Pending
        | Phase::Building
        | Phase::Queued
        | Phase::Hibernated
        | Phase::Expired
        | Phase::Cancelled
        | Phase::Failed => Devices::Free,
    }
}

fn derive(transitions: impl IntoIterator<Item = (Phase, Timestamp)>, truncated: bool) -> Usage {
    let mut usage = Usage::default();
    // Whether nothing is known yet: the transitions before are missing.
    let mut unknown = truncated;
    for (phase, at) in transitions {
        match devices(phase) {
            Devices::Held => usage.start(at, unknown),
            Devices::Free if unknown => usage.ended_by = Some(at),
            Devices::Free => usage.end(at),
            Devices::Unchanged => continue,
        }
        unknown = false;
    }
    usage
}

impl Usage {
    /// Starts an interval, unless one lasts.
    fn start(&mut self, at: Timestamp, continued: bool) {
        match self.intervals.last_mut() {
            Some(last) if last.ended_at.is_none() => return,
            // A transition in the same second, or a clock that was set back: intervals must not overlap, and their starts
            // identify them.
            Some(last) if last.started_at >= at => {
                last.ended_at = None;
                return;
            }
            Some(last) => last.ended_at = last.ended_at.map(|ended_at| ended_at.min(at)),
            None => {}
        }
        self.intervals.push(Interval { started_at: at, ended_at: None, continued });
    }

    /// Ends the interval that lasts, if there is one.
    fn end(&mut self, at: Timestamp) {
        if let Some(last) = self.intervals.last_mut().filter(|last| last.ended_at.is_none()) {
            last.ended_at = Some(at.max(last.started_at));
        }
    }
}

#[cfg(test)]
mod tests {
    use odc_api::fixtures::time;
    use odc_api::v1alpha1::condition::Reason;

    use super::*;

    fn at(minute: u8) -> Timestamp {
        time(&format!("2026-01-01T00:{minute:02}:00Z")).0
    }

    fn interval(started_at: u8, ended_at: Option<u8>) -> Interval {
        Interval { started_at: at(started_at), ended_at: ended_at.map(at), continued: false }
    }

    fn check(transitions: &[(Phase, u8)], truncated: bool, expect: &Usage) {
        let usage = derive(transitions.iter().map(|(phase, minute)| (*phase, at(*minute))), truncated);
        assert_eq!(usage, *expect, "{transitions:?}");
    }

    #[test]
    fn interval_lasts_from_start_to_the_end_of_the_stop() {
        use Phase::{Expired, Hibernated, Hibernating, Pending, Queued, Running, Starting, Stopping};
        let transitions = [(Pending, 0), (Queued, 1), (Starting, 2), (Running, 3), (Hibernating, 10), (Hibernated, 11)];
        let expect = Usage { intervals: vec![interval(2, Some(11))], ended_by: None };
        check(&transitions, false, &expect);

        let resumed = [(Queued, 20), (Starting, 21), (Running, 22), (Stopping, 30), (Expired, 31)];
        let expect = Usage { intervals: vec![interval(2, Some(11)), interval(21, Some(31))], ended_by: None };
        check(&[transitions.as_slice(), resumed.as_slice()].concat(), false, &expect);
    }

    #[test]
    fn current_interval_has_no_end() {
        let expect = Usage { intervals: vec![interval(2, None)], ended_by: None };
        check(&[(Phase::Queued, 1), (Phase::Running, 2), (Phase::Starting, 3)], false, &expect);
    }

    #[test]
    fn hibernated_server_that_is_stopped_holds_nothing() {
        let transitions = [(Phase::Hibernated, 1), (Phase::Stopping, 2), (Phase::Cancelled, 3)];
        check(&transitions, false, &Usage::default());
    }

    #[test]
    fn server_that_never_started_has_no_usage() {
        check(&[], false, &Usage::default());
        check(&[(Phase::Pending, 1), (Phase::Queued, 2), (Phase::Failed, 3)], false, &Usage::default());
    }

    #[test]
    fn truncated_timeline_continues_the_first_interval() {
        let continued = Interval { continued: true, ..interval(5, Some(6)) };
        let expect = Usage { intervals: vec![continued, interval(7, None)], ended_by: None };
        check(&[(Phase::Running, 5), (Phase::Queued, 6), (Phase::Starting, 7)], true, &expect);
    }

    #[test]
    fn truncated_timeline_without_devices_ends_earlier_intervals() {
        let expect = Usage { intervals: vec![interval(7, None)], ended_by: Some(at(5)) };
        check(&[(Phase::Queued, 5), (Phase::Starting, 7)], true, &expect);
        let expect = Usage { intervals: vec![], ended_by: Some(at(6)) };
        check(&[(Phase::Stopping, 5), (Phase::Expired, 6)], true, &expect);
    }

    #[test]
    fn transitions_in_the_same_second_are_one_interval() {
        let transitions = [(Phase::Starting, 2), (Phase::Queued, 2), (Phase::Starting, 2), (Phase::Queued, 4)];
        check(&transitions, false, &Usage { intervals: vec![interval(2, Some(4))], ended_by: None });
        let expect = Usage { intervals: vec![interval(2, Some(2))], ended_by: None };
        check(&transitions[..2], false, &expect);
    }

    #[test]
    fn clock_that_was_set_back_does_not_make_intervals_overlap() {
        let transitions = [(Phase::Starting, 2), (Phase::Queued, 9), (Phase::Starting, 7), (Phase::Queued, 6)];
        let expect = Usage { intervals: vec![interval(2, Some(7)), interval(7, Some(7))], ended_by: None };
        check(&transitions, false, &expect);
    }

    #[test]
    fn full_timeline_counts_as_truncated() {
        let entry = |minute| {
            TimelineEntry::new(Phase::Running, time(&format!("2026-01-01T00:{minute:02}:00Z")), Reason::Running)
        };
        let full: Vec<TimelineEntry> = (0..TIMELINE_LENGTH).map(entry).collect();
        assert!(from_timeline(&full).intervals[0].continued);
        assert!(!from_timeline(&full[1..]).intervals[0].continued);
    }
}
