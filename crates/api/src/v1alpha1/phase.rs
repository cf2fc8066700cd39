//! The phases of a `DevServer` and their transitions.
//!
//! ```text
//! Pending ─► Building ─► Queued ─► Starting ─► Running ─┬─► Hibernating ─► Hibernated ─► Queued …
//!    │           │          │         │                 ├─► Stopping ─► Expired | Cancelled
//!    └───────────┴──────────┴─────────┴─────────────────┴─► Failed
//! ```
//!
//! Not shown: without a build, Pending is followed by Queued. A server without pods ends without Stopping. A server
//! that lost its node, pod or admission, or is woken while hibernating, returns to Queued or Starting. Hibernation
//! before the start skips Hibernating. A starting server can be stopped or hibernated, and a hibernating or hibernated
//! one can be stopped. An error while stopping leads to Failed.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::open_enum::string_enum;

string_enum! {
    /// The phase of a server, for users. Programs should use the conditions.
    #[derive(Serialize, Deserialize, JsonSchema)]
    pub enum Phase {
        /// Not validated yet, or invalid; see the condition Accepted.
        Pending,
        /// Reserved; not implemented yet.
        Building,
        /// Waiting for devices, quota or the start of the booking; see `status.admission`.
        Queued,
        /// Admitted. Pods are being created, images pulled, volumes attached.
        Starting,
        /// Ready; the lifetime is running.
        Running,
        /// Being hibernated: preStop runs, then the pods are deleted and the devices released.
        Hibernating,
        /// Hibernated. The home is kept, no devices are held, and the lifetime is paused.
        Hibernated,
        /// Being stopped for good, as in Hibernating.
        Stopping,
        /// Final: the lifetime ended.
        Expired,
        /// Final: ended by spec.desired or the idle policy, or queued too long for the first start.
        Cancelled,
        /// Final: failed; see `status.lastFailure`.
        Failed,
    }
}

impl Phase {
    /// Reports whether the phase is final. The rules of the CRD (`devserver::rules`) then reject all
    /// changes of spec and phase.
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Expired | Self::Cancelled | Self::Failed)
    }

    /// Reports whether this phase may be observed after `previous`.
    ///
    /// Transient phases may be skipped, because short ones are not written.
    pub fn may_follow(self, previous: Self) -> bool {
        let mut reached = [previous; Self::ALL.len()];
        let mut count = 1;
        let mut next = 0;
        while let Some(from) = reached[..count].get(next).copied() {
            next += 1;
            for to in from.successors() {
                if *to == self {
                    return true;
                }
                if to.is_transient() && !reached[..count].contains(to) {
                    reached[count] = *to;
                    count += 1;
                }
            }
        }
        false
    }

    /// Returns the phases that can follow directly.
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

    /// Reports whether the phase is usually left within seconds.
    const fn is_transient(self) -> bool {
        matches!(self, Self::Building | Self::Queued | Self::Starting | Self::Hibernating | Self::Stopping)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminal_phases_have_no_successor() {
        for from in Phase::ALL {
            let followed = Phase::ALL.iter().any(|to| to.may_follow(*from));
            assert_eq!(followed, !from.is_terminal(), "{from}");
            assert_eq!(from.successors().is_empty(), from.is_terminal(), "{from}");
        }
    }

    #[test]
    fn all_phases_are_reachable_and_can_be_cancelled() {
        for phase in Phase::ALL {
            assert!(
                *phase == Phase::Pending || Phase::ALL.iter().any(|from| from.successors().contains(phase)),
                "{phase}"
            );
            assert!(phase.is_terminal() || Phase::Cancelled.may_follow(*phase), "{phase}");
        }
    }

    #[test]
    fn transient_phases_may_be_skipped() {
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
    fn pending_and_building_are_not_entered_again() {
        for from in Phase::ALL {
            assert!(!Phase::Pending.may_follow(*from), "{from} to Pending");
            assert_eq!(Phase::Building.may_follow(*from), *from == Phase::Pending, "{from} to Building");
        }
    }

    #[test]
    fn expired_follows_only_stopping() {
        for from in Phase::ALL {
            assert_eq!(from.successors().contains(&Phase::Expired), *from == Phase::Stopping, "{from}");
        }
    }
}
