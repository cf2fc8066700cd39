//! `odc-agent serve` with the OpenSSH client, in a PID namespace with `init` as PID 1.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "test helpers panic on failure")]
#![expect(clippy::print_stderr, reason = "a failed test prints the log of its server")]

mod availability;
mod certificates;
mod clients;
mod commands;
mod forwarding;
mod login;
mod pre_auth;
mod pty;
mod python;
mod server;
mod sftp;
mod sshfs;
mod vscode;
