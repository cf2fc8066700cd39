//! The result of a simulation.

use std::collections::BTreeMap;

use serde::Serialize;

use super::job::Request;

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    pub requests: Vec<Request>,
    pub totals: Totals,
    pub plans: u64,
    /// Number of assignments, preemptions and confirmed bookings.
    pub decisions: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Totals {
    /// The used part of all device seconds, from the first request to the last end.
    pub utilization: f64,
    /// The part of free device seconds on partly used nodes, which large requests cannot use.
    pub fragmentation: f64,
    /// Seconds from the request, or the start time of a booking, to the first start, by flavor and size.
    pub waits: BTreeMap<String, Waits>,
    /// Seconds from the first request to the last end.
    pub makespan: i64,
    /// A lower bound of the makespan for any scheduler.
    pub capacity_bound: i64,
    /// Jain's index of the usage per weight of teams, and users without one, while servers were pending: 1 if all are equal.
    /// Accounts that never waited and used nothing then are not counted.
    pub fairness: f64,
    pub eta_coverage: EtaCoverage,
    pub overcommits: u64,
    /// Reservations that were delayed without a known cause.
    pub unexplained_delays: u64,
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

/// How many requests that had to wait started within their estimates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EtaCoverage {
    pub estimates: usize,
    /// Requests that waited and never had an estimate.
    pub without_estimate: usize,
    pub p50: Option<f64>,
    pub p90: Option<f64>,
}

/// Converts ten-thousandths to a number.
pub(super) fn number(ten_thousandths: i64) -> f64 {
    f64::from(i32::try_from(ten_thousandths).unwrap_or(i32::MAX)) / 10_000.0
}
