//! One process we started, in this life or an earlier one.
//!
//! Held by a pidfd, so a reused process id is never mistaken for it, and a process started by a supervisor that is
//! long gone is watched exactly like a child.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal, waitid};
use serde::{Deserialize, Serialize};
use tokio::io::unix::AsyncFd;

use crate::part::{Ending, Part};

/// Names the part in the environment of its process; the log tells one cloud's part from another's.
const MARK: &str = "ODC_PART";

fn mark(part: &Part, log: &Path) -> String {
    format!("{}@{}", part.name, log.display())
}

#[derive(Debug)]
pub struct Process {
    pid: Pid,
    handle: AsyncFd<OwnedFd>,
}

/// How it ended. An adopted process is not our child, so the kernel does not tell us.
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
            Self::Unknown => f.write_str("ended"),
        }
    }
}

/// What is written down about a running part, enough for a later supervisor or `down` to find it and end it in order.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    pub name: String,
    pub pid: i32,
    /// With the boot id this tells the process from any other that ever had its number.
    started_ticks: u64,
    boot: String,
    /// Of the part as it was started; another one means: restart.
    pub fingerprint: String,
    pub needs: Vec<String>,
    pub ending: Ending,
}

impl Process {
    /// Starts the part, its output appended to `log`.
    pub fn start(part: &Part, log: &Path) -> anyhow::Result<Self> {
        for file in &part.files {
            file.write()?;
        }
        let words: Vec<_> = part.wrapper.iter().chain(&part.command).collect();
        let (program, arguments) = words.split_first().context("a part needs a command")?;
        if let Some(directory) = log.parent() {
            std::fs::create_dir_all(directory).with_context(|| format!("making {}", directory.display()))?;
        }
        let output = File::options()
            .create(true)
            .append(true)
            .open(log)
            .with_context(|| format!("opening {}", log.display()))?;
        let child = Command::new(program)
            .args(arguments)
            .env(MARK, mark(part, log))
            .envs(part.environment.iter().map(|(name, value)| (name, value)))
            // These would change what a component does behind our back.
            .env_remove("KUBECONFIG")
            .env_remove("NOTIFY_SOCKET")
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .with_context(|| format!("starting {} ({})", part.name, program.display()))?;
        let pid = Pid::from_child(&child);
        let process = Self::hold(pid)?;
        if let Some(cgroup) = &part.cgroup {
            cgroup.enter(pid).with_context(|| format!("putting {} into its cgroup", part.name))?;
        }
        Ok(process)
    }

    /// Ends what was started as this part and never written down: a supervisor killed between the two left it.
    pub async fn end_strays(part: &Part, log: &Path) -> anyhow::Result<()> {
        let wanted = format!("{MARK}={}", mark(part, log)).into_bytes();
        // The shims of a runtime carry its environment too, but are other programs and live on.
        let command: Vec<u8> = part.command.iter().flat_map(|word| [word.as_encoded_bytes(), b"\0"].concat()).collect();
        for entry in std::fs::read_dir("/proc").context("reading /proc")?.flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| Pid::from_raw(name.parse().ok()?)) else {
                continue;
            };
            let read = |file: &str| std::fs::read(entry.path().join(file)).unwrap_or_default();
            if read("cmdline") == command && read("environ").split(|byte| *byte == 0).any(|variable| variable == wanted)
            {
                // It may end by itself while we look.
                if let Ok(stray) = Self::hold(pid) {
                    stray.signal(Signal::KILL)?;
                    stray.ended().await;
                }
            }
        }
        Ok(())
    }

    /// Takes over what `record` speaks of, if it still runs.
    pub fn adopt(record: &Record) -> Option<Self> {
        let process = Self::hold(Pid::from_raw(record.pid)?).ok()?;
        // Checked after the pidfd is open: from here on the number cannot be reused unseen.
        (boot_id().ok()? == record.boot && started_ticks(record.pid).ok()? == record.started_ticks).then_some(process)
    }

    fn hold(pid: Pid) -> io::Result<Self> {
        let handle = pidfd_open(pid, PidfdFlags::NONBLOCK)?;
        #[expect(
            deprecated,
            reason = "its successor is unsafe for handles that change theirs; an OwnedFd keeps its own"
        )]
        let handle = AsyncFd::with_interest(handle, tokio::io::Interest::READABLE)?;
        Ok(Self { pid, handle })
    }

    pub fn pid(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    /// Nothing if it has ended already.
    pub fn record(&self, part: &Part) -> anyhow::Result<Option<Record>> {
        let Ok(started_ticks) = started_ticks(self.pid()) else { return Ok(None) };
        Ok(Some(Record {
            name: part.name.clone(),
            pid: self.pid(),
            started_ticks,
            boot: boot_id()?,
            fingerprint: part.fingerprint(),
            needs: part.needs.clone(),
            ending: part.ending,
        }))
    }

    /// Waits for its end. Cancel safe.
    pub async fn ended(&self) -> Exit {
        // A pidfd becomes readable when the process ends and stays so; an error here would mean the same.
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

    /// Asks it to end, and after the grace makes it.
    pub async fn end(&self, ending: Ending) -> io::Result<Exit> {
        self.signal(ending.signal())?;
        if let Ok(exit) = tokio::time::timeout(ending.grace(), self.ended()).await {
            return Ok(exit);
        }
        self.signal(Signal::KILL)?;
        Ok(self.ended().await)
    }
}

impl Record {
    pub fn path(directory: &Path, name: &str) -> PathBuf {
        directory.join(format!("{}.json", name.replace('/', "-")))
    }

    pub fn store(&self, directory: &Path) -> anyhow::Result<()> {
        crate::file::write(&Self::path(directory, &self.name), serde_json::to_vec(self)?, 0o644)
    }

    pub fn load(directory: &Path, name: &str) -> Option<Self> {
        serde_json::from_slice(&std::fs::read(Self::path(directory, name)).ok()?).ok()
    }

    /// All records in the directory. A file that cannot be read is from an interrupted start and speaks of nothing.
    pub fn load_all(directory: &Path) -> Vec<Self> {
        let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
        entries.filter_map(|entry| serde_json::from_slice(&std::fs::read(entry.ok()?.path()).ok()?).ok()).collect()
    }

    /// When it was started, by the wall clock, to the second.
    pub fn started_at(&self) -> anyhow::Result<jiff::Timestamp> {
        let stat = std::fs::read_to_string("/proc/stat").context("reading /proc/stat")?;
        let boot = stat.lines().find_map(|line| line.strip_prefix("btime ")).context("no boot time in /proc/stat")?;
        let since = self.started_ticks / rustix::param::clock_ticks_per_second();
        Ok(jiff::Timestamp::from_second(boot.trim().parse::<i64>()? + i64::try_from(since)?)?)
    }

    pub fn remove(directory: &Path, name: &str) {
        // Already gone is as good.
        let _ = std::fs::remove_file(Self::path(directory, name));
    }
}

/// Runs a command to its end and gives its standard output; a failure says what was run and what it said.
pub async fn run(program: &str, arguments: &[&str]) -> anyhow::Result<String> {
    let output =
        tokio::process::Command::new(program).args(arguments).stdin(Stdio::null()).kill_on_drop(true).output().await;
    let output = match output {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(crate::problem::Problem::NoCommand { command: program.into() }.into());
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
    Ok(std::fs::read_to_string("/proc/sys/kernel/random/boot_id").context("reading the boot id")?.trim().into())
}

/// When it was started, in clock ticks since boot: field 22 of `/proc/PID/stat`.
fn started_ticks(pid: i32) -> anyhow::Result<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name in parentheses may hold anything; what follows the last one is plain.
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let mut fields = after_name.split_ascii_whitespace();
    anyhow::ensure!(fields.next() != Some("Z"), "process {pid} has ended");
    Ok(fields.nth(18).context("a short /proc/PID/stat")?.parse()?)
}

/// How long something has been going on, as people write it.
pub fn elapsed(duration: Duration) -> String {
    match duration.as_secs() {
        0..60 => format!("{:.1} s", duration.as_secs_f64()),
        seconds @ 60..3600 => format!("{} min {:02} s", seconds / 60, seconds % 60),
        seconds => format!("{} h {:02} min", seconds / 3600, seconds / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sleeper(command: &[&str]) -> Part {
        Part::new("sleeper").command(command.iter().copied())
    }

    #[tokio::test]
    async fn a_process_is_adopted_by_its_record_and_its_end_is_seen() {
        let directory = tempfile::tempdir().unwrap();
        let part = sleeper(&["sleep", "60"]);
        let started = Process::start(&part, &directory.path().join("log")).unwrap();
        started.record(&part).unwrap().unwrap().store(directory.path()).unwrap();

        let record = Record::load(directory.path(), "sleeper").unwrap();
        let adopted = Process::adopt(&record).expect("it runs");
        assert_eq!(adopted.pid(), started.pid());
        started.signal(Signal::KILL).unwrap();
        assert_eq!(started.ended().await, Exit::Signal(9));
        assert_eq!(adopted.ended().await, Exit::Unknown);
        assert!(Process::adopt(&record).is_none());
    }

    #[tokio::test]
    async fn a_reused_number_or_another_boot_is_not_adopted() {
        let directory = tempfile::tempdir().unwrap();
        let part = sleeper(&["sleep", "60"]);
        let process = Process::start(&part, &directory.path().join("log")).unwrap();
        let record = process.record(&part).unwrap().unwrap();
        assert!(Process::adopt(&Record { started_ticks: record.started_ticks + 1, ..record.clone() }).is_none());
        assert!(Process::adopt(&Record { boot: "an earlier one".into(), ..record }).is_none());
        process.end(part.ending).await.unwrap();
    }

    #[tokio::test]
    async fn what_ignores_the_signal_is_killed_after_the_grace() {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("log");
        let part = sleeper(&["sh", "-c", "trap '' TERM; echo ready; while :; do sleep 1; done"])
            .ending(Ending::Terminate { seconds: 0 });
        let process = Process::start(&part, &log).unwrap();
        while !std::fs::read_to_string(&log).unwrap().contains("ready") {
            tokio::task::yield_now().await;
        }
        assert_eq!(process.end(part.ending).await.unwrap(), Exit::Signal(9));
    }

    #[test]
    fn elapsed_time_is_readable() {
        for (seconds, text) in [(3, "3.0 s"), (61, "1 min 01 s"), (7260, "2 h 01 min")] {
            assert_eq!(elapsed(Duration::from_secs(seconds)), text);
        }
    }
}
