//! `odc-agent init` and `probe` as a container runtime and the kubelet use them: as PID 1 of a PID namespace.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "test helpers panic on failure")]
#![expect(clippy::print_stderr, reason = "a failed test prints the log of its server")]

mod entrypoint;
mod harness;
mod image;
mod script;
mod startup_files;
mod stop;

use std::process::Command;

use crate::harness::AGENT;

#[test]
fn init_refuses_to_run_as_another_process() {
    let output = Command::new(AGENT).arg("init").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("init must be PID 1"), "{error}");
}
