//! What a pod's sandbox runs: it holds the namespaces, reaps orphans, and ends when told.

use rustix::process::{WaitOptions, wait};
use tokio::signal::unix::{SignalKind, signal};

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    let mut children = signal(SignalKind::child())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    loop {
        tokio::select! {
            // Several may have ended behind one signal.
            _ = children.recv() => while matches!(wait(WaitOptions::NOHANG), Ok(Some(_))) {},
            _ = terminate.recv() => return Ok(()),
            _ = interrupt.recv() => return Ok(()),
        }
    }
}
