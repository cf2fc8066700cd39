//! Past runtimes and errors of estimates per flavor, in integer histograms of fixed size.

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FlavorHistory {
    /// By class of lifetime.
    pub runtimes: [RuntimeHistogram; LIFETIME_CLASSES.len() + 1],
    pub eta_calibration: EtaCalibration,
}

/// Upper ends of the lifetime classes in seconds. Servers with a long lifetime are used differently from short ones.
const LIFETIME_CLASSES: [i64; 5] = [3_600, 4 * 3_600, 12 * 3_600, 24 * 3_600, 72 * 3_600];

/// Upper ends of the runtime buckets in thousandths of the lifetime. Many servers end early, so the first are narrow.
const RUNTIME_BUCKETS: [i64; 21] =
    [2, 5, 10, 20, 30, 50, 70, 100, 150, 200, 250, 300, 400, 500, 600, 700, 800, 900, 950, 990, 1_000];

/// Number of servers by the part of their lifetime for which they ran.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuntimeHistogram([u32; RUNTIME_BUCKETS.len()]);

/// The weight of the prior distribution of runtimes, in samples: uniform, and some servers run to the end.
const PRIOR_WEIGHT: u64 = 20;
/// The additional prior of servers that run to the end, in thousandths of [`PRIOR_WEIGHT`].
const PRIOR_FULL_RUNTIME_PERMILLE: u64 = 200;

/// A histogram with more samples is halved, so that older samples count less.
const MAX_SAMPLES: u64 = 1_000;

/// Upper ends of the buckets for actual waits, in percent of the expected wait.
const WAIT_RATIO_BUCKETS: [i64; 31] = [
    2, 3, 4, 5, 7, 9, 12, 16, 21, 27, 36, 47, 61, 79, 89, 100, 114, 130, 150, 175, 200, 240, 290, 380, 490, 640, 840,
    1_100, 1_600, 2_500, 5_000,
];

/// Actual waits relative to expected ones, and how often they were within the estimates.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EtaCalibration {
    /// Number of waits in each of [`WAIT_RATIO_BUCKETS`].
    ratios: [u32; WAIT_RATIO_BUCKETS.len()],
    /// The quantiles of `ratios` from which P50 and P90 are read. Adjusted after each wait.
    quantiles_permille: [i32; 2],
    pub estimate_count: u32,
    /// How many waits were within P50 and within P90.
    pub within_estimate: [u32; 2],
}

impl Default for EtaCalibration {
    fn default() -> Self {
        Self {
            ratios: [0; WAIT_RATIO_BUCKETS.len()],
            quantiles_permille: INITIAL_QUANTILES_PERMILLE,
            estimate_count: 0,
            within_estimate: [0; 2],
        }
    }
}

const INITIAL_QUANTILES_PERMILLE: [i32; 2] = [500, 900];
const MIN_QUANTILE_PERMILLE: i32 = 50;
const MAX_QUANTILE_PERMILLE: i32 = 998;
/// The change of a quantile after a wait within and beyond the estimate. Quantiles converge to where these cancel out: 52 %
/// and 93 % of waits are within. That is a little more than estimated, because long waits are observed last, so recent
/// observations are biased towards short ones.
const QUANTILE_STEPS_PERMILLE: [(i32, i32); 2] = [(-14, 15), (-2, 27)];
/// Shorter expected waits are rounded up to this.
const MIN_EXPECTED_WAIT_SECONDS: i64 = 60;
/// The prior of wait ratios: most waits are as expected, within a factor of two. The range is in percent of the expected
/// wait, the weights are in thousandths of a sample.
const LIKELY_WAIT_RATIOS: std::ops::RangeInclusive<i64> = 47..=200;
const LIKELY_WAIT_PRIOR: u64 = 1_000;
const UNLIKELY_WAIT_PRIOR: u64 = 100;

impl FlavorHistory {
    /// Adds a completed run.
    pub fn observe_run(&mut self, lifetime: i64, runtime: i64) {
        if let Some(histogram) = self.runtimes.get_mut(lifetime_class(lifetime)) {
            histogram.add(runtime_permille(lifetime, runtime));
        }
    }

    /// Returns the expected total runtime of a server that has run for `elapsed`: the median of those that ran as long.
    pub fn expected_runtime(&self, lifetime: i64, elapsed: i64) -> i64 {
        let histogram = self.runtimes.get(lifetime_class(lifetime)).cloned().unwrap_or_default();
        let median = histogram.median(runtime_permille(lifetime, elapsed));
        let seconds = i128::from(lifetime.max(0)) * i128::from(median) / 1_000;
        let min = elapsed.saturating_add(1).min(lifetime.max(1));
        i64::try_from(seconds).unwrap_or(i64::MAX).clamp(min, lifetime.max(1))
    }
}

fn lifetime_class(lifetime: i64) -> usize {
    LIFETIME_CLASSES.partition_point(|max| *max < lifetime)
}

/// Returns a runtime as part of the lifetime.
fn runtime_permille(lifetime: i64, runtime: i64) -> i64 {
    let permille = i128::from(runtime.max(0)) * 1_000 / i128::from(lifetime.max(1));
    i64::try_from(permille).unwrap_or(1_000).min(1_000)
}

impl RuntimeHistogram {
    pub fn counts(&self) -> &[u32] {
        &self.0
    }

    /// Returns `None` if the number of buckets is wrong.
    pub fn from_counts(counts: &[u32]) -> Option<Self> {
        counts.try_into().ok().map(Self)
    }

    fn add(&mut self, runtime_permille: i64) {
        add_sample(&mut self.0, RUNTIME_BUCKETS.partition_point(|max| *max < runtime_permille));
    }

    /// Returns the median of the runtimes above `elapsed`, both in thousandths of the lifetime.
    fn median(&self, elapsed: i64) -> i64 {
        // Prior and samples per bucket, in thousandths of a sample; only the part above `elapsed`.
        let mut start = 0;
        let buckets: Vec<(i64, i64, u64)> = RUNTIME_BUCKETS
            .iter()
            .zip(self.0)
            .map(|(max, samples)| {
                let prior = u64::try_from(max - start).unwrap_or_default() * PRIOR_WEIGHT;
                let prior_at_end = if *max == 1_000 { PRIOR_FULL_RUNTIME_PERMILLE * PRIOR_WEIGHT } else { 0 };
                let weight = u64::from(samples) * 1_000 + prior + prior_at_end;
                let low = start.max(elapsed).min(*max);
                let above = u64::try_from(max - low).unwrap_or_default();
                let width = u64::try_from(max - start).unwrap_or(1).max(1);
                start = *max;
                (low, *max, weight * above / width)
            })
            .collect();
        let total: u64 = buckets.iter().map(|(.., weight)| weight).sum();
        let mut left = total / 2;
        for (low, max, weight) in buckets {
            if weight > left {
                let offset = i128::from(max - low) * i128::from(left) / i128::from(weight);
                return low + i64::try_from(offset).unwrap_or_default();
            }
            left -= weight;
        }
        1_000
    }
}

/// Adds a sample to a histogram, and halves it when it is full.
fn add_sample(buckets: &mut [u32], bucket: usize) {
    if let Some(count) = buckets.get_mut(bucket) {
        *count = count.saturating_add(1);
    }
    if buckets.iter().map(|count| u64::from(*count)).sum::<u64>() > MAX_SAMPLES {
        for count in buckets {
            *count /= 2;
        }
    }
}

/// An estimated wait in seconds, from the time of the estimate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EtaEstimate {
    /// Before the correction by past estimates.
    pub expected: i64,
    pub p50: i64,
    pub p90: i64,
}

impl EtaCalibration {
    pub fn ratios(&self) -> &[u32] {
        &self.ratios
    }

    pub fn quantiles_permille(&self) -> &[i32] {
        &self.quantiles_permille
    }

    /// Returns `None` if the number of buckets or quantiles is wrong.
    pub fn from_parts(
        ratios: &[u32],
        quantiles_permille: &[i32],
        estimate_count: u32,
        within_estimate: [u32; 2],
    ) -> Option<Self> {
        let (ratios, quantiles_permille) = (ratios.try_into().ok()?, quantiles_permille.try_into().ok()?);
        Some(Self { ratios, quantiles_permille, estimate_count, within_estimate })
    }

    /// Estimates a wait of which the plan expects `expected` and at most `max`. P90 may exceed `max`, because the plan does
    /// not know servers with higher precedence that will be queued, but past estimates reflect them.
    pub fn estimate(&self, expected: i64, max: Option<i64>) -> EtaEstimate {
        let expected = expected.max(MIN_EXPECTED_WAIT_SECONDS);
        let [p50, p90] = self.quantiles_permille.map(|quantile| {
            let wait = i128::from(expected) * i128::from(self.ratio_permille(quantile)) / 1_000;
            i64::try_from(wait).unwrap_or(i64::MAX)
        });
        let p50 = max.map_or(p50, |max| p50.min(max));
        EtaEstimate { expected, p50, p90: p90.max(p50) }
    }

    /// Adds the actual wait for an estimate.
    pub fn observe_wait(&mut self, estimate: EtaEstimate, wait: i64) {
        let ratio = i128::from(wait.max(0)) * 100 / i128::from(estimate.expected.max(1));
        let ratio = i64::try_from(ratio).unwrap_or(i64::MAX);
        let bucket = WAIT_RATIO_BUCKETS.partition_point(|max| *max < ratio).min(WAIT_RATIO_BUCKETS.len() - 1);
        add_sample(&mut self.ratios, bucket);
        self.estimate_count = self.estimate_count.saturating_add(1);
        let counts = self.within_estimate.iter_mut().zip(QUANTILE_STEPS_PERMILLE);
        let quantiles = self.quantiles_permille.iter_mut().zip([estimate.p50, estimate.p90]);
        for ((within, (down, up)), (quantile, estimated)) in counts.zip(quantiles) {
            let is_within = wait <= estimated;
            *within = within.saturating_add(u32::from(is_within));
            let step = if is_within { down } else { up };
            *quantile = (*quantile + step).clamp(MIN_QUANTILE_PERMILLE, MAX_QUANTILE_PERMILLE);
        }
    }

    /// Returns the ratio of actual to expected wait at a quantile.
    fn ratio_permille(&self, quantile_permille: i32) -> i64 {
        let prior = |max: i64| if LIKELY_WAIT_RATIOS.contains(&max) { LIKELY_WAIT_PRIOR } else { UNLIKELY_WAIT_PRIOR };
        let buckets = WAIT_RATIO_BUCKETS.into_iter().zip(self.ratios);
        let weights = || buckets.clone().map(|(max, samples)| (max, u64::from(samples) * 1_000 + prior(max)));
        let total: u64 = weights().map(|(_, weight)| weight).sum();
        let mut left = total * u64::try_from(quantile_permille).unwrap_or_default() / 1_000;
        let mut low = 0;
        for (max, weight) in weights() {
            if weight > left {
                let offset = i128::from((max - low) * 10) * i128::from(left) / i128::from(weight);
                return low * 10 + i64::try_from(offset).unwrap_or_default();
            }
            left -= weight;
            low = max;
        }
        WAIT_RATIO_BUCKETS[WAIT_RATIO_BUCKETS.len() - 1] * 10
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600;

    #[test]
    fn prior_runtime_is_a_little_more_than_half_of_lifetime() {
        let expected = FlavorHistory::default().expected_runtime(10 * HOUR, 0);
        assert!((5 * HOUR..7 * HOUR).contains(&expected), "{expected}");
    }

    #[test]
    fn expected_runtime_rises_with_elapsed_time() {
        let history = FlavorHistory::default();
        let expected: Vec<i64> = (0..10).map(|hours| history.expected_runtime(10 * HOUR, hours * HOUR)).collect();
        assert!(expected.is_sorted(), "{expected:?}");
        for (hours, expected) in (0..10).zip(expected) {
            assert!(expected > hours * HOUR && expected <= 10 * HOUR);
        }
    }

    #[test]
    fn observed_runtimes_outweigh_prior_of_their_class_only() {
        let mut history = FlavorHistory::default();
        for _ in 0..300 {
            history.observe_run(8 * HOUR, HOUR);
        }
        let expected = history.expected_runtime(8 * HOUR, 0);
        assert!((HOUR / 2..2 * HOUR).contains(&expected), "{expected}");
        let other_class = FlavorHistory::default().expected_runtime(100 * HOUR, 0);
        assert_eq!(history.expected_runtime(100 * HOUR, 0), other_class);
    }

    #[test]
    fn estimates_become_accurate_with_bad_expectations() {
        let mut calibration = EtaCalibration::default();
        // Waits are uniform from zero to six times the expected wait, in pseudo-random order.
        let mut within = [0; 2];
        for number in 0..2_000_i64 {
            let (expected, wait) = (1_000, number * 7_919 % 6_000);
            let estimate = calibration.estimate(expected, None);
            if number >= 200 {
                within[0] += i32::from(wait <= estimate.p50);
                within[1] += i32::from(wait <= estimate.p90);
            }
            calibration.observe_wait(estimate, wait);
        }
        let percent = within.map(|within| within * 100 / 1_800);
        assert!((45..=55).contains(&percent[0]) && (87..=93).contains(&percent[1]), "{percent:?}");
    }

    #[test]
    fn p50_is_bounded_by_the_plan() {
        let estimate = EtaCalibration::default().estimate(10_000, Some(5_000));
        assert!(estimate.p50 == 5_000 && estimate.p90 > 10_000, "{estimate:?}");
    }
}
