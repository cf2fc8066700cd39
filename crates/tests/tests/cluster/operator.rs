//! The operator on a real API server with simulated nodes.

mod admission_ledger;
mod claims;
mod crash;
mod disk_ledger;
mod disks;
mod disruption;
mod fault_harness;
mod faults;
pub mod fixture;
mod leader_election;
mod lifecycle;
mod placement;
mod queue;
pub mod queue_api;
mod races;
mod rbac;
mod rejected_writes;
mod startup;
mod users;
mod watch_history;
mod write_count;
mod write_rate;
