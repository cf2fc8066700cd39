//! The host keys of servers, in a file of our own. A server's status says which key it has, and whoever may read that
//! comes to know it over TLS: so OpenSSH never has to ask, and never takes another.

use std::io;
use std::path::Path;

use crate::replace;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the host key of {host} is not one line: {key:?}")]
    Key { host: String, key: String },
    #[error("the host keys of servers cannot be kept in {path}; make it writable for you")]
    File {
        path: String,
        #[source]
        source: io::Error,
    },
}

/// From now on the host has this key and no other. Others may do the same at the same moment.
pub fn pin(path: &Path, host: &str, key: &str) -> Result<(), Error> {
    // The comment is nobody's business, and a second line would be somebody else's key.
    let mut words = key.split(' ');
    let (Some(kind), Some(material), false) = (words.next(), words.next(), key.contains(['\n', '\r', '\0'])) else {
        return Err(Error::Key { host: host.to_owned(), key: key.to_owned() });
    };
    change(path, |text| with(text, host, Some(&format!("{kind} {material}"))))
}

/// Forgets a server that is gone, by all its names.
pub fn forget(path: &Path, hosts: &[String]) -> Result<(), Error> {
    hosts.iter().try_for_each(|host| change(path, |text| with(text, host, None)))
}

/// The text in which the host has exactly this key; nothing if that is so already.
fn with(text: &str, host: &str, key: Option<&str>) -> Option<String> {
    let is_ours = |line: &&str| line.split(' ').next() == Some(host);
    let wanted = key.map(|key| format!("{host} {key}"));
    let there: Vec<&str> = text.lines().filter(is_ours).collect();
    if there == wanted.iter().map(String::as_str).collect::<Vec<_>>() {
        return None;
    }
    let kept = text.lines().filter(|line| !is_ours(line)).map(str::to_owned);
    Some(kept.chain(wanted).map(|line| line + "\n").collect())
}

fn change(path: &Path, edit: impl Fn(&str) -> Option<String>) -> Result<(), Error> {
    let failed = |source| Error::File { path: path.display().to_string(), source };
    let read = || -> io::Result<String> { Ok(String::from_utf8_lossy(&replace::read(path)?).into_owned()) };
    // Nearly always nothing is to be done.
    if edit(&read().map_err(failed)?).is_none() {
        return Ok(());
    }
    let locked = || -> io::Result<()> {
        if let Some(directory) = path.parent() {
            replace::make_directory(directory)?;
        }
        let lock = std::fs::File::create(path.with_extension("lock"))?;
        lock.lock()?;
        // Somebody may have been faster.
        edit(&read()?).map_or(Ok(()), |text| replace::write(path, text.as_bytes()))
    };
    locked().map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "ssh-ed25519 AAAA";

    #[test]
    fn a_host_has_one_key_and_others_stay() {
        let text = "a.odc ssh-ed25519 OLD\nb.odc ssh-ed25519 B\na.odc ssh-rsa X\n";
        let changed = with(text, "a.odc", Some(KEY)).unwrap();
        assert_eq!(changed, "b.odc ssh-ed25519 B\na.odc ssh-ed25519 AAAA\n");
        assert_eq!(with(&changed, "a.odc", Some(KEY)), None);
        assert_eq!(with(&changed, "a.odc", None).unwrap(), "b.odc ssh-ed25519 B\n");
        assert_eq!(with(&changed, "c.odc", None), None);
        assert_eq!(with("", "a.odc", Some(KEY)).unwrap(), "a.odc ssh-ed25519 AAAA\n");
    }

    #[test]
    fn a_key_brings_no_second_line_along() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("known_hosts");
        let error = pin(&path, "a.odc", "ssh-ed25519 AAAA\n* ssh-ed25519 EVIL").unwrap_err();
        assert!(matches!(error, Error::Key { .. }));
        assert!(!path.exists());
        pin(&path, "a.odc", "ssh-ed25519 AAAA a comment").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "a.odc ssh-ed25519 AAAA\n");
    }

    #[test]
    fn a_server_is_forgotten_by_all_its_names() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("known_hosts");
        for host in ["a.odc", "1.a.odc", "b.odc"] {
            pin(&path, host, KEY).unwrap();
        }
        forget(&path, &["a.odc".to_owned(), "1.a.odc".to_owned(), "2.a.odc".to_owned()]).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), format!("b.odc {KEY}\n"));
        // Nothing to forget is nothing to do, not even a file.
        forget(&place.path().join("none"), &["a.odc".to_owned()]).unwrap();
        assert!(!place.path().join("none").exists());
    }

    #[test]
    fn many_at_once_lose_nothing() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("odc/known_hosts");
        std::thread::scope(|scope| {
            for number in 0..16 {
                let path = &path;
                scope.spawn(move || pin(path, &format!("s{number}.odc"), KEY).unwrap());
            }
        });
        let mut lines: Vec<String> = std::fs::read_to_string(&path).unwrap().lines().map(str::to_owned).collect();
        lines.sort();
        let mut expect: Vec<String> = (0..16).map(|number| format!("s{number}.odc {KEY}")).collect();
        expect.sort();
        assert_eq!(lines, expect);
    }

    #[test]
    fn a_place_that_cannot_be_written_is_named() {
        let place = tempfile::tempdir().unwrap();
        std::fs::write(place.path().join("file"), "").unwrap();
        let error = pin(&place.path().join("file/known_hosts"), "a.odc", KEY).unwrap_err();
        assert!(error.to_string().contains("file/known_hosts"), "{error}");
    }
}
