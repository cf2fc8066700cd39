//! Planned starts are promises. This remembers them from plan to plan, so that a start stays where it is unless it can be
//! earlier, and knows why one was moved.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::pass::Slot;

#[derive(Clone, Debug, Default)]
pub(super) struct Promised {
    /// What was kept for whom, with the place in the queue.
    stakes: BTreeMap<u32, (usize, Stake)>,
    /// Until when those granted in the last plan were to stay.
    granted: BTreeMap<u32, i64>,
    /// What was promised came from an earlier world.
    inherited: bool,
    changes: Changes,
}

/// What happened since the last plan that can delay somebody.
#[derive(Clone, Copy, Debug, Default)]
struct Changes {
    shrank: bool,
    extended: bool,
    ruled: bool,
}

/// What is kept for a server that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stake {
    Slot(Slot),
    /// Nodes as a whole, because nobody knows when it can start.
    Nodes(Vec<u32>),
}

/// A planned start that is later than it was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moved {
    pub id: String,
    pub from: i64,
    /// Nothing if no start is known any more.
    pub to: Option<i64>,
    pub why: Cause,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Cause {
    /// Somebody who runs stays longer than was known.
    Extended,
    /// Nodes are gone or out of service, or others use more of them.
    LessCapacity,
    /// A quota or a weight is another one.
    Rules,
    /// Somebody came in before it, by priority, fair share or a booking.
    Overtaken,
    /// Somebody ahead of it is to start earlier than planned, or on other nodes.
    Rearranged,
    /// Its time came and nobody looked.
    Late,
    /// It was promised by another leader, and nobody saw what happened since.
    Inherited,
    /// None of these. It must not happen.
    Unexplained,
}

impl Cause {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Extended => "Extended",
            Self::LessCapacity => "LessCapacity",
            Self::Rules => "Rules",
            Self::Overtaken => "Overtaken",
            Self::Rearranged => "Rearranged",
            Self::Late => "Late",
            Self::Inherited => "Inherited",
            Self::Unexplained => "Unexplained",
        }
    }

    /// For whoever waits. It names nobody.
    pub fn sentence(self) -> &'static str {
        match self {
            Self::Extended => "Somebody who runs stays longer than was known.",
            Self::LessCapacity => "There are fewer nodes than there were, or others use more of them.",
            Self::Rules => "A quota or a weight was changed.",
            Self::Overtaken => "Somebody with a better right came in before it.",
            Self::Rearranged => "Somebody ahead of it starts at another time or on other nodes than planned.",
            Self::Late => "Its time came before the queue looked again.",
            Self::Inherited => "The queue has a new leader, which did not see what happened meanwhile.",
            Self::Unexplained => "Nobody knows why: please tell an administrator.",
        }
    }
}

impl Promised {
    pub fn capacity_shrank(&mut self) {
        self.changes.shrank = true;
    }

    pub fn somebody_stays_longer(&mut self) {
        self.changes.extended = true;
    }

    pub fn rules_changed(&mut self) {
        self.changes.ruled = true;
    }

    /// Until when a server was granted its nodes, if that was the last plan's.
    pub fn granted_until(&self, server: u32) -> Option<i64> {
        self.granted.get(&server).copied()
    }

    /// Where and when a server was to start.
    pub fn slot(&self, server: u32) -> Option<&Slot> {
        match self.stakes.get(&server) {
            Some((_, Stake::Slot(slot))) => Some(slot),
            Some((_, Stake::Nodes(_))) | None => None,
        }
    }

    /// It was promised this by an earlier world, in this place of the queue.
    pub fn restore(&mut self, server: u32, place: usize, slot: Slot) {
        self.stakes.insert(server, (place, Stake::Slot(slot)));
        self.inherited = true;
    }

    pub fn places(&self) -> impl Iterator<Item = (u32, usize, &Slot)> {
        self.stakes.iter().filter_map(|(server, (place, stake))| match stake {
            Stake::Slot(slot) => Some((*server, *place, slot)),
            Stake::Nodes(_) => None,
        })
    }

    pub fn forget(&mut self, server: u32) {
        self.stakes.remove(&server);
    }

    /// Takes note of what is kept for everybody, in order, and says which planned starts known before moved to a later time.
    /// Those that start now are among them.
    pub fn note(
        &mut self,
        stakes: impl Iterator<Item = (u32, Option<Stake>)>,
        now: i64,
        id: impl Fn(u32) -> Option<String>,
    ) -> Vec<Moved> {
        let mut moved = Vec::new();
        let (mut overtaken, mut rearranged) = (false, false);
        let (mut known, mut granted) = (BTreeMap::new(), BTreeMap::new());
        // How far in the old order everybody seen so far was.
        let mut furthest = 0;
        for (place, (server, stake)) in stakes.enumerate() {
            let before = self.stakes.remove(&server);
            if before.is_none() && stake.is_none() {
                continue;
            }
            // Somebody who is now ahead was behind this one before, or nothing was kept for it.
            overtaken |= before.as_ref().is_none_or(|(place, _)| *place < furthest);
            furthest = before.as_ref().map_or(furthest, |(place, _)| furthest.max(*place));
            let start = stake.as_ref().and_then(Stake::start);
            if let Some(from) = before.as_ref().and_then(|(_, stake)| stake.start()) {
                // Who starts now and could have a little earlier was late to be looked at.
                if start.is_none_or(|start| start > from.max(now)) {
                    let why = if self.inherited {
                        Cause::Inherited
                    } else if self.changes.extended {
                        Cause::Extended
                    } else if self.changes.shrank {
                        Cause::LessCapacity
                    } else if self.changes.ruled {
                        Cause::Rules
                    } else if overtaken {
                        Cause::Overtaken
                    } else if rearranged {
                        Cause::Rearranged
                    } else if from < now {
                        Cause::Late
                    } else {
                        Cause::Unexplained
                    };
                    moved.extend(id(server).map(|id| Moved { id, from, to: start, why }));
                }
            }
            rearranged |= before.is_some_and(|(_, before)| stake.as_ref() != Some(&before));
            match stake {
                Some(Stake::Slot(slot)) if slot.start <= now => drop(granted.insert(server, slot.until)),
                Some(stake) => drop(known.insert(server, (place, stake))),
                None => {}
            }
        }
        (self.stakes, self.granted) = (known, granted);
        (self.inherited, self.changes) = (false, Changes::default());
        moved
    }
}

impl Stake {
    fn start(&self) -> Option<i64> {
        match self {
            Self::Slot(slot) => Some(slot.start),
            Self::Nodes(_) => None,
        }
    }
}
