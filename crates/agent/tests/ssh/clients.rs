//! The clients that programs have: Python's paramiko and asyncssh, in the versions we chose; and what `WinSCP` says.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::forwarding::mirror;
use crate::python;
use crate::server::{Plan, Server};

#[test]
fn paramiko_runs_commands_copies_files_forwards_ports_and_has_a_terminal() {
    runs("with_paramiko.py", &Server::start());
}

#[test]
fn asyncssh_runs_commands_copies_files_forwards_ports_and_has_a_terminal() {
    runs("with_asyncssh.py", &Server::start());
}

#[test]
fn what_winscp_asks_for_is_answered_as_it_needs_it() {
    let small = "mkdir $R/home/full; mount -t tmpfs -o size=1m odc $R/home/full";
    runs("as_winscp.py", &Plan::new().before(small).start());
}

fn runs(script: &str, server: &Server) {
    let python = python::environment("ssh-clients", &beside().join("requirements.txt"));
    let script = beside().join(script);
    let output = Command::new(python)
        .arg(script)
        .arg(server.address.port().to_string())
        .arg(server.place.path())
        .arg(mirror().to_string())
        // Names must not depend on the language of whoever runs this.
        .env("PYTHONUTF8", "1")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn beside() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ssh/clients")
}
