//! Where things of ours are among the person's: one directory, `~/.ssh/odc`, that can be deleted as a whole.

use std::path::{Path, PathBuf};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    ssh: PathBuf,
    config: PathBuf,
}

impl Places {
    /// `home` is the person's home directory. Paths are absolute, because OpenSSH takes the home of the account for `~`,
    /// not `$HOME`.
    pub fn of(home: &Path) -> Self {
        let ssh = home.join(".ssh");
        Self { config: ssh.join("config"), ssh }
    }

    /// The same, with the person's own configuration elsewhere.
    #[must_use]
    pub fn with_config(self, config: &Path) -> Self {
        Self { config: config.to_owned(), ..self }
    }

    pub fn ssh(&self) -> &Path {
        &self.ssh
    }

    /// The person's own configuration.
    pub fn config(&self) -> PathBuf {
        self.config.clone()
    }

    pub fn ours(&self) -> PathBuf {
        self.ssh.join("odc")
    }

    /// What the person's configuration includes.
    pub fn our_config(&self) -> PathBuf {
        self.ours().join("config")
    }

    pub fn known_hosts(&self) -> PathBuf {
        self.ours().join("known_hosts")
    }

    /// The key that is made for somebody who has none.
    pub fn key(&self) -> PathBuf {
        self.ours().join("id_ed25519")
    }
}
