//! How long people really stay, and how good the promises about it were. Of fixed size and in whole numbers; two of them
//! can be added.

use serde::{Deserialize, Serialize};

/// What is known about a flavor.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Record {
    /// Which part of their lifetime servers were used, in classes of lifetimes.
    pub stays: [Stays; CLASSES.len() + 1],
    pub promises: Promises,
}

/// Lifetimes up to so many seconds form a class, longer ones another. People who ask for a week come and go otherwise
/// than people who ask for an hour.
const CLASSES: [i64; 5] = [3_600, 4 * 3_600, 12 * 3_600, 24 * 3_600, 72 * 3_600];

/// Upper ends in thousandths of the lifetime. Many leave soon, so the first are narrow.
const PARTS: [i64; 21] =
    [2, 5, 10, 20, 30, 50, 70, 100, 150, 200, 250, 300, 400, 500, 600, 700, 800, 900, 950, 990, 1_000];

/// How many people left within each part.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stays([u32; PARTS.len()]);

/// What is believed before anybody was seen: any part is as likely as its width, and some stay to the end. It weighs as
/// much as twenty people, so it is soon outvoted.
const PRIOR: u64 = 20;

/// Older ones count less: a full histogram is halved.
const FULL: u64 = 1_000;

/// Upper ends in percent of what was promised, a third more each.
const RATIOS: [i64; 31] = [
    2, 3, 4, 5, 7, 9, 12, 16, 21, 27, 36, 47, 61, 79, 89, 100, 114, 130, 150, 175, 200, 240, 290, 380, 490, 640, 840,
    1_100, 1_600, 2_500, 5_000,
];

/// How waits really ended, against what was expected, and how often promises were kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Promises {
    /// By the wait in percent of the expected one.
    ratios: [u32; RATIOS.len()],
    /// Where in `ratios` the two promises are read, in thousandths. They follow the outcomes: whoever breaks promises
    /// promises less.
    levels: [i32; 2],
    pub given: u32,
    /// Of those given, how many were kept: of the 50 % and the 90 % promises.
    pub kept: [u32; 2],
}

impl Default for Promises {
    fn default() -> Self {
        Self { ratios: [0; RATIOS.len()], levels: FIRST_LEVELS, given: 0, kept: [0; 2] }
    }
}

/// As if all that was expected were true.
const FIRST_LEVELS: [i32; 2] = [500, 900];
/// How far a promise that was kept and one that was broken move a level, in thousandths. Levels come to rest where these
/// cancel out: where 52 and 93 of a hundred are kept. That is a little more than promised, because long waits are heard
/// of last, so what was learned lately is always somewhat too good.
const STEPS: [(i32, i32); 2] = [(-14, 15), (-2, 27)];
/// Shorter waits are not told apart.
const SHORTEST: i64 = 60;

impl Record {
    pub fn left(&mut self, lifetime: i64, stayed: i64) {
        if let Some(class) = self.stays.get_mut(class(lifetime)) {
            class.count(part(lifetime, stayed));
        }
    }

    /// How long a server will probably stay in all that is there for so long: the middle of those who stayed as long.
    pub fn stay(&self, lifetime: i64, already: i64) -> i64 {
        let at = class(lifetime);
        let own = self.stays.get(at).cloned().unwrap_or_default();
        let expected = own.median(part(lifetime, already));
        let seconds = i128::from(lifetime.max(0)) * i128::from(expected) / 1_000;
        i64::try_from(seconds)
            .unwrap_or(i64::MAX)
            .clamp(already.saturating_add(1).min(lifetime.max(1)), lifetime.max(1))
    }

    /// Adds what another one knows.
    #[must_use]
    pub fn plus(mut self, other: &Self) -> Self {
        for (one, two) in self.stays.iter_mut().zip(&other.stays) {
            add(&mut one.0, &two.0);
        }
        add(&mut self.promises.ratios, &other.promises.ratios);
        let (own, more) = (&mut self.promises, &other.promises);
        own.given = own.given.saturating_add(more.given);
        add(&mut own.kept, &more.kept);
        self
    }
}

fn add(one: &mut [u32], two: &[u32]) {
    for (one, two) in one.iter_mut().zip(two) {
        *one = one.saturating_add(*two);
    }
}

fn class(lifetime: i64) -> usize {
    CLASSES.partition_point(|most| *most < lifetime)
}

/// In thousandths of the lifetime.
fn part(lifetime: i64, stayed: i64) -> i64 {
    let part = i128::from(stayed.max(0)) * 1_000 / i128::from(lifetime.max(1));
    i64::try_from(part).unwrap_or(1_000).min(1_000)
}

impl Stays {
    pub fn counts(&self) -> &[u32] {
        &self.0
    }

    /// Nothing if there are not as many as there are parts.
    pub fn of(counts: &[u32]) -> Option<Self> {
        counts.try_into().ok().map(Self)
    }

    fn count(&mut self, part: i64) {
        count(&mut self.0, PARTS.partition_point(|upto| *upto < part));
    }

    /// The part of the lifetime that half of those exceed who stayed for more than `already`.
    fn median(&self, already: i64) -> i64 {
        // What is believed and what was seen, per bucket, in thousandths of a person; only what lies beyond `already`.
        let mut from = 0;
        let buckets: Vec<(i64, i64, u64)> = PARTS
            .iter()
            .zip(self.0)
            .map(|(upto, seen)| {
                let believed = u64::try_from(upto - from).unwrap_or_default() * PRIOR;
                let end = if *upto == 1_000 { 200 * PRIOR } else { 0 };
                let (all, low) = (u64::from(seen) * 1_000 + believed + end, from.max(already).min(*upto));
                let beyond = u64::try_from(upto - low).unwrap_or_default();
                let width = u64::try_from(upto - from).unwrap_or(1).max(1);
                from = *upto;
                (low, *upto, all * beyond / width)
            })
            .collect();
        let all: u64 = buckets.iter().map(|(.., people)| people).sum();
        let mut left = all / 2;
        for (low, upto, people) in buckets {
            if people > left {
                let into = i128::from(upto - low) * i128::from(left) / i128::from(people);
                return low + i64::try_from(into).unwrap_or_default();
            }
            left -= people;
        }
        1_000
    }
}

/// Adds one to a histogram, and halves it when it is full.
fn count(buckets: &mut [u32], at: usize) {
    if let Some(bucket) = buckets.get_mut(at) {
        *bucket = bucket.saturating_add(1);
    }
    if buckets.iter().map(|count| u64::from(*count)).sum::<u64>() > FULL {
        for count in buckets {
            *count /= 2;
        }
    }
}

/// A promise as it was given: waits in seconds, from when it was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Given {
    /// What was expected, before experience was asked.
    pub expected: i64,
    pub p50: i64,
    pub p90: i64,
}

impl Promises {
    /// The histogram of waits, where it is read, how many were given, and kept.
    pub fn parts(&self) -> (&[u32], &[i32], u32, [u32; 2]) {
        (&self.ratios, &self.levels, self.given, self.kept)
    }

    /// Nothing if the histogram has not as many parts as it should.
    pub fn of(ratios: &[u32], levels: &[i32], given: u32, kept: [u32; 2]) -> Option<Self> {
        Some(Self { ratios: ratios.try_into().ok()?, levels: levels.try_into().ok()?, given, kept })
    }

    /// What to promise where so long a wait is expected, and by the plan it is at most `most`. Others with better rights may
    /// come, which the plan does not know and experience does: so only the promise of 50 % ends there.
    pub fn give(&self, expected: i64, most: Option<i64>) -> Given {
        let expected = expected.max(SHORTEST);
        let [p50, p90] = self.levels.map(|level| {
            let wait = i128::from(expected) * i128::from(self.ratio(level)) / 1_000;
            i64::try_from(wait).unwrap_or(i64::MAX)
        });
        let p50 = most.map_or(p50, |most| p50.min(most));
        Given { expected, p50, p90: p90.max(p50) }
    }

    /// What became of it.
    pub fn learn(&mut self, given: Given, waited: i64) {
        let ratio = i128::from(waited.max(0)) * 100 / i128::from(given.expected.max(1));
        let ratio = i64::try_from(ratio).unwrap_or(i64::MAX);
        count(&mut self.ratios, RATIOS.partition_point(|upto| *upto < ratio).min(RATIOS.len() - 1));
        self.given = self.given.saturating_add(1);
        for ((kept, (down, up)), (level, promise)) in
            self.kept.iter_mut().zip(STEPS).zip(self.levels.iter_mut().zip([given.p50, given.p90]))
        {
            let was_kept = waited <= promise;
            *kept = kept.saturating_add(u32::from(was_kept));
            *level = (*level + if was_kept { down } else { up }).clamp(50, 998);
        }
    }

    /// Below which ratio of wait to expectation, in thousandths, so many of a thousand waits were.
    fn ratio(&self, level: i32) -> i64 {
        // Before anything is known, waits are believed to be as expected, within a factor of two.
        let believed = |upto: i64| if (47..=200).contains(&upto) { 1_000 } else { 100 };
        let all =
            || RATIOS.into_iter().zip(self.ratios).map(|(upto, seen)| (upto, u64::from(seen) * 1_000 + believed(upto)));
        let total: u64 = all().map(|(_, weight)| weight).sum();
        let mut left = total * u64::try_from(level).unwrap_or_default() / 1_000;
        let mut low = 0;
        for (upto, weight) in all() {
            if weight > left {
                let into = i128::from((upto - low) * 10) * i128::from(left) / i128::from(weight);
                return low * 10 + i64::try_from(into).unwrap_or_default();
            }
            left -= weight;
            low = upto;
        }
        RATIOS[RATIOS.len() - 1] * 10
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600;

    #[test]
    fn before_anybody_was_seen_a_stay_is_expected_to_be_somewhat_more_than_half() {
        let expected = Record::default().stay(10 * HOUR, 0);
        assert!((5 * HOUR..7 * HOUR).contains(&expected), "{expected}");
    }

    #[test]
    fn who_is_still_there_is_expected_to_stay_longer() {
        let record = Record::default();
        let expected: Vec<i64> = (0..10).map(|hours| record.stay(10 * HOUR, hours * HOUR)).collect();
        assert!(expected.is_sorted(), "{expected:?}");
        for (hours, expected) in (0..10).zip(expected) {
            assert!(expected > hours * HOUR && expected <= 10 * HOUR);
        }
    }

    #[test]
    fn what_people_do_outvotes_what_was_believed() {
        let mut record = Record::default();
        for _ in 0..300 {
            record.left(8 * HOUR, HOUR);
        }
        let expected = record.stay(8 * HOUR, 0);
        assert!((HOUR / 2..2 * HOUR).contains(&expected), "{expected}");
        // Of another class nothing was learned.
        assert_eq!(record.stay(100 * HOUR, 0), Record::default().stay(100 * HOUR, 0));
        // Two halves know as much as the whole.
        let mut half = Record::default();
        for _ in 0..150 {
            half.left(8 * HOUR, HOUR);
        }
        assert_eq!(half.clone().plus(&half), record);
    }

    #[test]
    fn promises_become_true_even_where_expectations_are_bad() {
        let mut promises = Promises::default();
        // Waits spread evenly from none to six times what is expected, in an order without pattern.
        let mut kept = [0; 2];
        for number in 0..2_000_i64 {
            let (expected, waited) = (1_000, number * 7_919 % 6_000);
            let given = promises.give(expected, None);
            if number >= 200 {
                kept[0] += i32::from(waited <= given.p50);
                kept[1] += i32::from(waited <= given.p90);
            }
            promises.learn(given, waited);
        }
        let percent = kept.map(|kept| kept * 100 / 1_800);
        assert!((45..=55).contains(&percent[0]) && (87..=93).contains(&percent[1]), "{percent:?}");
    }

    #[test]
    fn half_are_never_promised_more_than_the_plan_says() {
        let given = Promises::default().give(10_000, Some(5_000));
        assert!(given.p50 == 5_000 && given.p90 > 10_000, "{given:?}");
    }
}
