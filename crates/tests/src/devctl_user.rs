//! A user with a home directory and a kubeconfig, who runs devctl.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::process::Command;

use crate::command::executable;
use crate::{Cluster, user};

pub struct User {
    pub home: tempfile::TempDir,
    kubeconfig: PathBuf,
    devctl: PathBuf,
}

/// The output and exit code of a program.
#[derive(Debug)]
pub struct CommandOutput {
    pub out: String,
    pub err: String,
    pub code: Option<i32>,
}

impl User {
    /// Creates a user of the cluster, without an SSH key.
    pub async fn new(cluster: &Cluster, user: &str) -> anyhow::Result<Self> {
        let home = tempfile::tempdir()?;
        let kubeconfig = home.path().join("kubeconfig");
        user::create_user(&cluster.namespace.client, &cluster.directory.join("kubeconfig"), user, &kubeconfig).await?;
        Ok(Self { home, kubeconfig, devctl: executable("devctl")? })
    }

    /// Creates an SSH key.
    pub async fn create_key(&self) -> anyhow::Result<()> {
        std::fs::create_dir(self.path(".ssh"))?;
        let key = self.path(".ssh/id_ed25519");
        success(self.program("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(key)).await?;
        Ok(())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// Returns a command in the environment of the user.
    pub fn program(&self, name: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(name);
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("HOME", self.home.path()).current_dir(self.home.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        command
    }

    pub fn devctl(&self, arguments: &[&str]) -> Command {
        let mut command = self.program(&self.devctl);
        command.env("KUBECONFIG", &self.kubeconfig).args(arguments);
        command
    }

    /// Returns an OpenSSH program that uses the output of `config-ssh`, without KUBECONFIG, as an editor would start it.
    pub fn openssh(&self, name: &str) -> Command {
        let mut command = self.program(name);
        command.arg("-F").arg(self.path(".ssh/config"));
        command
    }

    /// Returns the ssh command for programs that run ssh.
    pub fn shell(&self) -> String {
        format!("ssh -F {}", self.path(".ssh/config").display())
    }

    pub async fn run(&self, arguments: &[&str]) -> anyhow::Result<CommandOutput> {
        output(&mut self.devctl(arguments)).await
    }

    /// Runs devctl and returns its standard output, or an error if the exit code is not 0.
    pub async fn success(&self, arguments: &[&str]) -> anyhow::Result<String> {
        success(&mut self.devctl(arguments)).await
    }

    /// Creates a server and waits until it is ready.
    pub async fn create(&self, name: &str) -> anyhow::Result<()> {
        self.success(&["create", name, "-t", "cpu", "--no-persist", "--idle-action", "none", "--wait", "--yes"])
            .await
            .map(drop)
    }
}

pub async fn output(command: &mut Command) -> anyhow::Result<CommandOutput> {
    let output = command.output().await?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(CommandOutput { out: text(&output.stdout), err: text(&output.stderr), code: output.status.code() })
}

pub async fn success(command: &mut Command) -> anyhow::Result<String> {
    let result = output(command).await?;
    anyhow::ensure!(result.code == Some(0), "{:?}: {result:#?}", command.as_std());
    Ok(result.out)
}

pub fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory)?;
    }
    Ok(std::fs::write(path, text)?)
}
