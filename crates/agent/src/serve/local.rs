//! The socket for helpers inside the server, such as `odc-status`. It speaks as the operator's subsystem does, but
//! everybody in the server may use it, so it takes only what a user may say and know.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use odc_control::{Reply, Request};
use tokio::net::UnixListener;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use crate::serve::control::{self, converse};
use crate::serve::served::Served;

/// In the state directory.
pub const SOCKET: &str = "agent.sock";

/// Helpers at a time; others wait.
const MOST: usize = 32;
/// A helper asks and is gone.
const LONGEST: Duration = Duration::from_secs(60);

/// What an earlier one left is taken away.
pub fn listen(state: &Path) -> io::Result<UnixListener> {
    let path = state.join(SOCKET);
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(&path)?;
    // People may be another user than the agent, such as root by `sudo`.
    fs::set_permissions(&path, Permissions::from_mode(0o666))?;
    Ok(listener)
}

pub async fn serve(listener: UnixListener, served: Arc<Served>) {
    let places = Arc::new(Semaphore::new(MOST));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let served = Arc::clone(&served);
                tokio::spawn(async move {
                    // What goes wrong is the helper's business; it tells its user.
                    let _ = timeout(LONGEST, converse(stream, |request| answer(request, &served))).await;
                    drop(place);
                });
            }
            // Too many files are open, which passes.
            Err(_) => sleep(Duration::from_millis(100)).await,
        }
    }
}

async fn answer(request: Request, served: &Arc<Served>) -> Reply {
    match request {
        Request::Status | Request::Signals | Request::KeepAlive { .. } | Request::Heartbeat { .. } => {
            control::answer(request, served).await
        }
        Request::SetDeadline { .. }
        | Request::Notify { .. }
        | Request::SetAccess(_)
        | Request::Jupyter { .. }
        | Request::Quiesce { .. }
        | Request::Stats
        | Request::TellIdle { .. } => Reply::refused("only the operator may ask for this"),
    }
}
