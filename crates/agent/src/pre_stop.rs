//! The preStop script. It runs once per stop, started by `serve` when the operator prepares the stop or by `init` when
//! the container is stopped, whichever is earlier.

pub mod claim;
pub mod runner;
