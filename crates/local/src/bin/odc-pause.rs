//! Process of a pod sandbox: holds the namespaces, reaps orphans and exits on a signal.

use rustix::process::{WaitOptions, wait};
use tokio::signal::unix::{SignalKind, signal};

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    let mut children = signal(SignalKind::child())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    loop {
        tokio::select! {
            // One signal may stand for several exited children.
            _ = children.recv() => while matches!(wait(WaitOptions::NOHANG), Ok(Some(_))) {},
            _ = terminate.recv() => return Ok(()),
            _ = interrupt.recv() => return Ok(()),
        }
    }
}
