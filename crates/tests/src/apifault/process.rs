//! The client as a process, to be killed or stopped.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// A killed process is gone in milliseconds, unless the kernel holds it.
const DEATH: Duration = Duration::from_secs(30);

/// Held by a descriptor, so that no signal ever reaches another process that was given the same number.
#[derive(Debug)]
pub struct Process {
    descriptor: Arc<OwnedFd>,
}

impl Process {
    pub fn open(pid: u32) -> anyhow::Result<Self> {
        let raw = i32::try_from(pid).ok().and_then(Pid::from_raw).with_context(|| format!("{pid} is no process"))?;
        let descriptor = pidfd_open(raw, PidfdFlags::empty()).with_context(|| format!("opening process {pid}"))?;
        Ok(Self { descriptor: Arc::new(descriptor) })
    }

    /// Returns when it is dead, so that it can do nothing with what happens next.
    pub async fn kill(&self) -> anyhow::Result<()> {
        self.signal(Signal::KILL)?;
        let descriptor = Arc::clone(&self.descriptor);
        tokio::task::spawn_blocking(move || wait(&descriptor)).await?
    }

    pub fn stop(&self) -> anyhow::Result<()> {
        self.signal(Signal::STOP)
    }

    pub fn resume(&self) -> anyhow::Result<()> {
        self.signal(Signal::CONT)
    }

    fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        match pidfd_send_signal(&*self.descriptor, signal) {
            // Ended by itself.
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(error) => Err(error).context("sending a signal to the client"),
        }
    }
}

/// A descriptor of a process becomes readable when the process ends.
fn wait(descriptor: &OwnedFd) -> anyhow::Result<()> {
    let limit = Timespec::try_from(DEATH)?;
    let mut watched = [PollFd::new(descriptor, PollFlags::IN)];
    let ended = rustix::io::retry_on_intr(|| poll(&mut watched, Some(&limit)))?;
    anyhow::ensure!(ended > 0, "the client is still there {} s after it was killed", DEATH.as_secs());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_killed_process_is_dead_at_once() {
        let mut child = tokio::process::Command::new("sleep").arg("60").spawn().unwrap();
        let process = Process::open(child.id().unwrap()).unwrap();
        process.kill().await.unwrap();
        assert!(child.try_wait().unwrap().is_some());
        // Once more does no harm.
        process.kill().await.unwrap();
    }
}
