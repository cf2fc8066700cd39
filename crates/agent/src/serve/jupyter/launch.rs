//! Finds Jupyter in the image and starts it.

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use odc_control::Text;
use rustix::fs::OFlags;
use rustix::process::geteuid;
use serde::{Deserialize, Serialize};
use tokio::process::Command;

use crate::bounded_read::read_tail;
use crate::image_programs;
use crate::process_id::ProcessId;

pub const ABSENT: &str =
    "Jupyter is not installed in this image. Install it with `pip install jupyterlab`, or use another image.";

/// Front ends of Jupyter, in order of preference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum FrontEnd {
    Lab,
    Notebook,
    Server,
}

impl FrontEnd {
    const ALL: [Self; 3] = [Self::Lab, Self::Notebook, Self::Server];

    fn name(self) -> &'static str {
        match self {
            Self::Lab => "lab",
            Self::Notebook => "notebook",
            Self::Server => "server",
        }
    }

    /// Returns the path of the front end.
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
    /// Each front end has its own program; `jupyter` finds front ends in directories outside `PATH`.
    pub fn find(&self) -> Option<(FrontEnd, PathBuf)> {
        let find = |name: &str| image_programs::which(name, self.path.as_deref());
        let direct = FrontEnd::ALL
            .into_iter()
            .find_map(|front_end| Some((front_end, find(&format!("jupyter-{}", front_end.name()))?)));
        direct.or_else(|| Some((FrontEnd::Lab, find("jupyter")?)))
    }

    /// Passes the token in the environment, because every user in the server can read a command line.
    pub fn start(&self, front_end: FrontEnd, program: &Path, token: &str) -> io::Result<ProcessId> {
        // Appends, so that the log can be truncated while it is written.
        let append = OFlags::APPEND.bits().cast_signed();
        let log = OpenOptions::new().create(true).write(true).truncate(true).custom_flags(append).open(&self.log)?;
        let mut command = Command::new(program);
        if program.file_name().is_some_and(|name| name == "jupyter") {
            command.arg(front_end.name());
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
        let process = child.id().and_then(ProcessId::of_pid);
        // Reaps the process when it exits.
        tokio::spawn(async move { child.wait().await });
        process.ok_or_else(|| io::Error::other("it exited immediately"))
    }
}

/// Returns the end of the log as one line.
pub fn log_tail(log: &Path, max_bytes: u64) -> String {
    let text = Text::new(read_tail(log, max_bytes).unwrap_or_default());
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Empties the log if it is larger than `max_bytes`.
pub fn truncate_log(log: &Path, max_bytes: u64) {
    if fs::metadata(log).is_ok_and(|log| log.len() > max_bytes) {
        let _ = OpenOptions::new().write(true).open(log).and_then(|file| file.set_len(0));
    }
}
