//! Tests of the scheduler's public interface: scripts, properties of random clusters, exhaustive search of small clusters,
//! and a simple reference implementation.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod change;
mod checked_step;
mod exhaustive;
mod gangs;
mod harness;
mod invariants;
mod precedence;
mod preemption;
mod properties;
mod random_walk;
mod reference;
mod regressions;
mod script;
mod simulator;
mod starvation;
