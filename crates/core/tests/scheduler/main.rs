//! The scheduler from outside: scripts anyone can read, properties of random worlds, small worlds in full, and a second
//! scheduler that is too simple to be wrong.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod change;
mod exhaustive;
mod harness;
mod properties;
mod reference;
mod script;
mod steps;
mod trace;
