//! Reservations of the last cycle. A reservation is kept unless the server can start earlier; if it is delayed, the cause
//! is determined here.

use std::collections::BTreeMap;

use super::cycle::reservation::Reservation;
use super::state::arena::{NodeIdx, ServerIdx};

#[derive(Clone, Debug, Default)]
pub(super) struct ReservationHistory {
    holds: BTreeMap<ServerIdx, QueuedHold>,
    /// The ends of servers that the last plan assigned nodes to.
    assigned_until: BTreeMap<ServerIdx, i64>,
    /// The reservations were made by an earlier leader.
    restored: bool,
    changes: Changes,
}

/// A hold with the index of its server in the queue.
#[derive(Clone, Debug)]
struct QueuedHold {
    queue_index: usize,
    hold: Hold,
}

/// What happened since the last cycle that can delay a server.
#[derive(Clone, Copy, Debug, Default)]
struct Changes {
    capacity_reduced: bool,
    run_extended: bool,
    quota_changed: bool,
}

/// What is held for a pending server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Hold {
    Reservation(Reservation),
    /// Whole nodes, because the start is unknown.
    Nodes(Vec<NodeIdx>),
}

/// A reservation that starts later than before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DelayedStart {
    pub id: String,
    pub from: i64,
    /// `None` if the start is unknown now.
    pub to: Option<i64>,
    pub cause: DelayCause,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DelayCause {
    /// A running server ends later than was known.
    RunExtended,
    /// Nodes were deleted or became unschedulable, or foreign pods use more of them.
    CapacityReduced,
    /// A quota or a weight was changed.
    QuotaChanged,
    /// A server with higher precedence joined the queue.
    Overtaken,
    /// A server ahead starts at another time or on other nodes.
    Replanned,
    /// No cycle ran when the reservation started.
    SchedulerLate,
    /// The reservation was made by another leader; changes since then are unknown.
    LeaderChanged,
    /// None of these. Must not happen.
    Unknown,
}

impl DelayCause {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RunExtended => "RunExtended",
            Self::CapacityReduced => "CapacityReduced",
            Self::QuotaChanged => "QuotaChanged",
            Self::Overtaken => "Overtaken",
            Self::Replanned => "Replanned",
            Self::SchedulerLate => "SchedulerLate",
            Self::LeaderChanged => "LeaderChanged",
            Self::Unknown => "Unknown",
        }
    }

    /// Returns a message for the owner of the delayed server. It does not name other users.
    pub fn message(self) -> &'static str {
        match self {
            Self::RunExtended => "Delayed: a running server was extended.",
            Self::CapacityReduced => "Delayed: node capacity decreased.",
            Self::QuotaChanged => "Delayed: a quota or a weight was changed.",
            Self::Overtaken => "Delayed: a server with higher precedence joined the queue.",
            Self::Replanned => "Delayed: the plan of a server ahead in the queue changed.",
            Self::SchedulerLate => "Delayed: the scheduler ran late.",
            Self::LeaderChanged => "Delayed: a new leader rebuilt the plan.",
            Self::Unknown => "Delayed for an unknown reason. Please report this to an administrator.",
        }
    }
}

impl ReservationHistory {
    pub fn mark_capacity_reduced(&mut self) {
        self.changes.capacity_reduced = true;
    }

    pub fn mark_run_extended(&mut self) {
        self.changes.run_extended = true;
    }

    pub fn mark_quota_changed(&mut self) {
        self.changes.quota_changed = true;
    }

    /// Returns until when the last plan assigned nodes to a server.
    pub fn assigned_until(&self, server: ServerIdx) -> Option<i64> {
        self.assigned_until.get(&server).copied()
    }

    pub fn get(&self, server: ServerIdx) -> Option<&Reservation> {
        self.holds.get(&server)?.hold.reservation()
    }

    /// Adds a reservation of an earlier leader.
    pub fn restore(&mut self, server: ServerIdx, queue_index: usize, reservation: Reservation) {
        self.holds.insert(server, QueuedHold { queue_index, hold: Hold::Reservation(reservation) });
        self.restored = true;
    }

    pub fn iter(&self) -> impl Iterator<Item = (ServerIdx, usize, &Reservation)> {
        let holds = self.holds.iter();
        holds.filter_map(|(server, queued)| Some((*server, queued.queue_index, queued.hold.reservation()?)))
    }

    pub fn forget(&mut self, server: ServerIdx) {
        self.holds.remove(&server);
    }

    /// Records the holds of all servers, in queue order and including those that start now. Returns the reservations that
    /// start later than before.
    pub fn record(
        &mut self,
        holds: impl Iterator<Item = (ServerIdx, Option<Hold>)>,
        now: i64,
        id: impl Fn(ServerIdx) -> Option<String>,
    ) -> Vec<DelayedStart> {
        let mut delayed = Vec::new();
        let (mut overtaken, mut replanned) = (false, false);
        let (mut recorded, mut assigned_until) = (BTreeMap::new(), BTreeMap::new());
        // The highest previous queue index of the servers so far.
        let mut furthest = 0;
        for (queue_index, (server, hold)) in holds.enumerate() {
            let before = self.holds.remove(&server);
            if before.is_none() && hold.is_none() {
                continue;
            }
            // A server that is ahead now was behind this one before, or nothing was held for it.
            overtaken |= before.as_ref().is_none_or(|before| before.queue_index < furthest);
            furthest = before.as_ref().map_or(furthest, |before| furthest.max(before.queue_index));
            let to = hold.as_ref().and_then(Hold::start);
            if let Some(from) = before.as_ref().and_then(|before| before.hold.start()) {
                // A server that starts now, a little after its reservation, is not delayed.
                if to.is_none_or(|to| to > from.max(now)) {
                    let cause = if self.restored {
                        DelayCause::LeaderChanged
                    } else if self.changes.run_extended {
                        DelayCause::RunExtended
                    } else if self.changes.capacity_reduced {
                        DelayCause::CapacityReduced
                    } else if self.changes.quota_changed {
                        DelayCause::QuotaChanged
                    } else if overtaken {
                        DelayCause::Overtaken
                    } else if replanned {
                        DelayCause::Replanned
                    } else if from < now {
                        DelayCause::SchedulerLate
                    } else {
                        DelayCause::Unknown
                    };
                    delayed.extend(id(server).map(|id| DelayedStart { id, from, to, cause }));
                }
            }
            replanned |= before.is_some_and(|before| hold.as_ref() != Some(&before.hold));
            match hold {
                Some(Hold::Reservation(reservation)) if reservation.start <= now => {
                    assigned_until.insert(server, reservation.end);
                }
                Some(hold) => drop(recorded.insert(server, QueuedHold { queue_index, hold })),
                None => {}
            }
        }
        *self = Self { holds: recorded, assigned_until, ..Self::default() };
        delayed
    }
}

impl Hold {
    fn reservation(&self) -> Option<&Reservation> {
        match self {
            Self::Reservation(reservation) => Some(reservation),
            Self::Nodes(_) => None,
        }
    }

    fn start(&self) -> Option<i64> {
        self.reservation().map(|reservation| reservation.start)
    }
}
