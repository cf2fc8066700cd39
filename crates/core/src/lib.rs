//! The decisions of ODC, without side effects: no client, no clock, no randomness, no environment.
//!
//! Everything here is a function from an observed state and the current time to a value that says what to write and why.
//! The operator observes, calls these functions, and writes.

pub mod access;
pub mod activity;
pub mod admission;
pub mod cluster;
pub mod devserver;
pub mod disk;
pub mod flavor;
pub mod manifest;
pub mod plan;
pub mod resources;
pub mod scheduler;
pub mod sim;
pub mod team;
pub mod time;
pub mod usage;
pub mod user;
pub mod volume_in_use;
