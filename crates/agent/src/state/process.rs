//! Tells the `init` that wrote a state from one of an earlier life of the container: both were process 1, and the file
//! may outlive a restart.

use std::fs;

use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Process {
    pub pid: u32,
    /// When it was started, in clock ticks since the node was. Absent where `/proc` is not mounted.
    pub start_ticks: Option<u64>,
}

impl Process {
    pub fn own() -> Self {
        let pid = std::process::id();
        Self { pid, start_ticks: start_ticks(pid) }
    }

    /// Process 1, which is there as long as the container.
    pub fn init() -> Self {
        Self { pid: 1, start_ticks: start_ticks(1) }
    }

    /// The process that has this number now.
    pub fn of(pid: u32) -> Option<Self> {
        start_ticks(pid).map(|ticks| Self { pid, start_ticks: Some(ticks) })
    }

    /// Whether this very process still runs, beyond doubt: one that only waits to be reaped does not.
    pub fn runs(&self) -> bool {
        let dead = matches!(fields(self.pid).as_deref().and_then(|fields| fields.first()), None | Some(b'Z' | b'X'));
        !dead && Self::of(self.pid) == Some(*self)
    }

    /// Whether this very process is there. Where nobody can tell, it is believed to be.
    pub fn is_there(&self) -> bool {
        let now = start_ticks(self.pid);
        self.start_ticks.is_none() || now.is_none() || self.start_ticks == now
    }
}

/// Field 22 of `/proc/PID/stat`.
fn start_ticks(pid: u32) -> Option<u64> {
    let fields = fields(pid)?;
    std::str::from_utf8(&fields).ok()?.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// What `/proc/PID/stat` says from the third field on. The name in parentheses before it may hold anything.
fn fields(pid: u32) -> Option<Vec<u8>> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let after_name = stat.iter().rposition(|byte| *byte == b')')?;
    Some(stat[after_name + 1..].trim_ascii().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_told_from_its_predecessor() {
        let own = Process::own();
        let ticks = own.start_ticks.expect("/proc is mounted");
        assert!(own.is_there());
        assert!(!Process { start_ticks: Some(ticks + 1), ..own }.is_there());
        assert!(Process { start_ticks: None, ..own }.is_there());
    }

    #[test]
    fn one_that_only_waits_to_be_reaped_does_not_run() {
        assert!(Process::own().runs());
        assert!(!Process { start_ticks: None, ..Process::own() }.runs());
        let mut child = std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let process = Process::of(child.id()).unwrap();
        assert!(process.runs());
        drop(child.stdin.take());
        while process.runs() {
            std::thread::yield_now();
        }
        assert!(process.is_there(), "it is still to be reaped");
        child.wait().unwrap();
        assert_eq!(Process::of(process.pid), None);
    }
}
