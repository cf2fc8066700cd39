//! `odc-agent serve` looking after a server: what it tells the operator and the people in it, with the real executable,
//! the stock OpenSSH client, and certificates as the operator has them.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a helper that fails is a test that fails")]
#![expect(clippy::print_stderr, reason = "a failed test shows what its server said")]

mod activity;
mod control;
mod jupyter;
mod memory;
#[path = "../ssh/python.rs"]
mod python;
#[path = "../ssh/server.rs"]
#[expect(dead_code, reason = "the tests of SSH itself use more of it")]
mod server;
mod stop;
mod warning;
