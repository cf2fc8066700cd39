//! A supervised part of the cloud, as a value: what to write, what to run, when it is ready, how it ends.
//!
//! Building the parts decides everything and touches nothing; `supervisor` carries it out.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::cgroup::Cgroup;
use crate::network::NodeIndex;
use crate::probe::Probe;

#[derive(Clone, Debug)]
pub struct Part {
    /// Unique in the cloud; a node's parts are `n1/kubelet`.
    pub name: String,
    /// Written before every start.
    pub files: Vec<TextFile>,
    /// What puts the command into its place (namespaces, another user) and becomes it.
    pub wrapper: Vec<OsString>,
    pub command: Vec<OsString>,
    pub environment: Vec<(String, String)>,
    /// Started only when all of these are ready; ended before any of them.
    pub needs: Vec<String>,
    pub kind: Kind,
    pub ending: Ending,
    pub cgroup: Option<Cgroup>,
    /// The node it belongs to and disappears with.
    pub node: Option<NodeIndex>,
}

#[derive(Clone, Debug)]
pub enum Kind {
    /// Runs for ever; ready when the probe says so.
    Service(Probe),
    /// Runs to its end; ready when it ended well.
    Job,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Ending {
    Terminate {
        seconds: u64,
    },
    /// PostgreSQL's "fast": ends sessions, keeps what was committed.
    Interrupt {
        seconds: u64,
    },
}

impl Ending {
    pub fn signal(self) -> Signal {
        match self {
            Self::Terminate { .. } => Signal::TERM,
            Self::Interrupt { .. } => Signal::INT,
        }
    }

    pub fn grace(self) -> Duration {
        let (Self::Terminate { seconds } | Self::Interrupt { seconds }) = self;
        Duration::from_secs(seconds)
    }
}

#[derive(Clone, Debug)]
pub struct TextFile {
    pub path: PathBuf,
    pub text: String,
    pub mode: u32,
}

impl TextFile {
    pub fn write(&self) -> anyhow::Result<()> {
        crate::file::write(&self.path, &self.text, self.mode)
    }
}

impl Part {
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            files: Vec::new(),
            wrapper: Vec::new(),
            command: Vec::new(),
            environment: Vec::new(),
            needs: Vec::new(),
            kind: Kind::Job,
            ending: Ending::Terminate { seconds: 10 },
            cgroup: None,
            node: None,
        }
    }

    #[must_use]
    pub fn command<T: Into<OsString>>(mut self, words: impl IntoIterator<Item = T>) -> Self {
        self.command.extend(words.into_iter().map(Into::into));
        self
    }

    #[must_use]
    pub fn wrapper<T: Into<OsString>>(mut self, words: impl IntoIterator<Item = T>) -> Self {
        self.wrapper.extend(words.into_iter().map(Into::into));
        self
    }

    /// `--name=value`, as all of Kubernetes' components read it.
    #[must_use]
    pub fn flag(mut self, name: &str, value: impl std::fmt::Display) -> Self {
        self.command.push(format!("--{name}={value}").into());
        self
    }

    #[must_use]
    pub fn path_flag(self, name: &str, path: &Path) -> Self {
        self.flag(name, path.display())
    }

    #[must_use]
    pub fn environment(mut self, name: &str, value: impl Into<String>) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    #[must_use]
    pub fn file(mut self, path: PathBuf, text: impl Into<String>) -> Self {
        self.files.push(TextFile { path, text: text.into(), mode: 0o644 });
        self
    }

    #[must_use]
    pub fn needs(mut self, part: impl Into<String>) -> Self {
        self.needs.push(part.into());
        self
    }

    #[must_use]
    pub fn ready(mut self, probe: Probe) -> Self {
        self.kind = Kind::Service(probe);
        self
    }

    #[must_use]
    pub fn ending(mut self, ending: Ending) -> Self {
        self.ending = ending;
        self
    }

    #[must_use]
    pub fn cgroup(mut self, cgroup: Option<Cgroup>) -> Self {
        self.cgroup = cgroup;
        self
    }

    /// Changes with everything that would make the running process another one.
    pub fn fingerprint(&self) -> String {
        let mut hash = Sha256::new();
        for word in self.wrapper.iter().chain(&self.command) {
            hash.update(word.as_encoded_bytes());
            hash.update([0]);
        }
        for (name, value) in &self.environment {
            hash.update(name);
            hash.update([1]);
            hash.update(value);
            hash.update([0]);
        }
        for file in &self.files {
            hash.update(file.path.as_os_str().as_encoded_bytes());
            hash.update([1]);
            hash.update(&file.text);
            hash.update([0]);
        }
        hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_changes_with_command_environment_and_files_only() {
        let part = || Part::new("p").command(["run"]).flag("a", 1).environment("E", "1").file("/f".into(), "text");
        let base = part().fingerprint();
        assert_eq!(part().needs("other").fingerprint(), base);
        for other in [
            part().flag("b", 2),
            part().environment("F", "1"),
            part().file("/g".into(), ""),
            Part::new("p").command(["run", "--a=1"]),
        ] {
            assert_ne!(other.fingerprint(), base);
        }
    }
}
