//! Copies a directory to a server and back, with rsync if both sides have it, else with tar.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use tempfile::TempDir;
use tokio::process::Command;

use crate::context::ClusterContext;
use crate::error::{Error, Result};
use crate::shell;
use crate::ssh::connect::ReadyServer;
use crate::ssh::options::{SshOptions, SshOverrides};
use crate::ssh::{process, remote};

/// The parent directory in the home of the server. It is constant, so that later jobs with the same home copy changes only.
const REMOTE_PARENT: &str = "submit";

pub struct Sync {
    local: PathBuf,
    remote: String,
    host: String,
    exclude: Vec<String>,
    rsync: bool,
    /// Contains a script that runs ssh with all options; rsync does not accept quoted ones.
    script_dir: TempDir,
}

impl Sync {
    pub async fn new(ctx: &ClusterContext, ready: &ReadyServer, local: &Path, exclude: &[String]) -> Result<Self> {
        let base = local.file_name().map_or("root".into(), |name| name.to_string_lossy());
        let path = format!("{REMOTE_PARENT}/{base}");
        let prepare = format!("mkdir -p {} && {{ command -v rsync || :; }}", shell::quote(&path));
        let remote_rsync = remote::run(ctx, ready, &prepare).await?;
        let local_rsync =
            Command::new("rsync").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().await;
        let alias = ready.host.alias();
        let options = SshOptions::new(&ctx.global, &ctx.settings, ctx.target(), &SshOverrides::NO_AGENT)?;
        let words = std::iter::once("ssh".to_owned())
            .chain(options.flags(None))
            .chain(["-T", "-oLogLevel=ERROR", "-l", ctx.login_name()].map(str::to_owned))
            .collect::<Vec<_>>();
        let line = shell::join(words.iter().map(String::as_str));
        Ok(Self {
            local: local.to_owned(),
            remote: path,
            host: alias,
            exclude: exclude.to_owned(),
            rsync: !remote_rsync.trim().is_empty() && local_rsync.is_ok_and(|status| status.success()),
            script_dir: write_script(&line).map_err(|error| {
                Error::failed(format!("could not create a temporary file: {error}"))
                    .with_hint("free some space, or set TMPDIR")
            })?,
        })
    }

    /// Returns the remote directory, relative to the home.
    pub fn remote(&self) -> &str {
        &self.remote
    }

    pub async fn push(&self) -> Result<()> {
        if self.rsync {
            let (from, to) = (format!("{}/", self.local.display()), format!("{}:{}/", self.host, self.remote));
            return self.rsync(&[], &from, &to).await;
        }
        let mut pack = self.local_tar();
        pack.arg("-cf").arg("-").args(self.excludes()).arg(".");
        let unpack = self.ssh(&format!("tar -C {} --no-same-owner -xf -", shell::quote(&self.remote)));
        self.pipe(pack, unpack).await
    }

    /// Keeps local files that are newer than the remote ones.
    pub async fn pull(&self) -> Result<()> {
        if self.rsync {
            let (from, to) = (format!("{}:{}/", self.host, self.remote), format!("{}/", self.local.display()));
            return self.rsync(&["--update"], &from, &to).await;
        }
        let excludes = shell::join(self.excludes().iter().map(String::as_str));
        let pack = self.ssh(&format!("tar -C {} -cf - {excludes} .", shell::quote(&self.remote)));
        let mut unpack = self.local_tar();
        unpack.args(["--no-same-owner", "--keep-newer-files"]);
        if cfg!(target_os = "linux") {
            // GNU tar would otherwise warn about every unchanged file.
            unpack.arg("--warning=no-ignore-newer");
        }
        unpack.args(["-xf", "-"]);
        self.pipe(pack, unpack).await
    }

    /// Does not preserve owners: user ids differ in the server.
    async fn rsync(&self, options: &[&str], from: &str, to: &str) -> Result<()> {
        let mut command = Command::new("rsync");
        command
            .args(["-rlptz", "--protect-args"])
            .args(options)
            .args(self.excludes())
            .arg("-e")
            .arg(format!("sh {}", self.script().display()));
        command.args(["--", from, to]).stdin(Stdio::null()).kill_on_drop(true);
        match process::exit_code(process::run(command).await?) {
            0 => Ok(()),
            code => Err(copy_error(&format!("rsync exited with status {code}"))),
        }
    }

    async fn pipe(&self, mut from: Command, mut to: Command) -> Result<()> {
        let mut source = from
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| process::spawn_error(&from, &error))?;
        let pipe = source.stdout.take().ok_or_else(|| copy_error(&"could not create a pipe"))?;
        let pipe: Stdio = pipe.try_into().map_err(|error: std::io::Error| copy_error(&error))?;
        let sink = to.stdin(pipe).kill_on_drop(true).spawn().map_err(|error| process::spawn_error(&to, &error))?;
        let (sink, source) =
            tokio::join!(process::wait_forwarding_signals(sink), process::wait_forwarding_signals(source));
        match (process::exit_code(source?), process::exit_code(sink?)) {
            (0, 0) => Ok(()),
            (source, sink) => {
                Err(copy_error(&format!("tar exited with status {source} on the source, {sink} on the destination")))
            }
        }
    }

    fn excludes(&self) -> Vec<String> {
        self.exclude.iter().map(|pattern| format!("--exclude={pattern}")).collect()
    }

    fn local_tar(&self) -> Command {
        let mut command = Command::new("tar");
        command.arg("-C").arg(&self.local);
        command
    }

    fn ssh(&self, line: &str) -> Command {
        let mut command = Command::new("sh");
        command.arg(self.script()).args(["--", &self.host, line]);
        command
    }

    fn script(&self) -> PathBuf {
        self.script_dir.path().join("ssh")
    }
}

fn copy_error(cause: &dyn std::fmt::Display) -> Error {
    Error::failed(format!("could not copy files: {cause}"))
        .with_hint("see the messages above; pass `--no-push` or `--no-pull` to skip copying")
}

fn write_script(line: &str) -> std::io::Result<TempDir> {
    let directory = tempfile::Builder::new().prefix("devctl-").tempdir()?;
    // The script is run with `sh`, because the temporary directory may be mounted noexec.
    std::fs::write(directory.path().join("ssh"), format!("exec {line} \"$@\"\n"))?;
    Ok(directory)
}
