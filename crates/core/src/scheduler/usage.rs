//! Exponential decay of past usage for fair shares. Integer arithmetic only, so that all machines get the same result.

use super::event::DecayedUsage;

/// Fixed-point representation of 1.
const ONE: i128 = 1 << 32;
/// 1 / ln 2 in fixed point.
const RECIPROCAL_LN_2: i128 = 6_196_328_019;

/// 2^(-1/2), 2^(-1/4), … in fixed point; the bits of a fraction select their factors.
const ROOTS: [i128; 20] = roots();

const fn roots() -> [i128; 20] {
    let mut roots = [0_i128; 20];
    // Repeated square roots of one half, with 64 more bits for exact rounding.
    let mut root: u128 = 1 << 63;
    let mut position = 0;
    while position < 20 {
        root = square_root(root << 64);
        roots[position] = ((root + (1 << 31)) >> 32).cast_signed();
        position += 1;
    }
    roots
}

const fn square_root(value: u128) -> u128 {
    let (mut low, mut high): (u128, u128) = (0, 1 << 64);
    while low + 1 < high {
        let middle = u128::midpoint(low, high);
        if middle <= value / middle {
            low = middle;
        } else {
            high = middle;
        }
    }
    low
}

/// Returns the decay factor after some seconds, in fixed point.
fn decay_factor(elapsed: i64, usage_half_life: i64) -> i128 {
    let usage_half_life = i128::from(usage_half_life.max(1));
    let elapsed = i128::from(elapsed.max(0));
    let (halvings, rest) = (elapsed / usage_half_life, elapsed % usage_half_life);
    if halvings > 62 {
        return 0;
    }
    let fraction = (rest << 20) / usage_half_life;
    let factors = ROOTS.iter().enumerate().filter(|(bit, _)| fraction >> (19 - bit) & 1 == 1);
    factors.fold(ONE, |product, (_, root)| product * root / ONE) >> halvings
}

impl DecayedUsage {
    /// Returns the usage at a later time, if `rate` (in millidevices) was used continuously.
    #[must_use]
    pub fn advance(self, now: i64, rate: i64, usage_half_life: i64) -> Self {
        if now <= self.as_of {
            return self;
        }
        let factor = decay_factor(now.saturating_sub(self.as_of), usage_half_life);
        let decayed = i128::from(self.amount) * factor / ONE;
        let added =
            i128::from(rate) * i128::from(usage_half_life.max(1)) * RECIPROCAL_LN_2 / ONE * (ONE - factor) / ONE;
        Self { amount: i64::try_from(decayed.saturating_add(added)).unwrap_or(i64::MAX), as_of: now }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WEEK: i64 = 7 * 24 * 3_600;

    #[test]
    fn usage_halves_after_one_half_life() {
        let usage = DecayedUsage { amount: 1_000_000, as_of: 100 };
        assert_eq!(usage.advance(100 + WEEK, 0, WEEK).amount, 500_000);
        assert_eq!(usage.advance(100 + 3 * WEEK, 0, WEEK).amount, 125_000);
        assert_eq!(usage.advance(100 + WEEK / 2, 0, WEEK).amount, 707_106);
        assert_eq!(usage.advance(50, 7, WEEK), usage);
        assert_eq!(usage.advance(i64::MAX, 0, WEEK).amount, 0);
    }

    #[test]
    fn short_usage_counts_in_full_and_continuous_usage_is_bounded() {
        let hour = DecayedUsage::default().advance(3_600, 8_000, WEEK).amount;
        assert!((28_700_000..=28_800_000).contains(&hour), "{hour}");
        let limit = DecayedUsage::default().advance(1_000 * WEEK, 1_000, WEEK).amount;
        assert!((872_000_000..873_000_000).contains(&limit), "{limit}");
    }

    #[test]
    fn advancing_in_steps_equals_advancing_once() {
        let mut stepwise = DecayedUsage { amount: 5_000_000, as_of: 0 };
        for second in (0..WEEK).step_by(997) {
            stepwise = stepwise.advance(second, 3_000, WEEK);
        }
        let once = DecayedUsage { amount: 5_000_000, as_of: 0 }.advance(stepwise.as_of, 3_000, WEEK);
        let error = (stepwise.amount - once.amount).abs();
        assert!(error * 1_000 < once.amount, "{stepwise:?} {once:?}");
    }
}
