//! A process started by this supervisor or an earlier one.
//!
//! It is referred to by a pidfd, so a reused process ID is never mistaken for it, and a process that is not a child can
//! be waited for like one.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context as _;
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal, waitid};
use serde::{Deserialize, Serialize};
use tokio::io::unix::AsyncFd;

use crate::component::{Component, StopSignal};

/// Environment variable that identifies the process of a component. The log path distinguishes clusters.
const MARKER_ENV: &str = "ODC_COMPONENT";

fn marker(component: &Component, log: &Path) -> String {
    format!("{}@{}", component.name, log.display())
}

#[derive(Debug)]
pub struct Process {
    pid: Pid,
    handle: AsyncFd<OwnedFd>,
}

/// How a process exited. Unknown for adopted processes, which are not children.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    Code(i32),
    Signal(i32),
    Unknown,
}

impl std::fmt::Display for Exit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit code {code}"),
            Self::Signal(signal) => write!(f, "signal {signal}"),
            Self::Unknown => f.write_str("unknown status"),
        }
    }
}

/// Persisted description of a running component, from which a later supervisor or `down` adopts or stops it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    pub name: String,
    pub pid: i32,
    /// With the boot ID, distinguishes the process from every other with the same process ID.
    started_ticks: u64,
    boot: String,
    /// Of the component as it was started. A different one requires a restart.
    pub fingerprint: String,
    pub depends_on: Vec<String>,
    pub stop_signal: StopSignal,
}

impl Process {
    /// Starts the component and appends its output to `log`.
    pub fn start(component: &Component, log: &Path) -> anyhow::Result<Self> {
        for file in &component.files {
            file.write()?;
        }
        let command: Vec<_> = component.wrapper.iter().chain(&component.command).collect();
        let (program, arguments) = command.split_first().context("a component has a command")?;
        if let Some(directory) = log.parent() {
            std::fs::create_dir_all(directory).with_context(|| format!("creating {}", directory.display()))?;
        }
        let output = File::options()
            .create(true)
            .append(true)
            .open(log)
            .with_context(|| format!("opening {}", log.display()))?;
        let child = Command::new(program)
            .args(arguments)
            .env(MARKER_ENV, marker(component, log))
            .envs(component.environment.iter().map(|(name, value)| (name, value)))
            // These would change the behavior of a component.
            .env_remove("KUBECONFIG")
            .env_remove("NOTIFY_SOCKET")
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .with_context(|| format!("starting {} ({})", component.name, program.display()))?;
        let pid = Pid::from_child(&child);
        let process = Self::open(pid)?;
        if let Some(cgroup) = &component.cgroup {
            cgroup.enter(pid).with_context(|| format!("moving {} into its cgroup", component.name))?;
        }
        Ok(process)
    }

    /// Kills processes of this component without a record, left by a supervisor that was killed between start and record.
    pub async fn kill_orphans(component: &Component, log: &Path) -> anyhow::Result<()> {
        let marker = format!("{MARKER_ENV}={}", marker(component, log)).into_bytes();
        // Compare the command line too: containerd shims inherit the environment but must survive.
        let command: Vec<u8> =
            component.command.iter().flat_map(|argument| [argument.as_encoded_bytes(), b"\0"].concat()).collect();
        for entry in std::fs::read_dir("/proc").context("reading /proc")?.flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| Pid::from_raw(name.parse().ok()?)) else {
                continue;
            };
            let read = |file: &str| std::fs::read(entry.path().join(file)).unwrap_or_default();
            if read("cmdline") == command && read("environ").split(|byte| *byte == 0).any(|variable| variable == marker)
            {
                // It may have exited since.
                if let Ok(orphan) = Self::open(pid) {
                    orphan.signal(Signal::KILL)?;
                    orphan.wait().await;
                }
            }
        }
        Ok(())
    }

    /// Returns the recorded process if it is still running.
    pub fn adopt(record: &Record) -> Option<Self> {
        let process = Self::open(Pid::from_raw(record.pid)?).ok()?;
        // Check after opening the pidfd, which from then on refers to one process only.
        (boot_id().ok()? == record.boot && started_ticks(record.pid).ok()? == record.started_ticks).then_some(process)
    }

    fn open(pid: Pid) -> io::Result<Self> {
        let handle = pidfd_open(pid, PidfdFlags::NONBLOCK)?;
        #[expect(
            deprecated,
            reason = "the replacement is unsafe because a handle may change its descriptor; an OwnedFd does not"
        )]
        let handle = AsyncFd::with_interest(handle, tokio::io::Interest::READABLE)?;
        Ok(Self { pid, handle })
    }

    pub fn pid(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    /// Returns `None` if the process has already exited.
    pub fn record(&self, component: &Component) -> anyhow::Result<Option<Record>> {
        let Ok(started_ticks) = started_ticks(self.pid()) else { return Ok(None) };
        Ok(Some(Record {
            name: component.name.clone(),
            pid: self.pid(),
            started_ticks,
            boot: boot_id()?,
            fingerprint: component.fingerprint(),
            depends_on: component.depends_on.clone(),
            stop_signal: component.stop_signal,
        }))
    }

    /// Waits until the process exits. Cancel safe.
    pub async fn wait(&self) -> Exit {
        // A pidfd becomes and stays readable when the process exits. An error means that it has exited, too.
        let _ = self.handle.readable().await;
        match waitid(WaitId::PidFd(self.handle.get_ref().as_fd()), WaitIdOptions::EXITED | WaitIdOptions::NOHANG) {
            Ok(Some(status)) => match (status.exit_status(), status.terminating_signal()) {
                (Some(code), _) => Exit::Code(code),
                (None, Some(signal)) => Exit::Signal(signal),
                (None, None) => Exit::Unknown,
            },
            Ok(None) | Err(_) => Exit::Unknown,
        }
    }

    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        match pidfd_send_signal(self.handle.get_ref(), signal) {
            Err(rustix::io::Errno::SRCH) => Ok(()),
            other => Ok(other?),
        }
    }

    /// Sends the stop signal, and SIGKILL after the grace period.
    pub async fn stop(&self, stop_signal: StopSignal) -> io::Result<Exit> {
        self.signal(stop_signal.signal())?;
        if let Ok(exit) = tokio::time::timeout(stop_signal.grace_period(), self.wait()).await {
            return Ok(exit);
        }
        self.signal(Signal::KILL)?;
        Ok(self.wait().await)
    }
}

impl Record {
    pub fn path(directory: &Path, name: &str) -> PathBuf {
        directory.join(format!("{}.json", name.replace('/', "-")))
    }

    pub fn store(&self, directory: &Path) -> anyhow::Result<()> {
        crate::fs::write_atomic(&Self::path(directory, &self.name), serde_json::to_vec(self)?, 0o644)
    }

    pub fn load(directory: &Path, name: &str) -> Option<Self> {
        serde_json::from_slice(&std::fs::read(Self::path(directory, name)).ok()?).ok()
    }

    /// Returns all records in the directory. Unreadable files are left from an interrupted start and skipped.
    pub fn load_all(directory: &Path) -> Vec<Self> {
        let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
        entries.filter_map(|entry| serde_json::from_slice(&std::fs::read(entry.ok()?.path()).ok()?).ok()).collect()
    }

    /// Returns the start time of the process with a precision of one second.
    pub fn started_at(&self) -> anyhow::Result<jiff::Timestamp> {
        let stat = std::fs::read_to_string("/proc/stat").context("reading /proc/stat")?;
        let boot = stat.lines().find_map(|line| line.strip_prefix("btime ")).context("no boot time in /proc/stat")?;
        let since_boot = self.started_ticks / rustix::param::clock_ticks_per_second();
        Ok(jiff::Timestamp::from_second(boot.trim().parse::<i64>()? + i64::try_from(since_boot)?)?)
    }

    pub fn remove(directory: &Path, name: &str) {
        // It may already be removed.
        let _ = std::fs::remove_file(Self::path(directory, name));
    }
}

/// Returns the resident memory of a process in bytes, without its children.
pub fn resident_memory(pid: u32) -> anyhow::Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("/proc/PID/status has VmRSS")?;
    Ok(line.trim().trim_end_matches("kB").trim().parse::<u64>()? << 10)
}

/// Runs a command and returns its standard output. The error contains the command and its standard error.
pub async fn run(program: &str, arguments: &[&str]) -> anyhow::Result<String> {
    let output =
        tokio::process::Command::new(program).args(arguments).stdin(Stdio::null()).kill_on_drop(true).output().await;
    let output = match output {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(crate::error::Error::CommandNotFound { command: program.into() }.into());
        }
        other => other.with_context(|| format!("running {program}"))?,
    };
    anyhow::ensure!(
        output.status.success(),
        "`{program} {}` failed ({}): {}",
        arguments.join(" "),
        output.status,
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn boot_id() -> anyhow::Result<String> {
    Ok(std::fs::read_to_string("/proc/sys/kernel/random/boot_id").context("reading the boot ID")?.trim().into())
}

/// Returns the start time in clock ticks since boot, field 22 of `/proc/PID/stat`.
fn started_ticks(pid: i32) -> anyhow::Result<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name in parentheses may itself contain parentheses, so split at the last one.
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let mut fields = after_name.split_ascii_whitespace();
    anyhow::ensure!(fields.next() != Some("Z"), "process {pid} has exited");
    Ok(fields.nth(18).context("/proc/PID/stat has too few fields")?.parse()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sleeper(command: &[&str]) -> Component {
        Component::new("sleeper").command(command.iter().copied())
    }

    #[tokio::test]
    async fn recorded_process_is_adopted_and_its_exit_is_reported() {
        let directory = tempfile::tempdir().unwrap();
        let component = sleeper(&["sleep", "60"]);
        let started = Process::start(&component, &directory.path().join("log")).unwrap();
        started.record(&component).unwrap().unwrap().store(directory.path()).unwrap();

        let record = Record::load(directory.path(), "sleeper").unwrap();
        let adopted = Process::adopt(&record).expect("the process is running");
        assert_eq!(adopted.pid(), started.pid());
        started.signal(Signal::KILL).unwrap();
        assert_eq!(started.wait().await, Exit::Signal(9));
        assert_eq!(adopted.wait().await, Exit::Unknown);
        assert!(Process::adopt(&record).is_none());
    }

    #[tokio::test]
    async fn process_with_other_start_time_or_boot_id_is_not_adopted() {
        let directory = tempfile::tempdir().unwrap();
        let component = sleeper(&["sleep", "60"]);
        let process = Process::start(&component, &directory.path().join("log")).unwrap();
        let record = process.record(&component).unwrap().unwrap();
        assert!(Process::adopt(&Record { started_ticks: record.started_ticks + 1, ..record.clone() }).is_none());
        assert!(Process::adopt(&Record { boot: "an earlier one".into(), ..record }).is_none());
        process.stop(component.stop_signal).await.unwrap();
    }

    #[tokio::test]
    async fn process_ignoring_the_stop_signal_is_killed_after_the_grace_period() {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("log");
        let component = sleeper(&["sh", "-c", "trap '' TERM; echo ready; while :; do sleep 1; done"])
            .stop_signal(StopSignal::Terminate { seconds: 0 });
        let process = Process::start(&component, &log).unwrap();
        while !std::fs::read_to_string(&log).unwrap().contains("ready") {
            tokio::task::yield_now().await;
        }
        assert_eq!(process.stop(component.stop_signal).await.unwrap(), Exit::Signal(9));
    }
}
