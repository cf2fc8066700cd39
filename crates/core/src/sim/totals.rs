//! Totals of a simulation.

use std::collections::BTreeMap;

use super::cluster::{Cluster, ten_thousandths};
use super::fairness::AccountUsage;
use super::job::Job;
use super::report::{EtaCoverage, Totals, Waits, number};

pub(super) struct Counts {
    pub unexplained_delays: u64,
    pub preemptions: u64,
    pub weights: BTreeMap<String, u32>,
    pub last_end: i64,
    /// Number of requests at the beginning whose estimates are not counted, because there was no history.
    pub warm_up: usize,
}

pub(super) fn totals(jobs: &[Job], cluster: &Cluster, usage: &AccountUsage, counts: &Counts) -> Totals {
    let begin = jobs.iter().map(|job| job.queued_at).min().unwrap_or_default();
    Totals {
        utilization: number(cluster.utilization()),
        fragmentation: number(cluster.fragmentation()),
        waits: waits(jobs),
        makespan: counts.last_end.saturating_sub(begin).max(0),
        capacity_bound: capacity_bound(jobs, cluster, begin),
        fairness: number(usage.fairness(jobs, &counts.weights)),
        eta_coverage: eta_coverage(jobs.get(counts.warm_up..).unwrap_or_default()),
        overcommits: cluster.overcommits,
        unexplained_delays: counts.unexplained_delays,
        preemptions: counts.preemptions,
    }
}

/// Returns the time from which on a job could start.
fn requested_start(job: &Job) -> i64 {
    job.request.not_before.map_or(job.queued_at, |start| start.max(job.queued_at))
}

fn waits(jobs: &[Job]) -> BTreeMap<String, Waits> {
    let mut classes: BTreeMap<String, Vec<i64>> = BTreeMap::new();
    for job in jobs {
        let Some(first) = job.runs.first() else { continue };
        let size = job.resources.devices();
        let class = match job.resources.nodes {
            1 => format!("{} ×{size}", job.request.flavor),
            nodes => format!("{} ×{size} on {nodes} nodes", job.request.flavor),
        };
        classes.entry(class).or_default().push(first.started_at.saturating_sub(requested_start(job)).max(0));
    }
    classes.into_iter().map(|(class, waits)| (class, Waits::new(waits))).collect()
}

impl Waits {
    fn new(mut waits: Vec<i64>) -> Self {
        waits.sort_unstable();
        let count = i64::try_from(waits.len()).unwrap_or(i64::MAX).max(1);
        let quantile = |percent: usize| {
            let position = (waits.len() * percent / 100).min(waits.len().saturating_sub(1));
            waits.get(position).copied().unwrap_or_default()
        };
        Self {
            count: waits.len(),
            mean: waits.iter().copied().fold(0, i64::saturating_add) / count,
            p50: quantile(50),
            p90: quantile(90),
            max: waits.last().copied().unwrap_or_default(),
        }
    }
}

/// Returns all work divided by all devices, or the longest time that one job takes.
fn capacity_bound(jobs: &[Job], cluster: &Cluster, begin: i64) -> i64 {
    let mut work: BTreeMap<&str, i128> = BTreeMap::new();
    let mut longest = 0;
    for job in jobs.iter().filter(|job| !job.runs.is_empty()) {
        let runtime: i64 = job.runs.iter().filter_map(|run| Some(run.ended_at?.saturating_sub(run.started_at))).sum();
        longest = longest.max(requested_start(job).saturating_add(runtime).saturating_sub(begin));
        if let Some(device) = &job.resources.device {
            *work.entry(device).or_default() += i128::from(job.resources.devices()) * i128::from(runtime);
        }
    }
    let bounds = work.into_iter().map(|(device, work)| {
        let devices = i128::from(cluster.device_count(device)).max(1);
        i64::try_from((work + devices - 1) / devices).unwrap_or(i64::MAX)
    });
    bounds.max().unwrap_or_default().max(longest)
}

fn eta_coverage(jobs: &[Job]) -> EtaCoverage {
    let outcomes = jobs.iter().filter_map(|job| {
        let (_, eta) = job.eta.as_ref()?;
        let started_at = job.runs.first()?.started_at;
        Some((started_at <= eta.p50, started_at <= eta.p90))
    });
    let outcomes: Vec<(bool, bool)> = outcomes.collect();
    let total = i128::try_from(outcomes.len()).unwrap_or(i128::MAX);
    let share = |within: usize| {
        let within = i128::try_from(within).unwrap_or(i128::MAX);
        (total > 0).then(|| number(ten_thousandths(within, total)))
    };
    EtaCoverage {
        estimates: outcomes.len(),
        without_estimate: jobs.iter().filter(|job| job.eta.is_none() && job.has_waited()).count(),
        p50: share(outcomes.iter().filter(|(p50, _)| *p50).count()),
        p90: share(outcomes.iter().filter(|(_, p90)| *p90).count()),
    }
}
