//! Conversion of flavor histories from and to their stored form.

use odc_api::v1alpha1 as api;

use crate::scheduler::{EtaCalibration, FlavorHistory, RuntimeHistogram};

pub(super) fn to_stored(history: &FlavorHistory) -> api::FlavorHistory {
    let calibration = &history.eta_calibration;
    let runtimes = history.runtimes.iter();
    api::FlavorHistory {
        runtimes: runtimes.map(|runtimes| api::RuntimeHistogram { counts: runtimes.counts().to_vec() }).collect(),
        eta_calibration: Some(api::EtaCalibration {
            estimates: calibration.estimate_count,
            within_p50: calibration.within_estimate[0],
            within_p90: calibration.within_estimate[1],
            waits: calibration.ratios().to_vec(),
            levels: calibration.quantiles_permille().iter().map(|level| level.unsigned_abs()).collect(),
        }),
    }
}

/// Returns `None` if the number of buckets is different, as written by another version of the operator. The history then
/// starts empty.
pub(super) fn from_stored(stored: &api::FlavorHistory) -> Option<FlavorHistory> {
    let runtimes = stored.runtimes.iter();
    let runtimes: Option<Vec<RuntimeHistogram>> =
        runtimes.map(|runtimes| RuntimeHistogram::from_counts(&runtimes.counts)).collect();
    let eta_calibration = match &stored.eta_calibration {
        Some(stored) => {
            let levels: Option<Vec<i32>> = stored.levels.iter().map(|level| i32::try_from(*level).ok()).collect();
            let within = [stored.within_p50, stored.within_p90];
            EtaCalibration::from_parts(&stored.waits, &levels?, stored.estimates, within)?
        }
        None => EtaCalibration::default(),
    };
    Some(FlavorHistory { runtimes: runtimes?.try_into().ok()?, eta_calibration })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_history_is_read_back() {
        let mut history = FlavorHistory::default();
        for runtime in [60, 600, 3_000] {
            history.observe_run(3_600, runtime);
            history.observe_run(100_000, runtime);
            let estimate = history.eta_calibration.estimate(runtime, None);
            history.eta_calibration.observe_wait(estimate, runtime * 2);
        }
        assert_eq!(from_stored(&to_stored(&history)), Some(history));
    }

    #[test]
    fn history_with_other_number_of_buckets_is_ignored() {
        let mut stored = to_stored(&FlavorHistory::default());
        stored.runtimes.pop();
        assert_eq!(from_stored(&stored), None);
        let mut stored = to_stored(&FlavorHistory::default());
        stored.runtimes[0].counts.push(1);
        assert_eq!(from_stored(&stored), None);
        assert_eq!(from_stored(&api::FlavorHistory::default()), None);
    }
}
