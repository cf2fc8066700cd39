//! A value that changes at certain times: what is free on a node, or what a team holds, as far as is known.

#[derive(Clone, Debug)]
pub(super) struct Steps<V> {
    /// From when on which value; the first is from the beginning of time.
    steps: Vec<(i64, V)>,
}

impl<V: Clone> Steps<V> {
    pub fn new(value: V) -> Self {
        Self { steps: vec![(i64::MIN, value)] }
    }

    /// Appends a change at a time not before any other.
    pub fn then(&mut self, at: i64, change: impl FnOnce(&V) -> V) {
        let Some((last, value)) = self.steps.last_mut() else { return };
        let next = change(value);
        if *last == at {
            *value = next;
        } else {
            self.steps.push((at, next));
        }
    }

    /// Changes the value between two times.
    pub fn change(&mut self, from: i64, until: i64, change: impl Fn(&mut V)) {
        if from >= until {
            return;
        }
        let first = self.split(from);
        let end = if until == i64::MAX { self.steps.len() } else { self.split(until) };
        for (_, value) in self.steps.iter_mut().take(end).skip(first) {
            change(value);
        }
    }

    /// Makes a step begin at a time, and says which.
    fn split(&mut self, at: i64) -> usize {
        let next = self.steps.partition_point(|(from, _)| *from <= at);
        let current = next.saturating_sub(1);
        match self.steps.get(current) {
            Some((from, _)) if *from == at => current,
            Some((_, value)) => {
                let value = value.clone();
                self.steps.insert(next, (at, value));
                next
            }
            None => 0,
        }
    }

    /// The first value in a time that does not do.
    pub fn misfit(&self, from: i64, span: i64, fits: impl Fn(&V) -> bool) -> Option<&V> {
        self.misfits(from, span, fits).next()
    }

    /// All values in a time that do not do.
    pub fn misfits(&self, from: i64, span: i64, fits: impl Fn(&V) -> bool) -> impl Iterator<Item = &V> {
        let until = from.saturating_add(span);
        let first = self.steps.partition_point(|(at, _)| *at <= from).saturating_sub(1);
        let within = self.steps.iter().skip(first).take_while(move |(at, _)| *at <= from || *at < until);
        within.map(|(_, value)| value).filter(move |value| !fits(value))
    }

    /// The first time from `from` on at which the value does for so long.
    pub fn gap(&self, from: i64, span: i64, fits: impl Fn(&V) -> bool) -> Option<i64> {
        let first = self.steps.partition_point(|(at, _)| *at <= from).saturating_sub(1);
        let mut start: Option<i64> = None;
        for (at, value) in self.steps.iter().skip(first) {
            if let Some(start) = start
                && *at >= start.saturating_add(span)
            {
                return Some(start);
            }
            start = if fits(value) { start.or(Some((*at).max(from))) } else { None };
        }
        start
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn steps(taken: &[(i64, i64, i64)]) -> Steps<i64> {
        let mut steps = Steps::new(8);
        for (from, length, what) in taken {
            steps.change(*from, from + length, |free| *free -= what);
        }
        steps
    }

    #[test]
    fn a_gap_is_long_enough() {
        let steps = steps(&[(10, 10, 6), (15, 15, 4)]);
        assert_eq!(steps.gap(0, 10, |free| *free >= 8), Some(0));
        assert_eq!(steps.gap(0, 11, |free| *free >= 8), Some(30));
        assert_eq!(steps.gap(0, 15, |free| *free >= 2), Some(0));
        assert_eq!(steps.gap(3, 13, |free| *free >= 2), Some(20));
        assert_eq!(steps.gap(0, 1, |free| *free >= 9), None);
        assert_eq!(steps.gap(0, i64::MAX, |free| *free >= 5), Some(30));
    }

    proptest! {
        #[test]
        fn gaps_are_those_found_second_by_second(
            taken in prop::collection::vec((0..20_i64, 1..10_i64, 0..5_i64), 0..6),
            (from, span, need) in (0..25_i64, 1..12_i64, 0..12_i64),
        ) {
            let steps = steps(&taken);
            let free = |at: i64| 8 - taken.iter().filter(|(from, length, _)| *from <= at && at < from + length)
                .map(|(.., what)| what).sum::<i64>();
            let fits = |at: i64| (at..at + span).all(|at| free(at) >= need);
            let expect = (from..60).find(|at| fits(*at));
            prop_assert_eq!(steps.gap(from, span, |free| *free >= need), expect);
            prop_assert_eq!(steps.misfit(from, span, |free| *free >= need).is_none(), fits(from));
        }
    }
}
