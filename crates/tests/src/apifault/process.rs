//! The client process, as the target of signals.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// A killed process exits within milliseconds, unless it is in an uninterruptible sleep.
const EXIT_TIMEOUT: Duration = Duration::from_secs(30);

/// Refers to the process by a pidfd, so that a signal never reaches another process with a reused pid.
#[derive(Debug)]
pub struct Process {
    pidfd: Arc<OwnedFd>,
}

impl Process {
    pub fn open(pid: u32) -> anyhow::Result<Self> {
        let raw =
            i32::try_from(pid).ok().and_then(Pid::from_raw).with_context(|| format!("{pid} is not a valid pid"))?;
        let pidfd = pidfd_open(raw, PidfdFlags::empty()).with_context(|| format!("opening process {pid}"))?;
        Ok(Self { pidfd: Arc::new(pidfd) })
    }

    /// Sends SIGKILL and waits for the exit, so that the client cannot act on anything that happens later.
    pub async fn kill(&self) -> anyhow::Result<()> {
        self.signal(Signal::KILL)?;
        let pidfd = Arc::clone(&self.pidfd);
        tokio::task::spawn_blocking(move || wait(&pidfd)).await?
    }

    pub fn stop(&self) -> anyhow::Result<()> {
        self.signal(Signal::STOP)
    }

    pub fn resume(&self) -> anyhow::Result<()> {
        self.signal(Signal::CONT)
    }

    fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        match pidfd_send_signal(&*self.pidfd, signal) {
            // ESRCH: the process has exited.
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(error) => Err(error).context("sending a signal to the client"),
        }
    }
}

/// Waits for the exit: a pidfd becomes readable when its process exits.
fn wait(pidfd: &OwnedFd) -> anyhow::Result<()> {
    let timeout = Timespec::try_from(EXIT_TIMEOUT)?;
    let mut descriptors = [PollFd::new(pidfd, PollFlags::IN)];
    let ready = rustix::io::retry_on_intr(|| poll(&mut descriptors, Some(&timeout)))?;
    anyhow::ensure!(ready > 0, "the client has not exited {}s after SIGKILL", EXIT_TIMEOUT.as_secs());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn kill_returns_after_the_exit() {
        let mut child = tokio::process::Command::new("sleep").arg("60").spawn().unwrap();
        let process = Process::open(child.id().unwrap()).unwrap();
        process.kill().await.unwrap();
        assert!(child.try_wait().unwrap().is_some());
        // A second kill succeeds.
        process.kill().await.unwrap();
    }
}
