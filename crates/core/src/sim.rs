//! The scheduler in virtual time: runs a request trace, or replays a recorded trace.
//!
//! A trace is a list of lines, each with a time in seconds. The simulation acts as the cluster: it starts what is assigned,
//! ends what has run its time, and checks independently of the scheduler that capacity is never overcommitted.

mod apply_line;
mod apply_plan;
mod cluster;
mod fairness;
mod job;
mod report;
mod rng;
mod run;
#[cfg(test)]
mod tests;
mod totals;
mod trace;
pub mod trace_import;

pub use job::{EstimatedStart, Overtaker, Request, RequestOutcome, Run};
pub use report::{EtaCoverage, Report, Totals, Waits};
pub use rng::Rng;
pub use run::{Options, simulate};
pub use trace::{Content, Error, Line, read, to_line};
