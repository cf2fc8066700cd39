//! The user's SSH keys, or one that devctl creates. Servers accept ed25519 keys only.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use odc_api::ssh_key::PublicKey;
use tokio::process::Command;

use crate::fs;
use crate::ssh::paths::SshPaths;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    pub public: PublicKey,
    pub source: Source,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The private key; the public key is beside it.
    File(PathBuf),
    Agent,
}

impl Identity {
    pub fn file(&self) -> Option<&Path> {
        match &self.source {
            Source::File(path) => Some(path),
            Source::Agent => None,
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("could not read {path}")]
    Read {
        path: String,
        #[source]
        source: std::io::Error,
    },
    #[error("unsupported key {path}: {source}")]
    Unusable {
        path: String,
        #[source]
        source: odc_api::ssh_key::InvalidKey,
    },
    #[error("{path} has no public key; restore it with `ssh-keygen -y -f {path} > {path}.pub`")]
    MissingPublicKey { path: String },
    #[error("could not create a key with ssh-keygen: {reason}")]
    Create { reason: String },
}

/// Returns the keys in order of preference: the configured one only; or `id_ed25519`, the key of devctl, and the agent's keys.
pub async fn find(paths: &SshPaths, configured: Option<&Path>) -> Result<Vec<Identity>, Error> {
    if let Some(path) = configured {
        return Ok(vec![read(path)?]);
    }
    let mut found = Vec::new();
    for path in [paths.ssh().join("id_ed25519"), paths.key()] {
        if public_path(&path).exists() {
            // Skip unsupported keys.
            found.extend(read(&path).ok());
        }
    }
    for public in agent_keys().await {
        if !found.iter().any(|known| known.public == public) {
            found.push(Identity { public, source: Source::Agent });
        }
    }
    Ok(found)
}

/// Creates the key of devctl, without a passphrase, or returns the existing one.
pub async fn create(paths: &SshPaths, comment: &str) -> Result<Identity, Error> {
    let path = paths.key();
    if public_path(&path).exists() {
        return read(&path);
    }
    if path.exists() {
        return Err(Error::MissingPublicKey { path: path.display().to_string() });
    }
    let failed = |reason: &dyn std::fmt::Display| Error::Create { reason: reason.to_string() };
    fs::create_private_dir(&paths.dir()).map_err(|error| failed(&error))?;
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

/// Reads a key by the path of its private or public file.
fn read(path: &Path) -> Result<Identity, Error> {
    let private = if path.extension().is_some_and(|extension| extension == "pub") {
        path.with_extension("")
    } else {
        path.to_owned()
    };
    let public = public_path(&private);
    let text = std::fs::read_to_string(&public)
        .map_err(|source| Error::Read { path: public.display().to_string(), source })?;
    let key = parse(&text).map_err(|source| Error::Unusable { path: public.display().to_string(), source })?;
    Ok(Identity { public: key, source: Source::File(private) })
}

fn public_path(private: &Path) -> PathBuf {
    let mut name = private.as_os_str().to_owned();
    name.push(".pub");
    name.into()
}

/// Parses a public key. Drops a comment that the API would reject.
fn parse(text: &str) -> Result<PublicKey, odc_api::ssh_key::InvalidKey> {
    let line = text.trim();
    line.parse().or_else(|error| {
        let without_comment = line.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
        without_comment.parse().map_err(|_| error)
    })
}

/// Returns the first key that has a passphrase and is not in the agent.
pub async fn find_locked(keys: &[PathBuf]) -> Option<PathBuf> {
    let unlocked = agent_keys().await;
    for path in keys {
        let in_agent = read(path).is_ok_and(|identity| unlocked.contains(&identity.public));
        if !in_agent && has_passphrase(path).await {
            return Some(path.clone());
        }
    }
    None
}

async fn has_passphrase(path: &Path) -> bool {
    let mut command = Command::new("ssh-keygen");
    command.args(["-y", "-P", "", "-f"]).arg(path).stdin(Stdio::null()).kill_on_drop(true);
    // An invalid key file fails with another message.
    let needs_passphrase = command
        .output()
        .await
        .is_ok_and(|output| !output.status.success() && String::from_utf8_lossy(&output.stderr).contains("passphrase"));
    needs_passphrase && path.exists()
}

/// The agent may wait for a confirmation by the user.
const AGENT_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(3);

/// Returns the keys of the SSH agent; none without an agent.
async fn agent_keys() -> Vec<PublicKey> {
    if std::env::var_os("SSH_AUTH_SOCK").is_none() {
        return Vec::new();
    }
    let list = Command::new("ssh-add").arg("-L").stdin(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true).output();
    match tokio::time::timeout(AGENT_TIMEOUT, list).await {
        Ok(Ok(output)) => String::from_utf8_lossy(&output.stdout).lines().filter_map(|line| parse(line).ok()).collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJdD7y3aLq454yWBdwLWbieU1ebz9/cu7/QEXn9OIeZJ";

    #[tokio::test]
    async fn default_key_is_preferred_and_unsupported_keys_are_skipped() {
        let home = tempfile::tempdir().unwrap();
        let paths = SshPaths::new(home.path());
        assert_eq!(files(&find(&paths, None).await.unwrap()), Vec::<PathBuf>::new());
        let own = create(&paths, "ada@laptop").await.unwrap();
        assert_eq!(own.public.comment(), Some("ada@laptop"));
        assert_eq!(create(&paths, "again").await.unwrap(), own, "the existing key is returned");
        let default = paths.ssh().join("id_ed25519");
        std::fs::write(public_path(&default), format!("{KEY} {}\n", "ä".repeat(200))).unwrap();
        assert_eq!(files(&find(&paths, None).await.unwrap()), [default.clone(), paths.key()]);
        std::fs::write(public_path(&default), "ssh-rsa AAAA\n").unwrap();
        assert_eq!(files(&find(&paths, None).await.unwrap()), [paths.key()]);
        let error = find(&paths, Some(&default)).await.unwrap_err();
        assert!(error.to_string().contains("only ssh-ed25519 keys"), "{error}");
        assert_eq!(files(&find(&paths, Some(&public_path(&paths.key()))).await.unwrap()), [paths.key()]);
    }

    #[tokio::test]
    async fn private_key_without_public_key_is_not_overwritten() {
        let home = tempfile::tempdir().unwrap();
        let paths = SshPaths::new(home.path());
        std::fs::create_dir_all(paths.dir()).unwrap();
        std::fs::write(paths.key(), "precious").unwrap();
        assert!(matches!(create(&paths, "").await, Err(Error::MissingPublicKey { .. })));
        assert_eq!(std::fs::read_to_string(paths.key()).unwrap(), "precious");
    }

    #[tokio::test]
    async fn key_with_passphrase_is_locked() {
        let home = tempfile::tempdir().unwrap();
        let key = |name: &str, passphrase: &str| {
            let path = home.path().join(name);
            let status = std::process::Command::new("ssh-keygen")
                .args(["-q", "-t", "ed25519", "-N", passphrase, "-f"])
                .arg(&path)
                .status();
            assert!(status.unwrap().success());
            path
        };
        let (unlocked, locked) = (key("unlocked", ""), key("locked", "secret"));
        let broken = home.path().join("broken");
        std::fs::write(&broken, "not a key").unwrap();
        assert_eq!(find_locked(&[unlocked.clone(), locked.clone()]).await, Some(locked));
        assert_eq!(find_locked(&[unlocked, broken, home.path().join("none")]).await, None);
    }

    fn files(found: &[Identity]) -> Vec<PathBuf> {
        found.iter().filter_map(|identity| identity.file().map(Path::to_owned)).collect()
    }
}
