//! Settings of the scheduler.

use serde::{Deserialize, Serialize};

use crate::cluster::TERMINATION_GRACE_PERIOD;

/// Set by an administrator. Times are in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Policy {
    pub backfill: Backfill,
    /// Number of pending servers that get a reservation, in addition to all bookings. Servers further back never delay them.
    pub reservation_depth: usize,
    /// A pending server gains one priority level per interval. A server queued three intervals later can never overtake it.
    pub priority_aging_interval: i64,
    /// Past usage loses half of its weight in this time.
    pub usage_half_life: i64,
    /// Differences in usage below this number of device seconds per weight are ignored, to keep the order stable.
    pub fair_share_resolution: i64,
    /// Time between the preemption of a server and the start of its graceful stop.
    pub preemption_notice: i64,
    /// Maximum duration of a graceful stop.
    pub termination_grace_period: i64,
    /// Whether preemptible servers are preempted by a higher priority, in addition to reclaiming borrowed quota.
    pub preempt_for_priority: bool,
    /// A server is exempt from preemption for this time after its start.
    pub preempt_exempt_time: i64,
    /// A server that was preempted this often is exempt from preemption.
    pub max_preemptions: u32,
}

/// Which servers may start before an earlier pending server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Backfill {
    /// No server that could use the same nodes.
    Disabled,
    /// Servers that do not delay the first pending server.
    Easy,
    /// Servers that do not delay any reservation.
    #[default]
    Conservative,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            backfill: Backfill::Conservative,
            reservation_depth: 100,
            priority_aging_interval: 24 * 3_600,
            usage_half_life: 7 * 24 * 3_600,
            fair_share_resolution: 3_600,
            preemption_notice: 120,
            termination_grace_period: TERMINATION_GRACE_PERIOD.as_secs().cast_signed(),
            preempt_for_priority: true,
            preempt_exempt_time: 600,
            max_preemptions: 3,
        }
    }
}

impl Policy {
    /// Returns the number of reservations, not counting bookings.
    pub(super) fn max_reservations(&self) -> usize {
        match self.backfill {
            Backfill::Disabled => 0,
            Backfill::Easy => 1,
            Backfill::Conservative => self.reservation_depth,
        }
    }

    /// Returns the time from a preemption until the nodes of the victim are free.
    pub(super) fn reclaim_delay(&self) -> i64 {
        self.preemption_notice.max(0).saturating_add(self.termination_grace_period.max(0))
    }
}
