//! The states of a `DevServer` and which may follow which.
//!
//! ```text
//! Pending ─► Building ─► Queued ─► Starting ─► Running ─┬─► Hibernating ─► Hibernated ─► Queued …
//!    │           │          │         │                 ├─► Stopping ─► Expired | Cancelled
//!    └───────────┴──────────┴─────────┴─────────────────┴─► Failed
//! ```
//!
//! Not drawn: an image that needs no build goes from Pending to Queued; what has no pod ends without Stopping; a server
//! that lost its node, its pod or its place, or is woken while it falls asleep, goes back to Queued or Starting; whoever
//! asks for hibernation before the start gets it without Hibernating; a server can be stopped or put to sleep while it
//! starts, and be stopped while it sleeps or falls asleep; what goes wrong while it stops is a failure.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::word::words;

words! {
    /// Where a server is in its life. It is for people and for printing; decisions use conditions.
    #[derive(Serialize, Deserialize, JsonSchema)]
    pub enum Phase {
        /// Seen, not yet checked or not yet acceptable; the condition Accepted says what is missing.
        Pending,
        /// Its image is being built. The place in the queue already counts.
        Building,
        /// Waits for devices, quota or its booked time; `status.admission` says for what, and until when.
        Queued,
        /// Has its devices. Its pods are being created, images pulled, disks attached.
        Starting,
        /// Ready to be used; its lifetime runs.
        Running,
        /// Being put to sleep in order: preStop, pods gone, devices given back, restore point.
        Hibernating,
        /// Asleep. Its disk is kept, it holds no devices, and its lifetime stands still.
        Hibernated,
        /// Being ended in order, as when hibernating.
        Stopping,
        /// Final: its lifetime was used up.
        Expired,
        /// Final: its owner or an administrator ended it, nobody used it, or it waited too long for its first start.
        Cancelled,
        /// Final: it could not go on; `status.lastFailure` says why and what to do.
        Failed,
    }
}

impl Phase {
    /// Nothing follows. The API server refuses any change of spec or phase from here on.
    pub const fn terminal(self) -> bool {
        matches!(self, Self::Expired | Self::Cancelled | Self::Failed)
    }

    /// Whether a server seen in `previous` may be seen in this phase next.
    ///
    /// Staying where one is is no step. Short phases are not written (a write costs more than it tells), so any number
    /// of passing ones may lie between.
    pub fn may_follow(self, previous: Self) -> bool {
        let mut reached = [previous; Self::ALL.len()];
        let mut known = 1;
        let mut next = 0;
        while let Some(from) = reached[..known].get(next).copied() {
            next += 1;
            for to in from.successors() {
                if *to == self {
                    return true;
                }
                if to.passing() && !reached[..known].contains(to) {
                    reached[known] = *to;
                    known += 1;
                }
            }
        }
        false
    }

    /// The phases that directly follow.
    pub const fn successors(self) -> &'static [Self] {
        use Phase::{
            Building, Cancelled, Expired, Failed, Hibernated, Hibernating, Pending, Queued, Running, Starting, Stopping,
        };
        match self {
            Pending => &[Building, Queued, Hibernated, Cancelled, Failed],
            Building => &[Queued, Hibernated, Cancelled, Failed],
            Queued => &[Starting, Hibernated, Cancelled, Failed],
            Starting => &[Running, Queued, Hibernating, Stopping, Failed],
            Running => &[Starting, Queued, Hibernating, Stopping, Failed],
            Hibernating => &[Hibernated, Queued, Stopping],
            Hibernated => &[Queued, Stopping, Cancelled],
            Stopping => &[Expired, Cancelled, Failed],
            Expired | Cancelled | Failed => &[],
        }
    }

    /// Left by itself, often within a second.
    const fn passing(self) -> bool {
        matches!(self, Self::Building | Self::Queued | Self::Starting | Self::Hibernating | Self::Stopping)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminal_phases_absorb() {
        for from in Phase::ALL {
            let followed = Phase::ALL.iter().any(|to| to.may_follow(*from));
            assert_eq!(followed, !from.terminal(), "{from}");
            assert_eq!(from.successors().is_empty(), from.terminal(), "{from}");
        }
    }

    #[test]
    fn every_phase_is_reached_and_every_live_one_can_end() {
        for phase in Phase::ALL {
            assert!(
                *phase == Phase::Pending || Phase::ALL.iter().any(|from| from.successors().contains(phase)),
                "{phase}"
            );
            assert!(phase.terminal() || Phase::Cancelled.may_follow(*phase), "{phase}");
        }
    }

    #[test]
    fn passing_phases_may_be_skipped() {
        for (from, to) in [
            (Phase::Pending, Phase::Running),
            (Phase::Hibernated, Phase::Running),
            (Phase::Running, Phase::Hibernated),
            (Phase::Running, Phase::Expired),
            (Phase::Running, Phase::Running),
        ] {
            assert!(to.may_follow(from), "{from} to {to}");
        }
    }

    #[test]
    fn nothing_goes_back_to_the_beginning() {
        for from in Phase::ALL {
            assert!(!Phase::Pending.may_follow(*from), "{from} to Pending");
            assert_eq!(Phase::Building.may_follow(*from), *from == Phase::Pending, "{from} to Building");
        }
    }

    #[test]
    fn expiry_is_always_a_stop_in_order() {
        for from in Phase::ALL {
            assert_eq!(from.successors().contains(&Phase::Expired), *from == Phase::Stopping, "{from}");
        }
    }
}
