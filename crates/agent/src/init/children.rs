//! Child processes of PID 1: its own, whose outcome matters, and adopted orphans, which are only reaped.
//!
//! One thread starts and reaps, so a child is registered before its exit can be seen, and its PID is not reused before
//! it is reaped.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use odc_control::Outcome;
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, kill_process, kill_process_group, test_kill_process, test_kill_process_group,
    wait,
};

use crate::init::state_machine::Role;

/// Children reaped before signals are checked again. A server that creates orphans faster than they are reaped must
/// still react to a stop request.
const REAP_BATCH: usize = 512;

#[derive(Debug, Default)]
pub struct Children {
    own: Vec<(Pid, Role)>,
    /// The last call of [`Self::reap`] stopped at its batch limit.
    pub more: bool,
}

impl Children {
    /// Starts a child in its own process group.
    pub fn start(&mut self, role: Role, command: &mut Command) -> io::Result<()> {
        let child = command.process_group(0).spawn()?;
        self.own.push((Pid::from_child(&child), role));
        Ok(())
    }

    pub fn signal(&self, role: Role, signal: Signal) {
        for pid in self.pids(role) {
            // Fails only if the process has changed its user.
            let _ = kill_process(pid, signal);
        }
    }

    /// Kills the process group of a child.
    pub fn kill(&self, role: Role) {
        for pid in self.pids(role) {
            let _ = kill_process_group(pid, Signal::KILL);
        }
    }

    /// Reaps exited children and returns the outcomes of the own ones.
    pub fn reap(&mut self) -> Vec<(Role, Outcome)> {
        let mut exited = Vec::new();
        self.more = false;
        for _ in 0..REAP_BATCH {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) => {
                    if let Some(index) = self.own.iter().position(|(own, _)| *own == pid) {
                        let (_, role) = self.own.swap_remove(index);
                        exited.push((role, outcome(status)));
                    }
                }
                // No child has exited, or there are no children.
                Ok(None) | Err(_) => return exited,
            }
        }
        self.more = true;
        exited
    }

    fn pids(&self, role: Role) -> impl Iterator<Item = Pid> {
        self.own.iter().filter(move |(_, other)| *other == role).map(|(pid, _)| *pid)
    }
}

/// Sends SIGTERM to every process in the container, and SIGCONT, because a stopped process does not handle signals.
pub fn terminate_all() {
    signal_all(Signal::TERM);
    signal_all(Signal::CONT);
}

pub fn kill_all() {
    signal_all(Signal::KILL);
}

/// Reports whether no process remains that this process may signal. Processes of other users never received SIGTERM, so
/// they are not waited for; the kernel kills them when PID 1 exits.
pub fn all_exited() -> bool {
    if test_kill_process_group(Pid::INIT) == Err(Errno::SRCH) {
        return true;
    }
    // The test also succeeds if only processes of other users remain.
    let Ok(processes) = fs::read_dir("/proc") else { return false };
    let pids = processes.flatten().filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?));
    !pids.filter(|pid| !pid.is_init()).any(|pid| test_kill_process(pid).is_ok())
}

/// `kill(-1, signal)` from PID 1 reaches every other process of the PID namespace. That this is PID 1 was
/// checked at startup.
fn signal_all(signal: Signal) {
    // Fails if no process is left.
    let _ = kill_process_group(Pid::INIT, signal);
}

fn outcome(status: WaitStatus) -> Outcome {
    match (status.exit_status(), status.terminating_signal()) {
        (None, Some(signal)) => Outcome::Signal(signal),
        (code, _) => Outcome::Code(code.unwrap_or_default()),
    }
}
