//! Medians, percentiles and ratios of measurements.

use std::fmt;
use std::time::Duration;

/// Returns a value below which this percentage of the values lies.
pub(super) fn percentile(values: &[f64], percent: usize) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().saturating_sub(1);
    sorted.get((sorted.len() * percent / 100).min(last)).copied().unwrap_or_default()
}

pub(super) fn median(values: &[f64]) -> f64 {
    percentile(values, 50)
}

pub(super) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The median and range of the ratios of several rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Range {
    median: f64,
    min: f64,
    max: f64,
}

impl Range {
    fn new(values: &[f64]) -> Self {
        Self { median: median(values), min: percentile(values, 0), max: percentile(values, 100) }
    }

    /// Returns the range of the ratios of pairs. CPU time below a clock tick is measured as 0, which has no ratio.
    fn ratio(values: &[f64], baselines: &[f64]) -> Option<Self> {
        let pairs = values.iter().zip(baselines).filter(|(_, baseline)| **baseline > 0.0);
        let ratios: Vec<f64> = pairs.map(|(value, baseline)| value / baseline).collect();
        (!ratios.is_empty()).then(|| Self::new(&ratios))
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}-{})", figure(self.median), figure(self.min), figure(self.max))
    }
}

/// Formats the range of ratios, if there is one.
pub(super) fn ratio_cell(values: &[f64], baselines: &[f64]) -> String {
    Range::ratio(values, baselines).map_or_else(String::new, |range| range.to_string())
}

/// Formats a number with three significant digits.
pub(super) fn figure(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

pub(super) fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1_000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_of_the_sample() {
        let values: Vec<f64> = (1..=200).rev().map(f64::from).collect();
        let percentiles = [0, 50, 99, 100].map(|percent| figure(percentile(&values, percent)));
        assert_eq!(percentiles, ["1.00", "101", "199", "200"]);
        assert_eq!(figure(percentile(&[], 50)), "0.000");
    }

    #[test]
    fn ratios_are_those_of_pairs() {
        let (values, baselines) = ([1.0, 4.0, 9.0, 1.0], [2.0, 4.0, 3.0, 0.0]);
        assert_eq!(Range::ratio(&values, &baselines), Some(Range { median: 1.0, min: 0.5, max: 3.0 }));
        assert_eq!(ratio_cell(&values, &baselines), "1.00 (0.500-3.00)");
        assert_eq!(ratio_cell(&[1.0], &[0.0]), "");
    }

    #[test]
    fn figures_have_three_digits() {
        assert_eq!([1234.5, 56.78, 1.234, 0.056_78].map(figure), ["1234", "56.8", "1.23", "0.057"]);
    }
}
