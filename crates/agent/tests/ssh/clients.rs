//! Other clients: Python's paramiko and asyncssh, and the requests of `WinSCP`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::forwarding::start_echo_server;
use crate::python;
use crate::server::{Server, ServerBuilder};

#[test]
fn paramiko_is_supported() {
    run_client("paramiko_client.py", &Server::start());
}

#[test]
fn asyncssh_is_supported() {
    run_client("asyncssh_client.py", &Server::start());
}

#[test]
fn winscp_requests_are_supported() {
    let small = "mkdir $R/home/full; mount -t tmpfs -o size=1m odc $R/home/full";
    run_client("winscp.py", &ServerBuilder::new().before(small).start());
}

fn run_client(script: &str, server: &Server) {
    let python = python::environment("ssh-clients", &clients_dir().join("requirements.txt"));
    let script = clients_dir().join(script);
    let output = Command::new(python)
        .arg(script)
        .arg(server.address.port().to_string())
        .arg(server.dir.path())
        .arg(start_echo_server().to_string())
        // File names must not depend on the locale.
        .env("PYTHONUTF8", "1")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn clients_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ssh/clients")
}
