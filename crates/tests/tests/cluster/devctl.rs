//! The real `devctl` against a real API server, with the rights of a user. Tests of output write statuses themselves;
//! tests of changes run the operator.

mod backends;
mod commands;
mod disks;
mod errors;
mod fake_queue_api;
mod fixture;
mod output;
mod queue;
mod terminal;
mod watch;
