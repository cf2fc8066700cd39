//! SSH between the nodes of a gang. They share a user key and a host key, so `ssh` only needs their addresses. A server
//! that is not part of a gang needs nothing.

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

use crate::atomic_write::write_atomic;

const KEY: &str = "gang_key";
const KNOWN_HOSTS: &str = "gang_known_hosts";
const CONFIG: &str = "gang_ssh_config";

/// Included by the system-wide configuration of OpenSSH clients. May be missing or not writable.
pub const SYSTEM_SSH_CONFIG_DIR: &str = "/etc/ssh/ssh_config.d";

/// Returns the shared user key as a line of `authorized_keys`, if the server is part of a gang.
pub fn public_key(keys: &Path) -> Option<String> {
    let line = fs::read_to_string(keys.join("gang_key.pub")).ok()?;
    Some(line.trim().to_owned()).filter(|line| !line.is_empty())
}

/// Writes the client configuration to the state directory and includes it from `system_config_dir`. `hosts` are the
/// names of all nodes, separated by commas.
pub fn configure(keys: &Path, state_dir: &Path, system_config_dir: &Path, hosts: &str) -> io::Result<()> {
    if public_key(keys).is_none() {
        return Ok(());
    }
    let key = fs::read(keys.join(KEY))?;
    let host_key = fs::read_to_string(keys.join("host_key.pub"))?;
    let write = |name: &str, mode, text: &[u8]| write_atomic(&state_dir.join(name), mode, |file| file.write_all(text));
    // A copy, because `ssh` rejects a private key that other users can read.
    write(KEY, 0o600, &key)?;
    write(KNOWN_HOSTS, 0o644, known_hosts(hosts, host_key.trim()).as_bytes())?;
    write(CONFIG, 0o644, config(hosts, state_dir).as_bytes())?;
    let include = format!("Include {}\n", state_dir.join(CONFIG).display());
    // If this fails, `ssh -F` can still be used.
    let _ = write_atomic(&system_config_dir.join("odc-gang.conf"), 0o644, |file| file.write_all(include.as_bytes()));
    Ok(())
}

/// Returns the short and the full name of each host.
fn host_names(hosts: &str) -> impl Iterator<Item = (&str, &str)> {
    hosts.split(',').filter(|host| !host.is_empty()).map(|host| (host.split('.').next().unwrap_or(host), host))
}

fn known_hosts(hosts: &str, host_key: &str) -> String {
    host_names(hosts).map(|(_, host)| format!("[{host}]:2222 {host_key}\n")).collect()
}

fn config(hosts: &str, state_dir: &Path) -> String {
    let state_dir = state_dir.display();
    let host_block = |(short, host): (&str, &str)| {
        format!(
            "Host {short} {host}\n  HostName {host}\n  Port 2222\n  IdentityFile {state_dir}/{KEY}\n  \
             UserKnownHostsFile {state_dir}/{KNOWN_HOSTS}\n  StrictHostKeyChecking yes\n"
        )
    };
    host_names(hosts).map(host_block).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    const HOSTS: &str = "box-0.box.dev-ada.svc,box-1.box.dev-ada.svc";

    fn keys(files: &[(&str, &str)]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in files {
            fs::write(directory.path().join(name), text).unwrap();
        }
        directory
    }

    #[test]
    fn single_node_server_gets_no_configuration() {
        let (keys, state) = (keys(&[("host_key.pub", "h")]), tempfile::tempdir().unwrap());
        configure(keys.path(), state.path(), state.path(), "").unwrap();
        assert_eq!((public_key(keys.path()), fs::read_dir(state.path()).unwrap().count()), (None, 0));
    }

    #[test]
    fn every_node_is_configured_by_full_and_short_name() {
        let keys = keys(&[
            ("gang_key", "private"),
            ("gang_key.pub", "ssh-ed25519 shared\n"),
            ("host_key.pub", "ssh-ed25519 host"),
        ]);
        let state = tempfile::tempdir().unwrap();
        configure(keys.path(), state.path(), state.path(), HOSTS).unwrap();
        assert_eq!(public_key(keys.path()).as_deref(), Some("ssh-ed25519 shared"));
        let read = |name: &str| fs::read_to_string(state.path().join(name)).unwrap();
        assert_eq!(read("odc-gang.conf"), format!("Include {}/{CONFIG}\n", state.path().display()));
        assert_eq!(read(KNOWN_HOSTS).lines().last(), Some("[box-1.box.dev-ada.svc]:2222 ssh-ed25519 host"));
        assert!(
            read(CONFIG).contains("Host box-1 box-1.box.dev-ada.svc\n  HostName box-1.box.dev-ada.svc\n  Port 2222\n")
        );
        assert_eq!(fs::metadata(state.path().join(KEY)).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
