//! CPU usage between two samples, grouped by what started the process: agent, session, entrypoint or other. No I/O.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use crate::serve::activity::proc_stat::Sample;

/// Of one core. A shell at its prompt and an unused editor stay well below.
const BUSY_THRESHOLD_PERCENT: u64 = 5;

/// Processes whose environment is read per sample.
const MAX_ENVIRONMENT_READS: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Origin {
    /// The agent and its helper processes; never counted.
    Agent,
    Session,
    Entrypoint,
    Other,
}

/// Processes at the root of process trees.
#[derive(Clone, Copy, Debug)]
pub struct Roots<'a> {
    pub init: u32,
    pub serve: u32,
    pub session_leaders: &'a BTreeSet<u32>,
    /// A child of `serve` that runs for the user.
    pub jupyter: Option<u32>,
}

/// Compares samples with the previous ones.
#[derive(Debug, Default)]
pub struct CpuSampler {
    /// Time of the previous samples, in clock ticks since the boot of the node.
    at: u64,
    previous: HashMap<u32, Previous>,
}

/// The previous sample of a process.
#[derive(Clone, Copy, Debug)]
struct Previous {
    start_ticks: u64,
    own_ticks: u64,
    children_ticks: u64,
    origin: Origin,
}

/// CPU time used by the processes of one origin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuUsage {
    pub ticks: u64,
    busiest: Option<(u64, Box<str>)>,
}

impl CpuUsage {
    /// Returns the name of the process that used most.
    pub fn busiest(&self) -> Option<&str> {
        self.busiest.as_ref().map(|(_, name)| &**name)
    }
}

impl CpuSampler {
    /// Returns the usage since the previous samples. `has_session_env` reports whether the environment of a process
    /// shows that a session started it; it may be slow.
    pub fn sample(
        &mut self,
        samples: &[Sample],
        roots: &Roots<'_>,
        at: u64,
        has_session_env: impl FnMut(u32) -> bool,
    ) -> HashMap<Origin, CpuUsage> {
        let is_first = self.previous.is_empty();
        let origins = origins(samples, roots);
        let mut used: Vec<(u64, &Sample, Origin)> = Vec::with_capacity(samples.len());
        let mut reaped: HashMap<Origin, u64> = HashMap::new();
        let mut current = HashMap::with_capacity(samples.len());
        for sample in samples {
            let previous =
                self.previous.remove(&sample.pid).filter(|previous| previous.start_ticks == sample.start_ticks);
            let mut origin = origins.get(&sample.pid).copied().unwrap_or(Origin::Other);
            // A process of a session stays one when it is reparented.
            if origin == Origin::Other && previous.is_some_and(|previous| previous.origin == Origin::Session) {
                origin = Origin::Session;
            }
            let own = match previous {
                Some(previous) => sample.own_ticks.saturating_sub(previous.own_ticks),
                None if !is_first && sample.start_ticks >= self.at => sample.own_ticks,
                None => 0,
            };
            let newly_reaped =
                previous.map_or(0, |previous| sample.children_ticks.saturating_sub(previous.children_ticks));
            let total = reaped.entry(origin).or_default();
            *total = total.saturating_add(newly_reaped);
            used.push((own, sample, origin));
            let Sample { start_ticks, own_ticks, children_ticks, .. } = *sample;
            current.insert(sample.pid, Previous { start_ticks, own_ticks, children_ticks, origin });
        }
        classify_orphans(&mut used, &mut current, has_session_env);
        let mut usage: HashMap<Origin, CpuUsage> = HashMap::new();
        for (own, sample, origin) in used {
            let usage = usage.entry(origin).or_default();
            usage.ticks = usage.ticks.saturating_add(own);
            if own > usage.busiest.as_ref().map_or(0, |(max, _)| *max) {
                usage.busiest = Some((own, sample.name.clone()));
            }
        }
        // The kernel adds the time of a child to its parent when the child is reaped. Children that lived between two
        // samples appear only there; the time of sampled ones was counted already.
        for exited in self.previous.values() {
            let total = reaped.entry(exited.origin).or_default();
            *total = total.saturating_sub(exited.own_ticks.saturating_add(exited.children_ticks));
        }
        for (origin, ticks) in reaped {
            let usage = usage.entry(origin).or_default();
            usage.ticks = usage.ticks.saturating_add(ticks);
        }
        *self = Self { at, previous: current };
        usage
    }
}

/// Classifies orphans of unknown origin by their environment, the busiest first.
fn classify_orphans(
    used: &mut [(u64, &Sample, Origin)],
    current: &mut HashMap<u32, Previous>,
    mut has_session_env: impl FnMut(u32) -> bool,
) {
    let mut unknown: Vec<_> = used.iter_mut().filter(|(own, _, origin)| *origin == Origin::Other && *own > 0).collect();
    unknown.sort_by_key(|(own, ..)| std::cmp::Reverse(*own));
    for (_, sample, origin) in unknown.into_iter().take(MAX_ENVIRONMENT_READS) {
        if has_session_env(sample.pid) {
            *origin = Origin::Session;
            if let Some(current) = current.get_mut(&sample.pid) {
                current.origin = Origin::Session;
            }
        }
    }
}

/// Reports whether the CPU time exceeds the threshold.
pub fn is_busy(ticks: u64, ticks_per_second: u64, interval: Duration) -> bool {
    let available = u128::from(ticks_per_second) * interval.as_millis() / 1000;
    ticks > 0 && u128::from(ticks) * 100 >= available * u128::from(BUSY_THRESHOLD_PERCENT)
}

/// Returns the origin of each process: that of the nearest ancestor with a known one. Orphans are children of PID 1,
/// but keep their session ID; that of PID 1 is also the entrypoint's. Parents are not read atomically, so they may form
/// a cycle; no path is longer than the number of processes.
pub fn origins(samples: &[Sample], roots: &Roots<'_>) -> HashMap<u32, Origin> {
    origins_with_visits(samples, roots).0
}

/// Also returns how many processes were visited, so that a test can bound the cost.
fn origins_with_visits(samples: &[Sample], roots: &Roots<'_>) -> (HashMap<u32, Origin>, usize) {
    let mut visits = 0;
    let by_pid: HashMap<u32, &Sample> = samples.iter().map(|sample| (sample.pid, sample)).collect();
    let init_session = by_pid.get(&roots.init).map(|init| init.session);
    let mut origins: HashMap<u32, Origin> = HashMap::with_capacity(samples.len());
    let mut path = Vec::new();
    for sample in samples {
        let mut current = sample;
        let origin = loop {
            visits += 1;
            if let Some(known) = origins.get(&current.pid) {
                break *known;
            }
            if let Some(origin) = direct_origin(current, roots) {
                break origin;
            }
            match by_pid.get(&current.parent).filter(|parent| parent.pid != roots.init && path.len() < samples.len()) {
                Some(parent) => {
                    path.push(current.pid);
                    current = *parent;
                }
                None if init_session == Some(current.session) && current.parent == roots.init => {
                    break Origin::Entrypoint;
                }
                None => break Origin::Other,
            }
        };
        origins.insert(current.pid, origin);
        origins.extend(path.drain(..).map(|pid| (pid, origin)));
    }
    (origins, visits)
}

/// Returns the origin of a process that does not depend on its ancestors.
fn direct_origin(sample: &Sample, roots: &Roots<'_>) -> Option<Origin> {
    let leaders = roots.session_leaders;
    if roots.jupyter == Some(sample.pid) {
        Some(Origin::Other)
    } else if sample.pid == roots.init || sample.pid == roots.serve {
        Some(Origin::Agent)
    } else if leaders.contains(&sample.pid) || leaders.contains(&sample.session) {
        Some(Origin::Session)
    } else if sample.parent == roots.serve {
        Some(Origin::Agent)
    } else {
        None
    }
}

#[cfg(test)]
mod tests;
