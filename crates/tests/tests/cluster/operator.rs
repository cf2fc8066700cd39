//! The operator on a real API server, with simulated nodes: what it does, and what that costs.

mod counts;
mod crash;
mod faults;
mod fit;
mod life;
mod queue;
mod queue_api;
mod races;
mod rig;
mod rights;
pub mod stage;
mod users;
