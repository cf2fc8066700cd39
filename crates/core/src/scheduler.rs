//! The scheduler: decides which pending servers start now, on which nodes, and when the others start.
//!
//! [`ClusterState`] is updated by [`Event`]s; [`ClusterState::plan`] runs one scheduling cycle over all pending servers and
//! all nodes. It is pure and deterministic: no clock, no randomness, no floating point. The same events give the same
//! plans on every machine, so a recorded trace can be replayed. Times are seconds since the epoch.
//!
//! One cycle:
//!
//! 1. Servers that are still running after their expected end get a later one.
//! 2. Pending servers are sorted by confirmed bookings, priority (which rises with age), fair share of the team, fair
//!    share of the user, and age.
//! 3. In that order each server is assigned nodes now, or gets a reservation from the known ends of running servers.
//!    Servers further back are backfilled where that delays no reservation.
//! 4. A server that waits for nodes may preempt preemptible servers that borrow quota or have a lower priority.
//! 5. Preemptible servers that only lack quota of their team borrow what other teams leave idle.
//! 6. Steps 2 to 5 are repeated until nothing changes. The result is a [`Plan`].
//!
//! [`crate::admission`] turns plans into changes of Kubernetes objects.

mod cycle;
mod eta;
mod event;
#[cfg(test)]
mod fixtures;
pub(crate) mod messages;
mod node_match;
mod order;
mod plan;
mod policy;
mod reservation_history;
mod state;
mod timeline;
mod usage;
mod what_if;

pub use cycle::quota::violation::QuotaViolation;
pub use eta::forecast::{Eta, Forecast};
pub use eta::history::{EtaCalibration, EtaEstimate, FlavorHistory, RuntimeHistogram};
pub use event::{
    AccountSpec, DecayedUsage, Event, Limits, Node, NodeState, Request, ReservationSpec, RunInfo, Server, ServerState,
    TraceRecord,
};
pub use messages::{Explainer, Explanation};
pub use order::Precedence;
pub use plan::{Assignment, PendingReason, PendingServer, Placement, Plan, Preemption, PreemptionReason};
pub use policy::{Backfill, Policy};
pub use reservation_history::{DelayCause, DelayedStart};
pub use state::ClusterState;
pub use what_if::StartChange;

pub(crate) use cycle::quota::violation::{exceeded_flavor_limit, find_exceeded_limit};
pub(crate) use node_match::{is_selected, matches, tolerates};
pub(crate) use state::accounts::ResourceUsage;
