//! What the scheduler goes by.

use serde::{Deserialize, Serialize};

/// Settings of an administrator. Times are in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Policy {
    pub backfill: Backfill,
    /// How many servers that wait get a planned start, besides all bookings. Each of them is delayed by nobody behind
    /// it; whoever waits further back has no promise yet that could be broken.
    pub depth: usize,
    /// After so long in the queue a server counts as one priority higher, again and again: whoever asks later than three
    /// times this can never come before it.
    pub ageing: i64,
    /// Use loses half of its weight in this time.
    pub half_life: i64,
    /// Differences in use below so many device seconds per weight do not count, so that the order is calm.
    pub share_step: i64,
    /// How long somebody who is preempted has to save their work. Their stop begins when it is over.
    pub notice: i64,
    /// How long an orderly stop may take.
    pub grace: i64,
    /// Whether preemptible servers give way to a higher priority, besides giving back quota that is not theirs.
    pub preempt_for_priority: bool,
    /// Who runs for less than this is not asked to leave yet: nobody is started to be stopped.
    pub least_run: i64,
    /// A server that was preempted so often is left alone.
    pub most_preemptions: u32,
}

/// Who may start before an earlier one that waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Backfill {
    /// Nobody who could use the same nodes.
    None,
    /// Whoever does not delay the first.
    First,
    /// Whoever does not delay any planned start.
    #[default]
    Planned,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            backfill: Backfill::Planned,
            depth: 100,
            ageing: 24 * 3_600,
            half_life: 7 * 24 * 3_600,
            share_step: 3_600,
            notice: 120,
            grace: 60,
            preempt_for_priority: true,
            least_run: 600,
            most_preemptions: 3,
        }
    }
}

impl Policy {
    /// How many planned starts there are.
    pub(super) fn planned(&self) -> usize {
        match self.backfill {
            Backfill::None => 0,
            Backfill::First => 1,
            Backfill::Planned => self.depth,
        }
    }

    /// How long after the decision what a preempted server held is free.
    pub(super) fn reclaim(&self) -> i64 {
        self.notice.max(0).saturating_add(self.grace.max(0))
    }
}
