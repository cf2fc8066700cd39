//! The `known_hosts` file of devctl. The host key comes from the status of the server, read over TLS, so that OpenSSH never
//! has to trust a key on first use.

use std::io;
use std::path::Path;

use crate::fs;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("invalid host key of {host}: {key:?}")]
    Key { host: String, key: String },
    #[error("could not update {path}; check its permissions")]
    File {
        path: String,
        #[source]
        source: io::Error,
    },
}

/// Makes this the only key of a host. Safe with concurrent calls.
pub fn pin(path: &Path, host: &str, key: &str) -> Result<(), Error> {
    // Drop the comment; reject embedded newlines, which would add a second entry.
    let mut words = key.split(' ');
    let (Some(algorithm), Some(blob), false) = (words.next(), words.next(), key.contains(['\n', '\r', '\0'])) else {
        return Err(Error::Key { host: host.to_owned(), key: key.to_owned() });
    };
    update(path, |text| with_key(text, host, Some(&format!("{algorithm} {blob}"))))
}

/// Removes the keys of hosts.
pub fn remove(path: &Path, hosts: &[String]) -> Result<(), Error> {
    hosts.iter().try_for_each(|host| update(path, |text| with_key(text, host, None)))
}

/// Returns the text with exactly this key for the host; `None` if it is unchanged.
fn with_key(text: &str, host: &str, key: Option<&str>) -> Option<String> {
    let is_host = |line: &&str| line.split(' ').next() == Some(host);
    let wanted = key.map(|key| format!("{host} {key}"));
    let current: Vec<&str> = text.lines().filter(is_host).collect();
    if current == wanted.iter().map(String::as_str).collect::<Vec<_>>() {
        return None;
    }
    let others = text.lines().filter(|line| !is_host(line)).map(str::to_owned);
    Some(others.chain(wanted).map(|line| line + "\n").collect())
}

fn update(path: &Path, edit: impl Fn(&str) -> Option<String>) -> Result<(), Error> {
    let failed = |source| Error::File { path: path.display().to_string(), source };
    let read = || -> io::Result<String> { Ok(String::from_utf8_lossy(&fs::read_or_empty(path)?).into_owned()) };
    // In the common case the key is there, and no lock is needed.
    if edit(&read().map_err(failed)?).is_none() {
        return Ok(());
    }
    let write_locked = || -> io::Result<()> {
        if let Some(directory) = path.parent() {
            fs::create_private_dir(directory)?;
        }
        let lock = std::fs::File::create(path.with_extension("lock"))?;
        lock.lock()?;
        // Another process may have updated the file.
        edit(&read()?).map_or(Ok(()), |text| fs::write_atomic(path, text.as_bytes()))
    };
    write_locked().map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "ssh-ed25519 AAAA";

    #[test]
    fn pin_replaces_all_keys_of_one_host() {
        let text = "a.odc ssh-ed25519 OLD\nb.odc ssh-ed25519 B\na.odc ssh-rsa X\n";
        let changed = with_key(text, "a.odc", Some(KEY)).unwrap();
        assert_eq!(changed, "b.odc ssh-ed25519 B\na.odc ssh-ed25519 AAAA\n");
        assert_eq!(with_key(&changed, "a.odc", Some(KEY)), None);
        assert_eq!(with_key(&changed, "a.odc", None).unwrap(), "b.odc ssh-ed25519 B\n");
        assert_eq!(with_key(&changed, "c.odc", None), None);
        assert_eq!(with_key("", "a.odc", Some(KEY)).unwrap(), "a.odc ssh-ed25519 AAAA\n");
    }

    #[test]
    fn key_with_newline_is_rejected() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("known_hosts");
        let error = pin(&path, "a.odc", "ssh-ed25519 AAAA\n* ssh-ed25519 EVIL").unwrap_err();
        assert!(matches!(error, Error::Key { .. }));
        assert!(!path.exists());
        pin(&path, "a.odc", "ssh-ed25519 AAAA a comment").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "a.odc ssh-ed25519 AAAA\n");
    }

    #[test]
    fn remove_deletes_all_nodes_of_a_server() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("known_hosts");
        for host in ["a.odc", "1.a.odc", "b.odc"] {
            pin(&path, host, KEY).unwrap();
        }
        remove(&path, &["a.odc".to_owned(), "1.a.odc".to_owned(), "2.a.odc".to_owned()]).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), format!("b.odc {KEY}\n"));
        // Without a key to remove, no file is created.
        remove(&directory.path().join("none"), &["a.odc".to_owned()]).unwrap();
        assert!(!directory.path().join("none").exists());
    }

    #[test]
    fn concurrent_pins_are_all_kept() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("odc/known_hosts");
        std::thread::scope(|scope| {
            for number in 0..16 {
                let path = &path;
                scope.spawn(move || pin(path, &format!("s{number}.odc"), KEY).unwrap());
            }
        });
        let mut lines: Vec<String> = std::fs::read_to_string(&path).unwrap().lines().map(str::to_owned).collect();
        lines.sort();
        let mut expected: Vec<String> = (0..16).map(|number| format!("s{number}.odc {KEY}")).collect();
        expected.sort();
        assert_eq!(lines, expected);
    }

    #[test]
    fn write_error_names_the_path() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("file"), "").unwrap();
        let error = pin(&directory.path().join("file/known_hosts"), "a.odc", KEY).unwrap_err();
        assert!(error.to_string().contains("file/known_hosts"), "{error}");
    }
}
