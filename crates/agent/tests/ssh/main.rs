//! `odc-agent serve` as people use it: with OpenSSH's own client, in a PID namespace with `init` as process 1.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a helper that fails is a test that fails")]
#![expect(clippy::print_stderr, reason = "a failed test shows what its server said")]

mod certificates;
mod clients;
mod commands;
mod editor;
mod files;
mod forwarding;
mod login;
mod python;
mod server;
mod sshfs;
mod strangers;
mod survival;
mod terminals;
