//! Lets the nodes of a gang log in to each other. They share a key to log in with and have the same host key, so `ssh`
//! needs to be told only where they are. Without a gang there is nothing to do.

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

use crate::replace::replace;

const KEY: &str = "gang_key";
const KNOWN_HOSTS: &str = "gang_known_hosts";
const CONFIG: &str = "gang_ssh_config";

/// Where OpenSSH's clients look by themselves, if the image has them and the file system is ours to write.
pub const EVERYBODYS: &str = "/etc/ssh/ssh_config.d";

/// What the nodes of a gang log in with, as a line of `authorized_keys`; absent if this is no gang.
pub fn public_key(keys: &Path) -> Option<String> {
    let line = fs::read_to_string(keys.join("gang_key.pub")).ok()?;
    Some(line.trim().to_owned()).filter(|line| !line.is_empty())
}

/// Prepares what `ssh` reads, with a word about it in `everybodys`. `hosts` are the names of all nodes, with commas.
pub fn prepare(keys: &Path, state: &Path, everybodys: &Path, hosts: &str) -> io::Result<()> {
    if public_key(keys).is_none() {
        return Ok(());
    }
    let key = fs::read(keys.join(KEY))?;
    let host_key = fs::read_to_string(keys.join("host_key.pub"))?;
    let write = |name: &str, mode, text: &[u8]| replace(&state.join(name), mode, |file| file.write_all(text));
    // A copy of our own, because `ssh` refuses a key that others could read.
    write(KEY, 0o600, &key)?;
    write(KNOWN_HOSTS, 0o644, known_hosts(hosts, host_key.trim()).as_bytes())?;
    write(CONFIG, 0o644, config(hosts, state).as_bytes())?;
    let include = format!("Include {}\n", state.join(CONFIG).display());
    // Where that cannot be, `ssh -F` still can.
    let _ = replace(&everybodys.join("odc-gang.conf"), 0o644, |file| file.write_all(include.as_bytes()));
    Ok(())
}

fn names(hosts: &str) -> impl Iterator<Item = (&str, &str)> {
    hosts.split(',').filter(|host| !host.is_empty()).map(|host| (host.split('.').next().unwrap_or(host), host))
}

fn known_hosts(hosts: &str, host_key: &str) -> String {
    names(hosts).map(|(_, host)| format!("[{host}]:2222 {host_key}\n")).collect()
}

fn config(hosts: &str, state: &Path) -> String {
    let state = state.display();
    let one = |(short, host): (&str, &str)| {
        format!(
            "Host {short} {host}\n  HostName {host}\n  Port 2222\n  IdentityFile {state}/{KEY}\n  \
             UserKnownHostsFile {state}/{KNOWN_HOSTS}\n  StrictHostKeyChecking yes\n"
        )
    };
    names(hosts).map(one).collect()
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
    fn a_single_server_gets_nothing() {
        let (keys, state) = (keys(&[("host_key.pub", "h")]), tempfile::tempdir().unwrap());
        prepare(keys.path(), state.path(), state.path(), "").unwrap();
        assert_eq!((public_key(keys.path()), fs::read_dir(state.path()).unwrap().count()), (None, 0));
    }

    #[test]
    fn every_node_is_known_by_its_long_and_its_short_name() {
        let keys = keys(&[
            ("gang_key", "private"),
            ("gang_key.pub", "ssh-ed25519 shared\n"),
            ("host_key.pub", "ssh-ed25519 host"),
        ]);
        let state = tempfile::tempdir().unwrap();
        prepare(keys.path(), state.path(), state.path(), HOSTS).unwrap();
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
