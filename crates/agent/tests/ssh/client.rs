//! OpenSSH clients for tests and benchmarks: with one key, one host key, and without the configuration of the machine.
//! And the directory that a server and its clients share.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// Creates the files of a server and its clients in `dir`: a host key, `id` as an authorized key, a home, and a state
/// directory.
pub fn create_server_files(dir: &Path) -> io::Result<()> {
    for directory in ["keys", "home", "state"] {
        fs::create_dir(dir.join(directory))?;
    }
    keygen(dir, "keys/host_key")?;
    keygen(dir, "id")?;
    let authorized_keys = dir.join("keys/authorized_keys");
    fs::copy(dir.join("id.pub"), &authorized_keys)?;
    fs::set_permissions(authorized_keys, fs::Permissions::from_mode(0o600))?;
    let host_key = fs::read_to_string(dir.join("keys/host_key.pub"))?;
    fs::write(dir.join("known_hosts"), format!("server {host_key}"))
}

pub fn keygen(dir: &Path, name: &str) -> io::Result<()> {
    let mut command = Command::new("ssh-keygen");
    let status = command.current_dir(dir).args(["-q", "-t", "ed25519", "-N", "", "-f", name]).status()?;
    if status.success() { Ok(()) } else { Err(io::Error::other(format!("ssh-keygen failed: {status}"))) }
}

/// `dir` contains the key `identity`, and `known_hosts` with the host key of `server`.
pub fn client(program: &str, port: u16, dir: &Path, identity: &str) -> Command {
    let mut command = Command::new(program);
    command.args(["-F", "none"]);
    for option in [
        format!("Port={port}"),
        format!("UserKnownHostsFile={}", dir.join("known_hosts").display()),
        format!("IdentityFile={}", dir.join(identity).display()),
        "GlobalKnownHostsFile=/dev/null".to_owned(),
        "HostKeyAlias=server".to_owned(),
        "StrictHostKeyChecking=yes".to_owned(),
        "IdentitiesOnly=yes".to_owned(),
        "IdentityAgent=none".to_owned(),
        "BatchMode=yes".to_owned(),
        "LogLevel=ERROR".to_owned(),
    ] {
        command.arg("-o").arg(option);
    }
    command.env_remove("SSH_AUTH_SOCK").stdin(Stdio::null());
    command
}
