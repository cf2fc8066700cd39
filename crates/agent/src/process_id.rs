//! Identifies a process by its PID and start time (`/proc/PID/stat`), so that a reused PID is not mistaken for it.

use std::fs;

use serde::{Deserialize, Serialize};

/// The running executable, even if its file was replaced.
pub const SELF_EXE: &str = "/proc/self/exe";

/// A process ID with the start time of the process, so that a reused PID is not mistaken for the same process.
///
/// Files in the state directory identify PID 1 this way: they may outlive a restart of the container, and PID 1
/// has the same PID in every run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProcessId {
    pub pid: u32,
    /// Clock ticks between the boot of the node and the start of the process. Absent where `/proc` is not mounted.
    pub start_ticks: Option<u64>,
}

impl ProcessId {
    pub fn current() -> Self {
        let pid = std::process::id();
        Self { pid, start_ticks: start_ticks(pid) }
    }

    /// Returns PID 1, which exists as long as the container.
    pub fn init() -> Self {
        Self { pid: 1, start_ticks: start_ticks(1) }
    }

    /// Returns the process that has this PID now.
    pub fn of_pid(pid: u32) -> Option<Self> {
        start_ticks(pid).map(|ticks| Self { pid, start_ticks: Some(ticks) })
    }

    /// Reports whether the process is known to run. A zombie does not run.
    pub fn is_running(&self) -> bool {
        let state = read_stat(self.pid).as_deref().and_then(split_stat).and_then(|(_, fields)| fields.bytes().next());
        !matches!(state, None | Some(b'Z' | b'X')) && Self::of_pid(self.pid) == Some(*self)
    }

    /// Reports whether the process exists, or may exist where `/proc` does not tell.
    pub fn may_exist(&self) -> bool {
        let now = start_ticks(self.pid);
        self.start_ticks.is_none() || now.is_none() || self.start_ticks == now
    }
}

/// Splits the content of `/proc/PID/stat` into the name and the fields from the third on. The name is in parentheses
/// and may contain any byte, including parentheses.
pub fn split_stat(stat: &[u8]) -> Option<(&[u8], &str)> {
    let open = stat.iter().position(|byte| *byte == b'(')?;
    let close = stat.iter().rposition(|byte| *byte == b')').filter(|close| *close > open)?;
    let fields = std::str::from_utf8(&stat[close + 1..]).ok()?;
    Some((&stat[open + 1..close], fields.trim_ascii_start()))
}

/// Returns field 22 of `/proc/PID/stat`.
fn start_ticks(pid: u32) -> Option<u64> {
    split_stat(&read_stat(pid)?)?.1.split_ascii_whitespace().nth(19)?.parse().ok()
}

fn read_stat(pid: u32) -> Option<Vec<u8>> {
    fs::read(format!("/proc/{pid}/stat")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_with_another_start_time_is_another_process() {
        let current = ProcessId::current();
        let ticks = current.start_ticks.expect("/proc is mounted");
        assert!(current.may_exist());
        assert!(!ProcessId { start_ticks: Some(ticks + 1), ..current }.may_exist());
        assert!(ProcessId { start_ticks: None, ..current }.may_exist());
    }

    #[test]
    fn zombie_does_not_run() {
        assert!(ProcessId::current().is_running());
        assert!(!ProcessId { start_ticks: None, ..ProcessId::current() }.is_running());
        let mut child = std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let process = ProcessId::of_pid(child.id()).unwrap();
        assert!(process.is_running());
        drop(child.stdin.take());
        while process.is_running() {
            std::thread::yield_now();
        }
        assert!(process.may_exist(), "it is not reaped yet");
        child.wait().unwrap();
        assert_eq!(ProcessId::of_pid(process.pid), None);
    }
}
