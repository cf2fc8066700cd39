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

    /// Whether this very process is there. Where nobody can tell, it is believed to be.
    pub fn is_there(&self) -> bool {
        let now = start_ticks(self.pid);
        self.start_ticks.is_none() || now.is_none() || self.start_ticks == now
    }
}

/// Field 22 of `/proc/PID/stat`.
fn start_ticks(pid: u32) -> Option<u64> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything; what follows the last one is plain.
    let after_name = stat.iter().rposition(|byte| *byte == b')')?;
    let plain = std::str::from_utf8(&stat[after_name + 1..]).ok()?;
    plain.split_ascii_whitespace().nth(19)?.parse().ok()
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
}
