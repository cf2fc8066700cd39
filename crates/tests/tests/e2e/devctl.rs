//! The real devctl executable with the rights of a user, against a real cluster.

mod connect;
mod disks;
mod errors;
mod keys;
mod lifecycle;
mod queue;
mod submit;
mod terminal;

use odc_tests::devctl_user as user;
