//! OpenSSH's clients as tests and measurements use them: one key, one host key, and nothing of what the machine's own
//! configuration says.

use std::path::Path;
use std::process::{Command, Stdio};

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
