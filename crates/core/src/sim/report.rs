//! What a simulation came to.

use std::collections::BTreeMap;

use serde::Serialize;

use super::job::Request;

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    pub requests: Vec<Request>,
    pub totals: Totals,
    /// Plans that were made.
    pub plans: u64,
    /// Everybody who was ever granted nodes, asked to leave or promised a time.
    pub decisions: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Totals {
    /// Of the device seconds there were, the part that was used, from the first request to the last end.
    pub utilisation: f64,
    /// Of the free device seconds, the part on nodes that were partly used: what large requests cannot have.
    pub fragmentation: f64,
    /// Seconds from the request, or the booked time, to the first start, by flavor and size.
    pub waits: BTreeMap<String, Waits>,
    /// Seconds from the first request to the last end.
    pub makespan: i64,
    /// What no scheduler could be below.
    pub capacity_bound: i64,
    /// Jain's index over what teams, and users without one, got for their weight while somebody waited: 1 if all got the
    /// same. Who never had to wait and had nothing then is not counted.
    pub fairness: f64,
    pub eta_coverage: EtaCoverage,
    pub overcommits: u64,
    /// Planned starts that moved for no reason of the world's.
    pub promise_violations: u64,
    pub preemptions: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Waits {
    pub count: usize,
    pub mean: i64,
    pub p50: i64,
    pub p90: i64,
    pub max: i64,
}

/// Which part of the promises was kept, of those that had to wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct EtaCoverage {
    pub promises: usize,
    /// Those who waited and were never promised anything.
    pub unpromised: usize,
    pub p50: Option<f64>,
    pub p90: Option<f64>,
}

/// Ten thousandths as a number for people.
pub(super) fn number(ten_thousandths: i64) -> f64 {
    f64::from(i32::try_from(ten_thousandths).unwrap_or(i32::MAX)) / 10_000.0
}
