//! Sums over everything that happened.

use std::collections::BTreeMap;

use super::cluster::{Cluster, part};
use super::fairness::Holds;
use super::job::Job;
use super::report::{EtaCoverage, Totals, Waits, number};

pub(super) struct Counts {
    pub violations: u64,
    pub preemptions: u64,
    pub weights: BTreeMap<String, u32>,
    pub ended: i64,
    /// Promises of the first so many requests do not count: nothing was known then.
    pub warm_up: usize,
}

pub(super) fn totals(jobs: &[Job], cluster: &Cluster, holds: &Holds, counts: &Counts) -> Totals {
    let (used, scattered) = cluster.shares();
    let begin = jobs.iter().map(|job| job.queued).min().unwrap_or_default();
    Totals {
        utilisation: number(used),
        fragmentation: number(scattered),
        waits: waits(jobs),
        makespan: counts.ended.saturating_sub(begin).max(0),
        capacity_bound: bound(jobs, cluster, begin),
        fairness: number(holds.fairness(jobs, &counts.weights)),
        eta_coverage: coverage(jobs.get(counts.warm_up..).unwrap_or_default()),
        overcommits: cluster.overcommits,
        promise_violations: counts.violations,
        preemptions: counts.preemptions,
    }
}

fn waits(jobs: &[Job]) -> BTreeMap<String, Waits> {
    let mut classes: BTreeMap<String, Vec<i64>> = BTreeMap::new();
    for job in jobs {
        let Some(first) = job.runs.first() else { continue };
        let size = job.ask.devices();
        let class = match job.ask.nodes {
            1 => format!("{} ×{size}", job.request.flavor),
            nodes => format!("{} ×{size} on {nodes} nodes", job.request.flavor),
        };
        let asked = job.request.not_before.map_or(job.queued, |at| at.max(job.queued));
        classes.entry(class).or_default().push(first.started_at.saturating_sub(asked).max(0));
    }
    classes.into_iter().map(|(class, waits)| (class, Waits::of(waits))).collect()
}

impl Waits {
    fn of(mut waits: Vec<i64>) -> Self {
        waits.sort_unstable();
        let count = i64::try_from(waits.len()).unwrap_or(i64::MAX).max(1);
        let at = |percent: usize| waits.get((waits.len() * percent / 100).min(waits.len().saturating_sub(1))).copied();
        Self {
            count: waits.len(),
            mean: waits.iter().copied().fold(0, i64::saturating_add) / count,
            p50: at(50).unwrap_or_default(),
            p90: at(90).unwrap_or_default(),
            max: waits.last().copied().unwrap_or_default(),
        }
    }
}

/// All the work divided by all the devices, or the longest that any one had to take.
fn bound(jobs: &[Job], cluster: &Cluster, begin: i64) -> i64 {
    let mut work: BTreeMap<&str, i128> = BTreeMap::new();
    let mut longest = 0;
    for job in jobs.iter().filter(|job| !job.runs.is_empty()) {
        let ran: i64 = job.runs.iter().filter_map(|run| Some(run.ended_at?.saturating_sub(run.started_at))).sum();
        let asked = job.request.not_before.map_or(job.queued, |at| at.max(job.queued));
        longest = longest.max(asked.saturating_add(ran).saturating_sub(begin));
        if let Some(device) = &job.ask.device {
            *work.entry(device).or_default() += i128::from(job.ask.devices()) * i128::from(ran);
        }
    }
    let shared = work.into_iter().map(|(device, work)| {
        let all = i128::from(cluster.devices_of(device)).max(1);
        i64::try_from((work + all - 1) / all).unwrap_or(i64::MAX)
    });
    shared.max().unwrap_or_default().max(longest)
}

fn coverage(jobs: &[Job]) -> EtaCoverage {
    let outcomes = jobs.iter().filter_map(|job| {
        let (_, eta) = job.eta.as_ref()?;
        let started = job.runs.first()?.started_at;
        Some((started <= eta.p50, started <= eta.p90))
    });
    let outcomes: Vec<(bool, bool)> = outcomes.collect();
    let all = i128::try_from(outcomes.len()).unwrap_or(i128::MAX);
    let share = |kept: usize| (all > 0).then(|| number(part(i128::try_from(kept).unwrap_or(i128::MAX), all)));
    EtaCoverage {
        promises: outcomes.len(),
        unpromised: jobs.iter().filter(|job| job.eta.is_none() && job.waited()).count(),
        p50: share(outcomes.iter().filter(|(p50, _)| *p50).count()),
        p90: share(outcomes.iter().filter(|(_, p90)| *p90).count()),
    }
}
