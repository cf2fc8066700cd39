//! A person at a machine of their own: a home, a kubeconfig, devctl.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use odc_tests::bed::executable;
use odc_tests::{Cluster, person};
use tokio::process::Command;

pub struct Person {
    pub home: tempfile::TempDir,
    kubeconfig: PathBuf,
    devctl: PathBuf,
}

/// What a program said and how it ended.
#[derive(Debug)]
pub struct Said {
    pub out: String,
    pub err: String,
    pub code: Option<i32>,
}

impl Person {
    /// A user of this cloud, who has no SSH key yet.
    pub async fn new(cluster: &Cluster, user: &str) -> anyhow::Result<Self> {
        let home = tempfile::tempdir()?;
        let kubeconfig = home.path().join("kubeconfig");
        person::join(&cluster.namespace.client, &cluster.directory.join("kubeconfig"), user, &kubeconfig).await?;
        Ok(Self { home, kubeconfig, devctl: executable("devctl")? })
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// Any program, in this person's place.
    pub fn program(&self, name: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(name);
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("HOME", self.home.path()).current_dir(self.home.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        command
    }

    pub fn devctl(&self, words: &[&str]) -> Command {
        let mut command = self.program(&self.devctl);
        command.env("KUBECONFIG", &self.kubeconfig).args(words);
        command
    }

    /// One of OpenSSH's programs as `config-ssh` left things: without KUBECONFIG, as an editor would start it.
    pub fn openssh(&self, name: &str) -> Command {
        let mut command = self.program(name);
        command.arg("-F").arg(self.path(".ssh/config"));
        command
    }

    /// The same for programs that start ssh themselves.
    pub fn shell(&self) -> String {
        format!("ssh -F {}", self.path(".ssh/config").display())
    }

    pub async fn say(&self, words: &[&str]) -> anyhow::Result<Said> {
        said(&mut self.devctl(words)).await
    }

    /// Standard output of a devctl that ended well.
    pub async fn good(&self, words: &[&str]) -> anyhow::Result<String> {
        good(&mut self.devctl(words)).await
    }

    /// A server for this person, ready to be used.
    pub async fn create(&self, name: &str) -> anyhow::Result<()> {
        self.good(&["create", name, "-t", "cpu", "--no-persist", "--idle-action", "none", "--wait", "--yes"])
            .await
            .map(drop)
    }
}

pub async fn said(command: &mut Command) -> anyhow::Result<Said> {
    let output = command.output().await?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(Said { out: text(&output.stdout), err: text(&output.stderr), code: output.status.code() })
}

pub async fn good(command: &mut Command) -> anyhow::Result<String> {
    let said = said(command).await?;
    anyhow::ensure!(said.code == Some(0), "{:?}: {said:#?}", command.as_std());
    Ok(said.out)
}

pub fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory)?;
    }
    Ok(std::fs::write(path, text)?)
}
