//! What ODC decides, without doing anything: no client, no clock, no randomness, no environment.
//!
//! Everything here is a function from what was seen, and the time it is now, to a value that says what to write and
//! why. The operator reads, asks here, and writes.

pub mod activity;
pub mod amounts;
pub mod devserver;
pub mod flavor;
pub mod grants;
pub mod holder;
pub mod object;
pub mod plan;
pub mod scheduler;
pub mod seen;
pub mod sim;
pub mod team;
pub mod user;
