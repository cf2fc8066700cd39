//! The person's SSH keys: those they have, or one made for them. Servers take ed25519 keys.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use odc_api::ssh_key::PublicKey;
use tokio::process::Command;

use crate::replace;
use crate::ssh::places::Places;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    pub public: PublicKey,
    pub from: From,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum From {
    /// The private part; the public one is beside it.
    File(PathBuf),
    Agent,
}

impl Identity {
    pub fn file(&self) -> Option<&Path> {
        match &self.from {
            From::File(path) => Some(path),
            From::Agent => None,
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{path} cannot be read; name another key or make a new one: ssh-keygen -t ed25519")]
    Read {
        path: String,
        #[source]
        source: std::io::Error,
    },
    #[error("{path} holds no key that servers take: {source}")]
    Unusable {
        path: String,
        #[source]
        source: odc_api::ssh_key::NotAKey,
    },
    #[error("{path} is there already, without its public part; restore it with: ssh-keygen -y -f {path} > {path}.pub")]
    Half { path: String },
    #[error(
        "no key could be made; is OpenSSH installed? Otherwise make one yourself: ssh-keygen -t ed25519 ({reason})"
    )]
    Make { reason: String },
}

/// The keys there are, the best first: one that the person named; then the usual one; then ours; then those of their key agent.
pub async fn find(places: &Places, named: Option<&Path>) -> Result<Vec<Identity>, Error> {
    if let Some(named) = named {
        return Ok(vec![read(named)?]);
    }
    let mut found = Vec::new();
    for path in [places.ssh().join("id_ed25519"), places.key()] {
        if public_part(&path).exists() {
            // One that cannot be used is no reason to stop: the next may do.
            found.extend(read(&path).ok());
        }
    }
    for public in of_agent().await {
        if !found.iter().any(|known| known.public == public) {
            found.push(Identity { public, from: From::Agent });
        }
    }
    Ok(found)
}

/// Makes one, without a passphrase, for these servers alone.
pub async fn make(places: &Places, comment: &str) -> Result<Identity, Error> {
    let path = places.key();
    if public_part(&path).exists() {
        return read(&path);
    }
    if path.exists() {
        return Err(Error::Half { path: path.display().to_string() });
    }
    let failed = |reason: &dyn std::fmt::Display| Error::Make { reason: reason.to_string() };
    replace::make_directory(&places.ours()).map_err(|error| failed(&error))?;
    let output = Command::new("ssh-keygen")
        .args(["-q", "-t", "ed25519", "-N", "", "-C", comment, "-f"])
        .arg(&path)
        .stdin(Stdio::null())
        .output()
        .await
        .map_err(|error| failed(&error))?;
    if !output.status.success() {
        return Err(failed(&String::from_utf8_lossy(&output.stderr).trim()));
    }
    read(&path)
}

/// Reads a key, named by either part.
fn read(path: &Path) -> Result<Identity, Error> {
    let private =
        if path.extension().is_some_and(|ending| ending == "pub") { path.with_extension("") } else { path.to_owned() };
    let public = public_part(&private);
    let text = std::fs::read_to_string(&public)
        .map_err(|source| Error::Read { path: public.display().to_string(), source })?;
    let key = parse(&text).map_err(|source| Error::Unusable { path: public.display().to_string(), source })?;
    Ok(Identity { public: key, from: From::File(private) })
}

fn public_part(private: &Path) -> PathBuf {
    let mut name = private.as_os_str().to_owned();
    name.push(".pub");
    name.into()
}

/// A comment that the API would refuse is left out; it is only a note.
fn parse(text: &str) -> Result<PublicKey, odc_api::ssh_key::NotAKey> {
    let line = text.trim();
    line.parse().or_else(|error| {
        let bare = line.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
        bare.parse().map_err(|_| error)
    })
}

/// The first of these keys that nobody can use without its passphrase: it has one, and no key agent holds it.
pub async fn locked(keys: &[PathBuf]) -> Option<PathBuf> {
    let open = of_agent().await;
    for path in keys {
        let held = read(path).is_ok_and(|identity| open.contains(&identity.public));
        if !held && has_passphrase(path).await {
            return Some(path.clone());
        }
    }
    None
}

async fn has_passphrase(path: &Path) -> bool {
    let mut question = Command::new("ssh-keygen");
    question.args(["-y", "-P", "", "-f"]).arg(path).stdin(Stdio::null()).kill_on_drop(true);
    // A file that is no key at all cannot be unlocked either.
    let refused = question
        .output()
        .await
        .is_ok_and(|output| !output.status.success() && String::from_utf8_lossy(&output.stderr).contains("passphrase"));
    refused && path.exists()
}

/// Those a key agent has. No agent, no keys: nothing is wrong with that.
async fn of_agent() -> Vec<PublicKey> {
    if std::env::var_os("SSH_AUTH_SOCK").is_none() {
        return Vec::new();
    }
    let asked =
        Command::new("ssh-add").arg("-L").stdin(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true).output();
    // An agent that waits for a person must not make us wait.
    match tokio::time::timeout(std::time::Duration::from_secs(3), asked).await {
        Ok(Ok(output)) => String::from_utf8_lossy(&output.stdout).lines().filter_map(|line| parse(line).ok()).collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJdD7y3aLq454yWBdwLWbieU1ebz9/cu7/QEXn9OIeZJ";

    #[tokio::test]
    async fn the_usual_key_comes_before_ours_and_bad_ones_do_not_count() {
        let home = tempfile::tempdir().unwrap();
        let places = Places::of(home.path());
        assert_eq!(files(&find(&places, None).await.unwrap()), Vec::<PathBuf>::new());
        let ours = make(&places, "ada@laptop").await.unwrap();
        assert_eq!(ours.public.comment(), Some("ada@laptop"));
        assert_eq!(make(&places, "again").await.unwrap(), ours, "a second one is not made");
        let usual = places.ssh().join("id_ed25519");
        std::fs::write(public_part(&usual), format!("{KEY} {}\n", "ä".repeat(200))).unwrap();
        assert_eq!(files(&find(&places, None).await.unwrap()), [usual.clone(), places.key()]);
        std::fs::write(public_part(&usual), "ssh-rsa AAAA\n").unwrap();
        assert_eq!(files(&find(&places, None).await.unwrap()), [places.key()]);
        let error = find(&places, Some(&usual)).await.unwrap_err();
        assert!(error.to_string().contains("only ssh-ed25519 keys are accepted"), "{error}");
        assert_eq!(files(&find(&places, Some(&public_part(&places.key()))).await.unwrap()), [places.key()]);
    }

    #[tokio::test]
    async fn half_a_key_is_not_overwritten() {
        let home = tempfile::tempdir().unwrap();
        let places = Places::of(home.path());
        std::fs::create_dir_all(places.ours()).unwrap();
        std::fs::write(places.key(), "precious").unwrap();
        assert!(matches!(make(&places, "").await, Err(Error::Half { .. })));
        assert_eq!(std::fs::read_to_string(places.key()).unwrap(), "precious");
    }

    #[tokio::test]
    async fn a_key_with_a_passphrase_is_known_by_it() {
        let home = tempfile::tempdir().unwrap();
        let key = |name: &str, passphrase: &str| {
            let path = home.path().join(name);
            let made = std::process::Command::new("ssh-keygen")
                .args(["-q", "-t", "ed25519", "-N", passphrase, "-f"])
                .arg(&path)
                .status();
            assert!(made.unwrap().success());
            path
        };
        let (open, shut) = (key("open", ""), key("shut", "secret"));
        let broken = home.path().join("broken");
        std::fs::write(&broken, "no key").unwrap();
        assert_eq!(locked(&[open.clone(), shut.clone()]).await, Some(shut));
        assert_eq!(locked(&[open, broken, home.path().join("none")]).await, None);
    }

    fn files(found: &[Identity]) -> Vec<PathBuf> {
        found.iter().filter_map(|identity| identity.file().map(Path::to_owned)).collect()
    }
}
