//! The scheduler from outside: scripts anyone can read, properties of random worlds, small worlds in full, and a second
//! scheduler that is too simple to be wrong.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod calm;
mod change;
mod check;
mod exhaustive;
mod found;
mod gangs;
mod harness;
mod live;
mod properties;
mod reference;
mod rights;
mod script;
mod starvation;
mod steps;
mod trace;
