//! Use that fades: what somebody used lately, for fair shares. Integers only, so that every machine comes to the same.

use super::event::Used;

const ONE: i128 = 1 << 32;
/// 1 / ln 2, of which 2^32 are one.
const PER_LN_2: i128 = 6_196_328_019;

/// 2^(-1/2), 2^(-1/4), … , of which 2^32 are one: the bits of a fraction pick their factors.
const ROOTS: [i128; 20] = roots();

const fn roots() -> [i128; 20] {
    let mut roots = [0_i128; 20];
    // Half of one, then square roots of it. With 64 further bits, so that the last ones are right.
    let mut root: u128 = 1 << 63;
    let mut at = 0;
    while at < 20 {
        root = square_root(root << 64);
        roots[at] = ((root + (1 << 31)) >> 32).cast_signed();
        at += 1;
    }
    roots
}

const fn square_root(of: u128) -> u128 {
    let (mut low, mut high): (u128, u128) = (0, 1 << 64);
    while low + 1 < high {
        let middle = u128::midpoint(low, high);
        if middle <= of / middle {
            low = middle;
        } else {
            high = middle;
        }
    }
    low
}

/// What is left of one after so long.
fn left(passed: i64, half_life: i64) -> i128 {
    let half_life = i128::from(half_life.max(1));
    let passed = i128::from(passed.max(0));
    let (halves, rest) = (passed / half_life, passed % half_life);
    if halves > 62 {
        return 0;
    }
    let fraction = (rest << 20) / half_life;
    let of_rest = ROOTS.iter().enumerate().filter(|(at, _)| fraction >> (19 - at) & 1 == 1);
    of_rest.fold(ONE, |left, (_, root)| left * root / ONE) >> halves
}

impl Used {
    /// The value at a later time, if so much (in thousandths of a device) was held all the while.
    #[must_use]
    pub fn until(self, now: i64, held: i64, half_life: i64) -> Self {
        if now <= self.at {
            return self;
        }
        let left = left(now.saturating_sub(self.at), half_life);
        let before = i128::from(self.amount) * left / ONE;
        let since = i128::from(held) * i128::from(half_life.max(1)) * PER_LN_2 / ONE * (ONE - left) / ONE;
        Self { amount: i64::try_from(before.saturating_add(since)).unwrap_or(i64::MAX), at: now }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WEEK: i64 = 7 * 24 * 3_600;

    #[test]
    fn half_is_left_after_a_half_life() {
        let used = Used { amount: 1_000_000, at: 100 };
        assert_eq!(used.until(100 + WEEK, 0, WEEK).amount, 500_000);
        assert_eq!(used.until(100 + 3 * WEEK, 0, WEEK).amount, 125_000);
        assert_eq!(used.until(100 + WEEK / 2, 0, WEEK).amount, 707_106);
        assert_eq!(used.until(50, 7, WEEK), used);
        assert_eq!(used.until(i64::MAX, 0, WEEK).amount, 0);
    }

    #[test]
    fn use_of_a_short_time_counts_nearly_in_full_and_in_the_long_run_it_is_bounded() {
        let hour = Used::default().until(3_600, 8_000, WEEK).amount;
        assert!((28_700_000..=28_800_000).contains(&hour), "{hour}");
        let forever = Used::default().until(1_000 * WEEK, 1_000, WEEK).amount;
        assert!((872_000_000..873_000_000).contains(&forever), "{forever}");
    }

    #[test]
    fn steps_in_between_change_next_to_nothing() {
        let mut by_steps = Used { amount: 5_000_000, at: 0 };
        for second in (0..WEEK).step_by(997) {
            by_steps = by_steps.until(second, 3_000, WEEK);
        }
        let at_once = Used { amount: 5_000_000, at: 0 }.until(by_steps.at, 3_000, WEEK);
        let off = (by_steps.amount - at_once.amount).abs();
        assert!(off * 1_000 < at_once.amount, "{by_steps:?} {at_once:?}");
    }
}
