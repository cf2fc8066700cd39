//! How evenly the devices were shared out while there were too few of them. What everybody used in all says little about
//! that: in the end all have had what they asked for.

use std::collections::BTreeMap;

use super::cluster::part;
use super::job::Job;

/// What teams, and users without one, hold, and what they got while somebody waited.
#[derive(Clone, Debug, Default)]
pub(super) struct Holds {
    /// In thousandths of a device.
    now: BTreeMap<String, i64>,
    /// The same times seconds.
    got: BTreeMap<String, i128>,
}

impl Holds {
    /// A request starts, or ends.
    pub fn change(&mut self, job: &Job, by: i64) {
        let held = self.now.entry(job.holder().to_owned()).or_default();
        *held = held.saturating_add(job.ask.cost().saturating_mul(by));
    }

    /// Somebody waits for so long, and nothing changes.
    pub fn pass(&mut self, seconds: i64) {
        for (who, held) in self.now.iter().filter(|(_, held)| **held > 0) {
            *self.got.entry(who.clone()).or_default() += i128::from(*held) * i128::from(seconds);
        }
    }

    /// (Σx)² / n Σx² over what each got for its weight, in ten thousandths. Whoever waited is counted, also with nothing.
    pub fn fairness(&self, jobs: &[Job], weights: &BTreeMap<String, u32>) -> i64 {
        let mut got: BTreeMap<&str, i128> = self.got.iter().map(|(who, got)| (who.as_str(), *got)).collect();
        for job in jobs.iter().filter(|job| job.waited()) {
            got.entry(job.holder()).or_default();
        }
        let weight = |who: &str| i128::from(weights.get(who).copied().unwrap_or(1).max(1));
        let shares: Vec<i128> = got.into_iter().map(|(who, got)| got / weight(who)).collect();
        // In units that keep the squares small.
        let unit = shares.iter().max().map_or(1, |most| most / 1_000_000 + 1);
        let (mut sum, mut squares, mut count) = (0_i128, 0_i128, 0_i128);
        for share in shares.into_iter().map(|share| share / unit) {
            sum += share;
            squares += share * share;
            count += 1;
        }
        if squares == 0 { 10_000 } else { part(sum * sum, count * squares) }
    }
}
