//! Planned starts are promises. This remembers them from plan to plan, so that a start stays where it is unless it can be
//! earlier, and knows why one was moved.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::pass::Slot;

#[derive(Clone, Debug, Default)]
pub(super) struct Promised {
    /// Planned starts, by server, with the place in the queue.
    slots: BTreeMap<u32, (usize, Slot)>,
    shrank: bool,
    extended: bool,
    ruled: bool,
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
    /// None of these. It must not happen.
    Unexplained,
}

impl Promised {
    pub fn capacity_shrank(&mut self) {
        self.shrank = true;
    }

    pub fn somebody_stays_longer(&mut self) {
        self.extended = true;
    }

    pub fn rules_changed(&mut self) {
        self.ruled = true;
    }

    /// Where and when a server was to start.
    pub fn slot(&self, server: u32) -> Option<&Slot> {
        self.slots.get(&server).map(|(_, slot)| slot)
    }

    /// It was promised this by an earlier world, in this place of the queue.
    pub fn restore(&mut self, server: u32, place: usize, slot: Slot) {
        self.slots.insert(server, (place, slot));
    }

    pub fn places(&self) -> impl Iterator<Item = (u32, usize, &Slot)> {
        self.slots.iter().map(|(server, (place, slot))| (*server, *place, slot))
    }

    pub fn forget(&mut self, server: u32) {
        self.slots.remove(&server);
    }

    /// Takes note of everybody's slot, in order, and says which of those known before moved to a later time. Those that
    /// start now are among them.
    pub fn note(
        &mut self,
        slots: Vec<(u32, Option<Slot>)>,
        now: i64,
        id: impl Fn(u32) -> Option<String>,
    ) -> Vec<Moved> {
        let mut moved = Vec::new();
        let (mut overtaken, mut rearranged) = (false, false);
        let mut known = BTreeMap::new();
        // How far in the old order everybody seen so far was.
        let mut furthest = 0;
        for (place, (server, slot)) in slots.into_iter().enumerate() {
            let before = self.slots.remove(&server);
            if before.is_none() && slot.is_none() {
                continue;
            }
            // Somebody who is now ahead was behind this one before, or was not planned.
            overtaken |= before.as_ref().is_none_or(|(place, _)| *place < furthest);
            furthest = before.as_ref().map_or(furthest, |(place, _)| furthest.max(*place));
            if let Some((_, before)) = before {
                // Who starts now and could have a little earlier was late to be looked at.
                if slot.as_ref().is_none_or(|slot| slot.start > before.start.max(now)) {
                    let why = if self.extended {
                        Cause::Extended
                    } else if self.shrank {
                        Cause::LessCapacity
                    } else if self.ruled {
                        Cause::Rules
                    } else if overtaken {
                        Cause::Overtaken
                    } else if rearranged {
                        Cause::Rearranged
                    } else if before.start < now {
                        Cause::Late
                    } else {
                        Cause::Unexplained
                    };
                    let to = slot.as_ref().map(|slot| slot.start);
                    moved.extend(id(server).map(|id| Moved { id, from: before.start, to, why }));
                }
                rearranged |= slot.as_ref() != Some(&before);
            }
            if let Some(slot) = slot.filter(|slot| slot.start > now) {
                known.insert(server, (place, slot));
            }
        }
        self.slots = known;
        (self.shrank, self.extended, self.ruled) = (false, false, false);
        moved
    }
}
