//! The clients that programs have: Python's paramiko and asyncssh, in the versions we chose.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{FlockOperation, flock};

use crate::forwarding::mirror;
use crate::server::Server;

const REQUIREMENTS: &str = include_str!("clients/requirements.txt");

#[test]
fn paramiko_runs_commands_copies_files_forwards_ports_and_has_a_terminal() {
    runs("with_paramiko.py");
}

#[test]
fn asyncssh_runs_commands_copies_files_forwards_ports_and_has_a_terminal() {
    runs("with_asyncssh.py");
}

fn runs(script: &str) {
    let python = python();
    let server = Server::start();
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

/// Python with the clients, made by whoever comes first and kept for all.
fn python() -> PathBuf {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.unwrap_or_else(|| PathBuf::from(std::env::var_os("HOME").expect("a home")).join(".cache"));
    let tools = cache.join("odc/tools");
    fs::create_dir_all(&tools).unwrap();
    let lock = File::create(tools.join("ssh-clients.lock")).unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    let environment = tools.join("ssh-clients");
    let (python, made) = (environment.join("bin/python"), environment.join("requirements.txt"));
    // Its Python goes away with the one it was made from.
    let whole = fs::read_to_string(&made).is_ok_and(|made| made == REQUIREMENTS) && python.exists();
    if !whole {
        let _ = fs::remove_dir_all(&environment);
        must(Command::new("python3").args(["-m", "venv"]).arg(&environment));
        let quiet = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--requirement"];
        must(Command::new(&python).args(quiet).arg(beside().join("requirements.txt")));
        fs::write(made, REQUIREMENTS).unwrap();
    }
    python
}

fn must(command: &mut Command) {
    let output = command.stdin(Stdio::null()).output().expect("Python 3, as in Debian's package python3-venv");
    let said = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    assert!(output.status.success(), "{command:?}, which needs Debian's package python3-venv and PyPI:\n{said}");
}
