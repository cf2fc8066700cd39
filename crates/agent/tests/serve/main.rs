//! `odc-agent serve` beyond SSH: the control protocol, warnings, activity signals and Jupyter, with the real
//! executable, the OpenSSH client, and certificates like the operator's.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "test helpers panic on failure")]
#![expect(clippy::print_stderr, reason = "a failed test prints the log of its server")]

mod activity;
mod control;
mod jupyter;
mod oom;
mod pre_stop;
#[path = "../ssh/python.rs"]
mod python;
#[path = "../ssh/server.rs"]
#[expect(dead_code, reason = "shared with the tests of SSH")]
mod server;
mod warnings;
