//! A value over time: what is free on a node, or what an account uses.

/// A period of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    pub start: i64,
    pub duration: i64,
}

impl Window {
    pub fn end(self) -> i64 {
        self.start.saturating_add(self.duration)
    }

    /// Returns a window of the same duration with another start.
    pub fn starting_at(self, start: i64) -> Self {
        Self { start, ..self }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Timeline<V> {
    /// The start of each interval and its value; the first interval has no beginning.
    intervals: Vec<(i64, V)>,
}

impl<V: Clone> Timeline<V> {
    pub fn new(value: V) -> Self {
        Self { intervals: vec![(i64::MIN, value)] }
    }

    /// Appends a change. `time` must not be before any other change.
    pub fn append(&mut self, time: i64, change: impl FnOnce(&V) -> V) {
        let Some((last, value)) = self.intervals.last_mut() else { return };
        let next = change(value);
        if *last == time {
            *value = next;
        } else {
            self.intervals.push((time, next));
        }
    }

    /// Changes the value between two times.
    pub fn update(&mut self, start: i64, end: i64, change: impl Fn(&mut V)) {
        if start >= end {
            return;
        }
        let first = self.split(start);
        let last = if end == i64::MAX { self.intervals.len() } else { self.split(end) };
        for (_, value) in self.intervals.iter_mut().take(last).skip(first) {
            change(value);
        }
    }

    /// Makes an interval start at a time and returns its position.
    fn split(&mut self, time: i64) -> usize {
        let next = self.intervals.partition_point(|(start, _)| *start <= time);
        let current = next.saturating_sub(1);
        match self.intervals.get(current) {
            Some((start, _)) if *start == time => current,
            Some((_, value)) => {
                let value = value.clone();
                self.intervals.insert(next, (time, value));
                next
            }
            None => 0,
        }
    }

    /// Returns the first value within a window for which `fits` is false.
    pub fn first_violation(&self, window: Window, fits: impl Fn(&V) -> bool) -> Option<&V> {
        self.violations(window, fits).next()
    }

    /// Returns all values within a window for which `fits` is false.
    pub fn violations(&self, window: Window, fits: impl Fn(&V) -> bool) -> impl Iterator<Item = &V> {
        let (start, end) = (window.start, window.end());
        let first = self.intervals.partition_point(|(from, _)| *from <= start).saturating_sub(1);
        let within = self.intervals.iter().skip(first).take_while(move |(from, _)| *from <= start || *from < end);
        within.map(|(_, value)| value).filter(move |value| !fits(value))
    }

    /// Returns the earliest start, not before that of `earliest`, of a window of its duration in which `fits` is true.
    pub fn earliest_window(&self, earliest: Window, fits: impl Fn(&V) -> bool) -> Option<i64> {
        let Window { start: not_before, duration } = earliest;
        let first = self.intervals.partition_point(|(from, _)| *from <= not_before).saturating_sub(1);
        let mut start: Option<i64> = None;
        for (from, value) in self.intervals.iter().skip(first) {
            if let Some(start) = start
                && *from >= start.saturating_add(duration)
            {
                return Some(start);
            }
            start = if fits(value) { start.or(Some((*from).max(not_before))) } else { None };
        }
        start
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn timeline(used: &[(i64, i64, i64)]) -> Timeline<i64> {
        let mut timeline = Timeline::new(8);
        for (start, duration, amount) in used {
            timeline.update(*start, start + duration, |free| *free -= amount);
        }
        timeline
    }

    #[test]
    fn earliest_window_is_long_enough() {
        let timeline = timeline(&[(10, 10, 6), (15, 15, 4)]);
        for (start, duration, requested, expect) in [
            (0, 10, 8, Some(0)),
            (0, 11, 8, Some(30)),
            (0, 15, 2, Some(0)),
            (3, 13, 2, Some(20)),
            (0, 1, 9, None),
            (0, i64::MAX, 5, Some(30)),
        ] {
            let earliest = Window { start, duration };
            assert_eq!(timeline.earliest_window(earliest, |free| *free >= requested), expect, "{earliest:?}");
        }
    }

    proptest! {
        #[test]
        fn earliest_window_equals_search_by_second(
            used in prop::collection::vec((0..20_i64, 1..10_i64, 0..5_i64), 0..6),
            (not_before, duration, requested) in (0..25_i64, 1..12_i64, 0..12_i64),
        ) {
            let timeline = timeline(&used);
            let free = |time: i64| {
                let active = used.iter().filter(|(start, length, _)| *start <= time && time < start + length);
                8 - active.map(|(.., amount)| amount).sum::<i64>()
            };
            let fits = |start: i64| (start..start + duration).all(|time| free(time) >= requested);
            let expect = (not_before..60).find(|start| fits(*start));
            let window = Window { start: not_before, duration };
            prop_assert_eq!(timeline.earliest_window(window, |free| *free >= requested), expect);
            let violation = timeline.first_violation(window, |free| *free >= requested);
            prop_assert_eq!(violation.is_none(), fits(not_before));
        }
    }
}
