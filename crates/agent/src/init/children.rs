//! The processes that process 1 answers for: its own, whose end matters, and everybody's orphans, which are only reaped.
//!
//! One thread starts and reaps, so a child is known before its end can be seen, and its number belongs to nobody else
//! until we have reaped it.

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

use crate::init::life::Role;

/// Between two looks at the signals. A server that makes orphans faster than they are reaped must still be stoppable.
const BATCH: usize = 512;

#[derive(Debug, Default)]
pub struct Children {
    own: Vec<(Pid, Role)>,
    /// The last look ended before there was nothing to see.
    pub more: bool,
}

impl Children {
    /// In a process group of its own, with our environment.
    pub fn start(&mut self, role: Role, command: &mut Command) -> io::Result<()> {
        let child = command.process_group(0).spawn()?;
        self.own.push((Pid::from_child(&child), role));
        Ok(())
    }

    pub fn signal(&self, role: Role, signal: Signal) {
        for pid in self.of(role) {
            // It is there until we reap it, and ours to signal unless it became another user's.
            let _ = kill_process(pid, signal);
        }
    }

    /// With its process group.
    pub fn kill(&self, role: Role) {
        for pid in self.of(role) {
            let _ = kill_process_group(pid, Signal::KILL);
        }
    }

    /// Takes note of all that ended, and tells about our own.
    pub fn reap(&mut self) -> Vec<(Role, Outcome)> {
        let mut ended = Vec::new();
        self.more = false;
        for _ in 0..BATCH {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) => {
                    if let Some(place) = self.own.iter().position(|(own, _)| *own == pid) {
                        let (_, role) = self.own.swap_remove(place);
                        ended.push((role, outcome(status)));
                    }
                }
                // There are none that have ended, or none at all.
                Ok(None) | Err(_) => return ended,
            }
        }
        self.more = true;
        ended
    }

    fn of(&self, role: Role) -> impl Iterator<Item = Pid> {
        self.own.iter().filter(move |(_, other)| *other == role).map(|(pid, _)| *pid)
    }
}

/// Asks every process in the container to end. A stopped one could not hear it, so all are told to go on.
pub fn terminate_all() {
    everyone(Signal::TERM);
    everyone(Signal::CONT);
}

pub fn kill_all() {
    everyone(Signal::KILL);
}

/// Whether nobody is left whom we could ask. Those of another user that we may not signal never heard that they should
/// end, so they are not waited for; the kernel kills all that a process 1 leaves behind.
pub fn all_ended() -> bool {
    if test_kill_process_group(Pid::INIT) == Err(Errno::SRCH) {
        return true;
    }
    // The kernel says yes even if it means only such as those.
    let Ok(processes) = fs::read_dir("/proc") else { return false };
    let pids = processes.flatten().filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?));
    !pids.filter(|pid| !pid.is_init()).any(|pid| test_kill_process(pid).is_ok())
}

/// The group of process 1 stands for all processes but us, as the kernel has it. That we are process 1 was checked at the
/// start; anywhere else this would end more than a server.
fn everyone(signal: Signal) {
    // No process left is what is wanted.
    let _ = kill_process_group(Pid::INIT, signal);
}

fn outcome(status: WaitStatus) -> Outcome {
    match (status.exit_status(), status.terminating_signal()) {
        (None, Some(signal)) => Outcome::Signal(signal),
        (code, _) => Outcome::Code(code.unwrap_or_default()),
    }
}
