//! The scheduler in virtual time: what it would have done with a trace of requests, or what it did with a recorded one.
//!
//! A trace is a list of lines, each with a time in seconds. The simulation plays the part of the cluster: it starts what is
//! granted, ends what is over, and counts on its own whether anything was ever given twice.

mod carry_out;
mod cluster;
pub mod convert;
mod dice;
mod fairness;
mod happen;
mod job;
mod report;
mod run;
#[cfg(test)]
mod tests;
mod totals;
mod trace;

pub use dice::Dice;
pub use job::{Outcome, Overtaken, Promise, Request, Run};
pub use report::{EtaCoverage, Report, Totals, Waits};
pub use run::{Options, simulate};
pub use trace::{Error, Line, What, read, recorded};
