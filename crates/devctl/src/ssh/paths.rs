//! The files of devctl below `~/.ssh`: one directory, `~/.ssh/odc`, that can be deleted as a whole.

use std::path::{Path, PathBuf};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SshPaths {
    ssh: PathBuf,
    user_config: PathBuf,
}

impl SshPaths {
    /// Paths are absolute, because OpenSSH expands `~` to the home of the account, not to `$HOME`.
    pub fn new(home: &Path) -> Self {
        let ssh = home.join(".ssh");
        Self { user_config: ssh.join("config"), ssh }
    }

    /// Replaces the path of the user's `ssh_config`.
    #[must_use]
    pub fn with_user_config(self, config: &Path) -> Self {
        Self { user_config: config.to_owned(), ..self }
    }

    pub fn ssh(&self) -> &Path {
        &self.ssh
    }

    /// The user's `ssh_config`.
    pub fn user_config(&self) -> PathBuf {
        self.user_config.clone()
    }

    pub fn dir(&self) -> PathBuf {
        self.ssh.join("odc")
    }

    /// The file that the user's `ssh_config` includes.
    pub fn config(&self) -> PathBuf {
        self.dir().join("config")
    }

    pub fn known_hosts(&self) -> PathBuf {
        self.dir().join("known_hosts")
    }

    /// The private key that devctl creates for users without one.
    pub fn key(&self) -> PathBuf {
        self.dir().join("id_ed25519")
    }
}
