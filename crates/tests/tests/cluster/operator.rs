//! The operator on a real API server, with simulated nodes: what it does, and what that costs.

mod bounds;
mod counts;
mod crash;
mod disks;
mod early;
mod faults;
mod fit;
mod grants;
mod history;
mod leaders;
mod life;
mod luck;
mod queue;
mod queue_api;
mod races;
mod refused;
mod rig;
mod rights;
pub mod stage;
mod users;
