//! How evenly devices were shared while servers were pending. Total usage would not show it: in the end all requests have
//! run.

use std::collections::BTreeMap;

use super::cluster::ten_thousandths;
use super::job::Job;

/// Usage of teams, and users without one.
#[derive(Clone, Debug, Default)]
pub(super) struct AccountUsage {
    /// Current usage in millidevices.
    current: BTreeMap<String, i64>,
    /// Usage while servers were pending, in millidevice-seconds.
    total: BTreeMap<String, i128>,
}

impl AccountUsage {
    /// Adds a job `count` times; -1 removes it.
    pub fn add(&mut self, job: &Job, count: i64) {
        let current = self.current.entry(job.account().to_owned()).or_default();
        *current = current.saturating_add(job.resources.usage_rate().saturating_mul(count));
    }

    /// Adds the current usage for some seconds in which servers were pending.
    pub fn advance(&mut self, seconds: i64) {
        for (account, current) in self.current.iter().filter(|(_, current)| **current > 0) {
            *self.total.entry(account.clone()).or_default() += i128::from(*current) * i128::from(seconds);
        }
    }

    /// Returns Jain's index (Σx)² / n Σx² of the usage per weight, in ten-thousandths. All accounts that waited are counted.
    pub fn fairness(&self, jobs: &[Job], weights: &BTreeMap<String, u32>) -> i64 {
        let mut total: BTreeMap<&str, i128> =
            self.total.iter().map(|(account, total)| (account.as_str(), *total)).collect();
        for job in jobs.iter().filter(|job| job.has_waited()) {
            total.entry(job.account()).or_default();
        }
        let weight = |account: &str| i128::from(weights.get(account).copied().unwrap_or(1).max(1));
        let shares: Vec<i128> = total.into_iter().map(|(account, total)| total / weight(account)).collect();
        // Scaled down, to keep the squares small.
        let unit = shares.iter().max().map_or(1, |max| max / 1_000_000 + 1);
        let (mut sum, mut squares, mut count) = (0_i128, 0_i128, 0_i128);
        for share in shares.into_iter().map(|share| share / unit) {
            sum += share;
            squares += share * share;
            count += 1;
        }
        if squares == 0 { 10_000 } else { ten_thousandths(sum * sum, count * squares) }
    }
}
