//! The definition of a supervised component: its files, its command, its readiness probe and how to stop it.
//!
//! Definitions are plain values and have no side effects; `supervisor` runs them.

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
pub struct Component {
    /// Unique in the cluster. Components of a node are prefixed with its name, as in `n1/kubelet`.
    pub name: String,
    /// Written before every start.
    pub files: Vec<ConfigFile>,
    /// Executed in front of `command`, to enter namespaces or switch the user.
    pub wrapper: Vec<OsString>,
    pub command: Vec<OsString>,
    pub environment: Vec<(String, String)>,
    /// Started only when all of these are ready; stopped before any of them.
    pub depends_on: Vec<String>,
    pub kind: Kind,
    pub stop_signal: StopSignal,
    pub cgroup: Option<Cgroup>,
    /// The node it belongs to, if any. It is removed together with the node.
    pub node: Option<NodeIndex>,
}

#[derive(Clone, Debug)]
pub enum Kind {
    /// A long-running process; ready when the probe succeeds.
    Service(Probe),
    /// Runs to completion; ready when it exited with code 0.
    OneShot,
}

/// The signal that stops a component, and the grace period before SIGKILL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum StopSignal {
    Terminate {
        seconds: u64,
    },
    /// PostgreSQL's fast shutdown: disconnects clients and keeps committed data.
    Interrupt {
        seconds: u64,
    },
}

impl StopSignal {
    pub fn signal(self) -> Signal {
        match self {
            Self::Terminate { .. } => Signal::TERM,
            Self::Interrupt { .. } => Signal::INT,
        }
    }

    pub fn grace_period(self) -> Duration {
        let (Self::Terminate { seconds } | Self::Interrupt { seconds }) = self;
        Duration::from_secs(seconds)
    }
}

#[derive(Clone, Debug)]
pub struct ConfigFile {
    pub path: PathBuf,
    pub text: String,
    pub mode: u32,
}

impl ConfigFile {
    pub fn write(&self) -> anyhow::Result<()> {
        crate::fs::write_atomic(&self.path, &self.text, self.mode)
    }
}

impl Component {
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            files: Vec::new(),
            wrapper: Vec::new(),
            command: Vec::new(),
            environment: Vec::new(),
            depends_on: Vec::new(),
            kind: Kind::OneShot,
            stop_signal: StopSignal::Terminate { seconds: 10 },
            cgroup: None,
            node: None,
        }
    }

    #[must_use]
    pub fn command<T: Into<OsString>>(mut self, arguments: impl IntoIterator<Item = T>) -> Self {
        self.command.extend(arguments.into_iter().map(Into::into));
        self
    }

    #[must_use]
    pub fn wrapper<T: Into<OsString>>(mut self, arguments: impl IntoIterator<Item = T>) -> Self {
        self.wrapper.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// Adds `--name=value`, the form that all Kubernetes components accept.
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
        self.files.push(ConfigFile { path, text: text.into(), mode: 0o644 });
        self
    }

    #[must_use]
    pub fn depends_on(mut self, component: impl Into<String>) -> Self {
        self.depends_on.push(component.into());
        self
    }

    /// Makes it a service with this readiness probe.
    #[must_use]
    pub fn ready(mut self, probe: Probe) -> Self {
        self.kind = Kind::Service(probe);
        self
    }

    #[must_use]
    pub fn stop_signal(mut self, stop_signal: StopSignal) -> Self {
        self.stop_signal = stop_signal;
        self
    }

    #[must_use]
    pub fn cgroup(mut self, cgroup: Option<Cgroup>) -> Self {
        self.cgroup = cgroup;
        self
    }

    /// Hashes everything whose change requires a restart: command, environment and files.
    pub fn fingerprint(&self) -> String {
        let mut hash = Sha256::new();
        for argument in self.wrapper.iter().chain(&self.command) {
            hash.update(argument.as_encoded_bytes());
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
    fn fingerprint_depends_only_on_command_environment_and_files() {
        let component =
            || Component::new("c").command(["run"]).flag("a", 1).environment("E", "1").file("/f".into(), "text");
        let base = component().fingerprint();
        assert_eq!(component().depends_on("other").fingerprint(), base);
        for other in [
            component().flag("b", 2),
            component().environment("F", "1"),
            component().file("/g".into(), ""),
            Component::new("c").command(["run", "--a=1"]),
        ] {
            assert_ne!(other.fingerprint(), base);
        }
    }
}
