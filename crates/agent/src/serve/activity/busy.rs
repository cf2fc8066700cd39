//! Which processes used the CPU between two looks, and where they come from. Nothing is read here.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use crate::serve::activity::process::Sample;

/// Of one core. A shell at its prompt and an editor nobody touches stay well below.
const THRESHOLD_PERCENT: u64 = 5;

/// Processes whose environment is asked for in one look.
const MOST_ASKED: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Origin {
    /// Ours, and what we run for ourselves. Never counts.
    Agent,
    Session,
    Entrypoint,
    Other,
}

/// Where trees of processes begin.
#[derive(Clone, Copy, Debug)]
pub struct Roots<'a> {
    pub init: u32,
    pub serve: u32,
    /// Of sessions.
    pub leaders: &'a BTreeSet<u32>,
    /// Started by us, but for the user.
    pub notebook: Option<u32>,
}

/// The processes at one look.
#[derive(Debug, Default)]
pub struct Look {
    /// Since the node was started, in clock ticks.
    at: u64,
    known: HashMap<u32, Known>,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    start: u64,
    own: u64,
    reaped: u64,
    origin: Origin,
}

/// What one kind of processes used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Growth {
    pub ticks: u64,
    busiest: Option<(u64, Box<str>)>,
}

impl Growth {
    pub fn busiest(&self) -> Option<&str> {
        self.busiest.as_ref().map(|(_, name)| &**name)
    }
}

impl Look {
    /// Takes the place of the look before, and tells what was used since. `from_session` says whether a process knows
    /// that a session started it, though nothing else does; it may be slow.
    pub fn next(
        &mut self,
        samples: &[Sample],
        roots: &Roots<'_>,
        at: u64,
        from_session: impl FnMut(u32) -> bool,
    ) -> HashMap<Origin, Growth> {
        let first = self.known.is_empty();
        let origins = origins(samples, roots);
        let mut used: Vec<(u64, &Sample, Origin)> = Vec::with_capacity(samples.len());
        let mut reaped: HashMap<Origin, u64> = HashMap::new();
        let mut known = HashMap::with_capacity(samples.len());
        for sample in samples {
            let before = self.known.remove(&sample.pid).filter(|before| before.start == sample.start);
            let mut origin = origins.get(&sample.pid).copied().unwrap_or(Origin::Other);
            // Who came from a session stays there, whoever its parent has become.
            if origin == Origin::Other && before.is_some_and(|before| before.origin == Origin::Session) {
                origin = Origin::Session;
            }
            let own = match before {
                Some(before) => sample.own.saturating_sub(before.own),
                None if !first && sample.start >= self.at => sample.own,
                None => 0,
            };
            let newly_reaped = before.map_or(0, |before| sample.reaped.saturating_sub(before.reaped));
            let told = reaped.entry(origin).or_default();
            *told = told.saturating_add(newly_reaped);
            used.push((own, sample, origin));
            known.insert(sample.pid, Known { start: sample.start, own: sample.own, reaped: sample.reaped, origin });
        }
        ask(&mut used, &mut known, from_session);
        let mut growth: HashMap<Origin, Growth> = HashMap::new();
        for (own, sample, origin) in used {
            let growth = growth.entry(origin).or_default();
            growth.ticks = growth.ticks.saturating_add(own);
            if own > growth.busiest.as_ref().map_or(0, |(most, _)| *most) {
                growth.busiest = Some((own, sample.name.clone()));
            }
        }
        // A parent is told the time of a child when it ends: that of short ones is seen nowhere else, that of those we
        // knew was counted already.
        for gone in self.known.values() {
            let told = reaped.entry(gone.origin).or_default();
            *told = told.saturating_sub(gone.own.saturating_add(gone.reaped));
        }
        for (origin, ticks) in reaped {
            let growth = growth.entry(origin).or_default();
            growth.ticks = growth.ticks.saturating_add(ticks);
        }
        *self = Self { at, known };
        growth
    }
}

/// Orphans that nothing else tells apart are asked, the busiest first.
fn ask(
    used: &mut [(u64, &Sample, Origin)],
    known: &mut HashMap<u32, Known>,
    mut from_session: impl FnMut(u32) -> bool,
) {
    let mut unclear: Vec<_> = used.iter_mut().filter(|(own, _, origin)| *origin == Origin::Other && *own > 0).collect();
    unclear.sort_by_key(|(own, ..)| std::cmp::Reverse(*own));
    for (_, sample, origin) in unclear.into_iter().take(MOST_ASKED) {
        if from_session(sample.pid) {
            *origin = Origin::Session;
            if let Some(known) = known.get_mut(&sample.pid) {
                known.origin = Origin::Session;
            }
        }
    }
}

/// Whether so much of one core was used that somebody must be at work.
pub fn is_busy(ticks: u64, ticks_per_second: u64, over: Duration) -> bool {
    let all = u128::from(ticks_per_second) * over.as_millis() / 1000;
    ticks > 0 && u128::from(ticks) * 100 >= all * u128::from(THRESHOLD_PERCENT)
}

/// Where each process comes from: up its parents to one that is known. Orphans have process 1 as their parent, but keep
/// the session they were started in, and that of process 1 is the entrypoint's too. Parents are read one after the other,
/// so they may even run in a circle; no way is longer than there are processes.
pub fn origins(samples: &[Sample], roots: &Roots<'_>) -> HashMap<u32, Origin> {
    let by_pid: HashMap<u32, &Sample> = samples.iter().map(|sample| (sample.pid, sample)).collect();
    let first_session = by_pid.get(&roots.init).map(|init| init.session);
    let mut origins: HashMap<u32, Origin> = HashMap::with_capacity(samples.len());
    let mut way = Vec::new();
    for sample in samples {
        let mut at = sample;
        let origin = loop {
            if let Some(known) = origins.get(&at.pid) {
                break *known;
            }
            if let Some(origin) = by_itself(at, roots) {
                break origin;
            }
            match by_pid.get(&at.parent).filter(|parent| parent.pid != roots.init && way.len() < samples.len()) {
                Some(parent) => {
                    way.push(at.pid);
                    at = *parent;
                }
                None if first_session == Some(at.session) && at.parent == roots.init => break Origin::Entrypoint,
                None => break Origin::Other,
            }
        };
        origins.insert(at.pid, origin);
        origins.extend(way.drain(..).map(|pid| (pid, origin)));
    }
    origins
}

fn by_itself(sample: &Sample, roots: &Roots<'_>) -> Option<Origin> {
    if roots.notebook == Some(sample.pid) {
        Some(Origin::Other)
    } else if sample.pid == roots.init || sample.pid == roots.serve {
        Some(Origin::Agent)
    } else if roots.leaders.contains(&sample.pid) || roots.leaders.contains(&sample.session) {
        Some(Origin::Session)
    } else if sample.parent == roots.serve {
        Some(Origin::Agent)
    } else {
        None
    }
}

#[cfg(test)]
mod tests;
