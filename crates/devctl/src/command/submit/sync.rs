//! A directory here and its copy in a server: with rsync where both sides have it, else with tar.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use tempfile::TempDir;
use tokio::process::Command;

use crate::app::App;
use crate::failure::{Failure, Result};
use crate::remote;
use crate::ssh::arrive::Arrived;
use crate::ssh::route::{Wishes, route};
use crate::ssh::{client, quote};

/// In the home there. Under one name, so that a home that is kept is copied to only once.
const PLACE: &str = "submit";

pub struct Sync {
    here: PathBuf,
    there: String,
    host: String,
    exclude: Vec<String>,
    rsync: bool,
    /// Holds a command that reaches the server without further words; rsync cannot be given quoted ones.
    shell: TempDir,
}

impl Sync {
    pub async fn new(app: &App, there: &Arrived, here: &Path, exclude: &[String]) -> Result<Self> {
        let base = here.file_name().map_or("root".into(), |name| name.to_string_lossy());
        let path = format!("{PLACE}/{base}");
        let ask = format!("mkdir -p {} && {{ command -v rsync || :; }}", quote::word(&path));
        let answer = remote::say(app, there, &ask).await?;
        let here_too =
            Command::new("rsync").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().await;
        let alias = there.host.alias();
        let route =
            route(&app.global, &app.settings, app.place(), &Wishes { forward_agent: Some(false), identity: None })?;
        let words = std::iter::once("ssh".to_owned())
            .chain(route.options(None))
            .chain(["-T", "-oLogLevel=ERROR", "-l", app.login()].map(str::to_owned))
            .collect::<Vec<_>>();
        let line = quote::words(words.iter().map(String::as_str));
        Ok(Self {
            here: here.to_owned(),
            there: path,
            host: alias,
            exclude: exclude.to_owned(),
            rsync: !answer.trim().is_empty() && here_too.is_ok_and(|status| status.success()),
            shell: shell(&line).map_err(|error| {
                Failure::failed(format!("no room for a temporary file: {error}")).advise("Make some, or set TMPDIR.")
            })?,
        })
    }

    /// Where it is there, from the home on.
    pub fn there(&self) -> &str {
        &self.there
    }

    pub async fn push(&self) -> Result<()> {
        if self.rsync {
            let (from, to) = (format!("{}/", self.here.display()), format!("{}:{}/", self.host, self.there));
            return self.rsync(&[], &from, &to).await;
        }
        let mut pack = self.tar_here();
        pack.arg("-cf").arg("-").args(self.excludes()).arg(".");
        let unpack = self.ssh(&format!("tar -C {} --no-same-owner -xf -", quote::word(&self.there)));
        self.pipe(pack, unpack).await
    }

    /// What somebody changed here while the command ran is newer, and stays.
    pub async fn pull(&self) -> Result<()> {
        if self.rsync {
            let (from, to) = (format!("{}:{}/", self.host, self.there), format!("{}/", self.here.display()));
            return self.rsync(&["--update"], &from, &to).await;
        }
        let excludes = quote::words(self.excludes().iter().map(String::as_str));
        let pack = self.ssh(&format!("tar -C {} -cf - {excludes} .", quote::word(&self.there)));
        let mut unpack = self.tar_here();
        unpack.args(["--no-same-owner", "--keep-newer-files"]);
        if cfg!(target_os = "linux") {
            // GNU's would name every file that is the same.
            unpack.arg("--warning=no-ignore-newer");
        }
        unpack.args(["-xf", "-"]);
        self.pipe(pack, unpack).await
    }

    /// Owners are not kept: the same numbers are other people there.
    async fn rsync(&self, how: &[&str], from: &str, to: &str) -> Result<()> {
        let mut command = Command::new("rsync");
        command
            .args(["-rlptz", "--protect-args"])
            .args(how)
            .args(self.excludes())
            .arg("-e")
            .arg(format!("sh {}", self.script().display()));
        command.args(["--", from, to]).stdin(Stdio::null()).kill_on_drop(true);
        match client::code(client::run(command).await?) {
            0 => Ok(()),
            code => Err(failed(&format!("rsync ended with {code}"))),
        }
    }

    async fn pipe(&self, mut from: Command, mut to: Command) -> Result<()> {
        let mut source = from
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| client::not_started(&from, &error))?;
        let pipe = source.stdout.take().ok_or_else(|| failed(&"there is no pipe"))?;
        let pipe: Stdio = pipe.try_into().map_err(|error: std::io::Error| failed(&error))?;
        let sink = to.stdin(pipe).kill_on_drop(true).spawn().map_err(|error| client::not_started(&to, &error))?;
        let (taken, given) = tokio::join!(client::attend(sink), client::attend(source));
        match (client::code(taken?), client::code(given?)) {
            (0, 0) => Ok(()),
            (taken, given) => Err(failed(&format!("tar ended with {given}, and its reader with {taken}"))),
        }
    }

    fn excludes(&self) -> Vec<String> {
        self.exclude.iter().map(|pattern| format!("--exclude={pattern}")).collect()
    }

    fn tar_here(&self) -> Command {
        let mut command = Command::new("tar");
        command.arg("-C").arg(&self.here);
        command
    }

    fn ssh(&self, line: &str) -> Command {
        let mut command = Command::new("sh");
        command.arg(self.script()).args(["--", &self.host, line]);
        command
    }

    fn script(&self) -> PathBuf {
        self.shell.path().join("ssh")
    }
}

fn failed(why: &dyn std::fmt::Display) -> Failure {
    Failure::failed(format!("copying failed: {why}"))
        .advise("What went wrong stands above; --no-push and --no-pull copy nothing.")
}

fn shell(line: &str) -> std::io::Result<TempDir> {
    let place = tempfile::Builder::new().prefix("devctl-").tempdir()?;
    // Read by a shell, because nothing may be executed in some temporary directories.
    std::fs::write(place.path().join("ssh"), format!("exec {line} \"$@\"\n"))?;
    Ok(place)
}
