//! OpenSSH's clients as tests and measurements use them: one key, one host key, and nothing of what the machine's own
//! configuration says. And the place that a server and its clients share.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// Makes in `place` what a server is started with and a client comes with: a host key, `id` as the key of the one who may
/// log in, a home, and a directory for the state.
pub fn furnish(place: &Path) -> io::Result<()> {
    for directory in ["keys", "home", "state"] {
        fs::create_dir(place.join(directory))?;
    }
    keygen(place, "keys/host_key")?;
    keygen(place, "id")?;
    let allowed = place.join("keys/authorized_keys");
    fs::copy(place.join("id.pub"), &allowed)?;
    fs::set_permissions(allowed, fs::Permissions::from_mode(0o600))?;
    let host_key = fs::read_to_string(place.join("keys/host_key.pub"))?;
    fs::write(place.join("known_hosts"), format!("server {host_key}"))
}

pub fn keygen(place: &Path, name: &str) -> io::Result<()> {
    let mut command = Command::new("ssh-keygen");
    let done = command.current_dir(place).args(["-q", "-t", "ed25519", "-N", "", "-f", name]).status()?;
    if done.success() { Ok(()) } else { Err(io::Error::other(format!("ssh-keygen ended with {done}"))) }
}

/// `place` has the files `identity` and `known_hosts`, which knows the host as `server`.
pub fn client(program: &str, port: u16, place: &Path, identity: &str) -> Command {
    let mut command = Command::new(program);
    command.args(["-F", "none"]);
    for option in [
        format!("Port={port}"),
        format!("UserKnownHostsFile={}", place.join("known_hosts").display()),
        format!("IdentityFile={}", place.join(identity).display()),
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
