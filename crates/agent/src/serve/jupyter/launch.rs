//! How a notebook server is found and started in whatever image this is.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use odc_control::Text;
use rustix::fs::OFlags;
use rustix::process::geteuid;
use serde::{Deserialize, Serialize};
use tokio::process::Command;

use crate::shell;
use crate::state::process::Process;

pub const ABSENT: &str =
    "This image has no Jupyter. Install it (pip install jupyterlab), or take an image that has it.";

/// What there is of Jupyter, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Flavor {
    Lab,
    Notebook,
    Server,
}

impl Flavor {
    const ALL: [Self; 3] = [Self::Lab, Self::Notebook, Self::Server];

    fn name(self) -> &'static str {
        match self {
            Self::Lab => "lab",
            Self::Notebook => "notebook",
            Self::Server => "server",
        }
    }

    /// Where people look at it.
    pub fn url_path(self) -> &'static str {
        match self {
            Self::Lab => "/lab",
            Self::Notebook => "/tree",
            Self::Server => "/",
        }
    }
}

#[derive(Clone, Debug)]
pub struct Launch {
    pub path: Option<OsString>,
    pub home: PathBuf,
    pub log: PathBuf,
    pub port: u16,
}

impl Launch {
    /// Every flavor comes with a program of its own; `jupyter` alone finds them in places we do not know.
    pub fn find(&self) -> Option<(Flavor, PathBuf)> {
        let find = |name: &str| shell::find(name, self.path.as_deref());
        let own =
            Flavor::ALL.into_iter().find_map(|flavor| Some((flavor, find(&format!("jupyter-{}", flavor.name()))?)));
        own.or_else(|| Some((Flavor::Lab, find("jupyter")?)))
    }

    /// The token goes by the environment, because everybody in the server can read a command line.
    pub fn start(&self, flavor: Flavor, program: &Path, token: &str) -> io::Result<Process> {
        // Appending, so that the log can be cut while it writes.
        let append = OFlags::APPEND.bits().cast_signed();
        let log = OpenOptions::new().create(true).write(true).truncate(true).custom_flags(append).open(&self.log)?;
        let mut command = Command::new(program);
        if program.file_name().is_some_and(|name| name == "jupyter") {
            command.arg(flavor.name());
        }
        command.args(["--no-browser", "--ip=127.0.0.1", "--log-level=WARN"]).arg(format!("--port={}", self.port));
        if geteuid().is_root() {
            command.arg("--allow-root");
        }
        command.env("JUPYTER_TOKEN", token).env("JUPYTER_PORT_RETRIES", "0");
        if self.home.is_dir() {
            command.current_dir(&self.home);
        }
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).process_group(0);
        let mut child = command.spawn()?;
        let process = child.id().and_then(Process::of);
        // Whoever ends is reaped, whether anybody looks or not.
        tokio::spawn(async move { child.wait().await });
        process.ok_or_else(|| io::Error::other("it ended at once"))
    }
}

/// The end of its log, on one line.
pub fn last_words(log: &Path, most: u64) -> String {
    let read = || -> io::Result<Vec<u8>> {
        let mut file = File::open(log)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(most)))?;
        let mut text = Vec::new();
        file.take(most).read_to_end(&mut text)?;
        Ok(text)
    };
    let text = read().unwrap_or_default();
    let text = Text::new(String::from_utf8_lossy(&text));
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

pub fn shorten(log: &Path, most: u64) {
    if fs::metadata(log).is_ok_and(|log| log.len() > most) {
        let _ = OpenOptions::new().write(true).open(log).and_then(|file| file.set_len(0));
    }
}
