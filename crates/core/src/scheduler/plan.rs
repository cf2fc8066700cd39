//! A plan as a value: who starts now and where, who gives way, and what everybody who waits is told.

use serde::Serialize;

use super::excess::Excess;
use super::promise::Moved;
use super::{Policy, Right, World, pass};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// In the order of deciding.
    pub grants: Vec<Grant>,
    pub preemptions: Vec<Preemption>,
    /// Bookings whose time is promised from now on.
    pub booked: Vec<String>,
    /// Everybody who does not start now, in the order of the queue.
    pub waits: Vec<Wait>,
    /// Planned starts that are later than they were.
    pub moved: Vec<Moved>,
    /// When to look again if nothing changes.
    pub again: Option<i64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    pub id: String,
    /// By name.
    pub nodes: Vec<String>,
    pub choice: Choice,
    /// It starts before others that come before it in the queue, and delays none of them.
    pub backfilled: bool,
    /// With quota that its team does not have: it can be asked back.
    pub borrowed: bool,
}

/// Why these nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Choice {
    /// Of the nodes with room, those with the least of it left.
    Fullest,
    /// Nothing smaller had room, so a node that was empty is used.
    WholeNode,
    /// Only nodes with devices had room, for a server that needs none.
    DeviceNode,
    /// The nodes are all of the smallest group that has enough of them.
    TightestGroup,
}

/// Somebody is asked to leave, in order and with notice. The place in the queue is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preemption {
    pub id: String,
    /// For whom.
    pub by: String,
    pub right: Right,
    /// When its orderly stop begins.
    pub stop: i64,
    /// When its nodes are free at the latest.
    pub end: i64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    pub id: String,
    /// Among those who wait for the same flavor, 1 for the first; nothing for a booking whose time has not come.
    pub position: Option<u32>,
    /// When it starts at the latest, if everybody stays as long as they may and nobody with a better right comes. Nothing
    /// if that is not known, or it is too far back in the queue to be planned.
    pub start: Option<i64>,
    pub stop: Stop,
}

/// What stands in the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    Quota(Excess),
    /// No node could ever hold it.
    Never,
    /// The nodes that could hold it will not have it.
    Refused,
    /// Too little is free, or in the wrong places.
    NoRoom,
    /// Only servers that come before it.
    Behind,
    /// It would fit now, but not for as long as it asks: somebody ahead of it is to start there before it would end.
    TooLong,
    /// The grant it had was taken back.
    Barred,
    /// Its time has not come. Whether that is promised; if not, others may be there then.
    Booked(bool),
}

impl Plan {
    /// What was decided, line by line: what recordings are compared by.
    pub fn decided(&self, now: i64) -> impl Iterator<Item = String> {
        let booked = self.booked.iter().map(move |id| format!("{now} book {id}"));
        let preempted = self.preemptions.iter().map(move |preemption| {
            let Preemption { id, by, stop, end, .. } = preemption;
            format!("{now} preempt {id} for {by} from {stop} until {end}")
        });
        let granted =
            self.grants.iter().map(move |grant| format!("{now} grant {} {}", grant.id, grant.nodes.join(",")));
        booked.chain(preempted).chain(granted)
    }
}

impl Stop {
    /// One word, for tables.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Quota(_) => "quota",
            Self::Never => "never",
            Self::Refused => "refused",
            Self::NoRoom => "noRoom",
            Self::Behind => "behind",
            Self::TooLong => "tooLong",
            Self::Barred => "barred",
            Self::Booked(true) => "booked",
            Self::Booked(false) => "notBooked",
        }
    }
}

impl World {
    /// Decides about everybody. The same facts give the same plan, whatever happened before, and a plan that was carried
    /// out leaves nothing to decide. It changes nothing but what was promised to whom: what it decides counts when events
    /// say so.
    pub fn plan(&mut self, policy: &Policy, now: i64) -> Plan {
        pass::plan(self, policy, now, true)
    }

    /// The same, and nothing is promised to anybody.
    pub fn sketch(&mut self, policy: &Policy, now: i64) -> Plan {
        pass::plan(self, policy, now, false)
    }
}
