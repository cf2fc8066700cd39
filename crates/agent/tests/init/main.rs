//! `odc-agent init` and `probe` as a container's runtime and the kubelet use them: process 1 of a PID namespace.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a helper that fails is a test that fails")]
#![expect(clippy::print_stderr, reason = "a failed test shows what its server said")]

mod entrypoint;
mod image;
mod script;
mod server;
mod stop;

use std::process::Command;

use crate::server::AGENT;

#[test]
fn it_refuses_to_be_any_other_process() {
    let output = Command::new(AGENT).arg("init").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("init must be process 1"), "{said}");
}
