//! Planned starts are promises. This remembers them from plan to plan, and why one was moved.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default)]
pub(super) struct Promised {
    /// Planned starts in the order of the queue, by server.
    starts: BTreeMap<u32, i64>,
    ahead: BTreeMap<u32, usize>,
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

    pub fn forget(&mut self, server: u32) {
        self.starts.remove(&server);
        self.ahead.remove(&server);
    }

    /// Takes note of the planned starts, in order, and says which of those known before moved to a later time. Those that
    /// were granted now may start earlier than planned, by which they too can be in somebody's way.
    pub fn note(
        &mut self,
        planned: &[(u32, Option<i64>)],
        granted: &[u32],
        now: i64,
        id: impl Fn(u32) -> Option<String>,
    ) -> Vec<Moved> {
        let mut moved = Vec::new();
        let early = granted.iter().filter(|server| self.starts.get(server).is_some_and(|start| *start > now));
        let first_early = early.filter_map(|server| self.ahead.get(server)).min().copied();
        let (mut overtaken, mut rearranged) = (false, false);
        let (mut starts, mut ahead) = (BTreeMap::new(), BTreeMap::new());
        // How far in the old order everybody seen so far was.
        let mut furthest = 0;
        for (position, (server, start)) in planned.iter().enumerate() {
            let (before, place) = (self.starts.get(server), self.ahead.get(server));
            // Whoever is behind this one was ahead of it before, or was not there.
            overtaken |= place.is_none_or(|place| *place < furthest);
            furthest = furthest.max(place.copied().unwrap_or(furthest));
            rearranged |= first_early.zip(place).is_some_and(|(early, place)| early < *place);
            if let Some(before) = before {
                if start.is_none_or(|start| start > *before) {
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
                    } else {
                        Cause::Unexplained
                    };
                    moved.extend(id(*server).map(|id| Moved { id, from: *before, to: *start, why }));
                    rearranged = true;
                }
                rearranged |= start.is_some_and(|start| start < *before);
            }
            if let Some(start) = start {
                starts.insert(*server, *start);
            }
            ahead.insert(*server, position);
        }
        (self.starts, self.ahead) = (starts, ahead);
        (self.shrank, self.extended, self.ruled) = (false, false, false);
        moved
    }
}
