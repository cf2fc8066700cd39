//! The socket for helpers inside the server, such as `odc-status`. It speaks as the operator's subsystem does, but
//! everybody in the server may use it, so it takes only what a user may say and know.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use odc_control::{Reply, Request};
use rustix::process::getuid;
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
                // Of whom nobody knows who it is, is a stranger.
                let who = stream.peer_cred().map_or(Who::Stranger, |peer| Who::of(peer.uid(), getuid().as_raw()));
                tokio::spawn(async move {
                    // What goes wrong is the helper's business; it tells its user.
                    let _ = timeout(LONGEST, converse(stream, |request| answer(request, who, &served))).await;
                    drop(place);
                });
            }
            // Too many files are open, which passes.
            Err(_) => sleep(Duration::from_millis(100)).await,
        }
    }
}

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    /// The server's own user, or root, from whom nothing can be kept anyway.
    Own,
    Stranger,
}

impl Who {
    fn of(uid: u32, own: u32) -> Self {
        if uid == own || uid == 0 { Self::Own } else { Self::Stranger }
    }

    /// What opens the notebook server, which runs as the server's own user, is for nobody else.
    fn may_see(self, reply: Reply) -> Reply {
        match (self, reply) {
            (Self::Stranger, Reply::Status(mut status)) => {
                status.jupyter.token = None;
                Reply::Status(status)
            }
            (_, reply) => reply,
        }
    }
}

async fn answer(request: Request, who: Who, served: &Arc<Served>) -> Reply {
    match request {
        Request::Status => who.may_see(control::answer(request, served).await),
        Request::Signals | Request::KeepAlive { .. } | Request::Heartbeat { .. } => {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;
    use odc_control::Status;

    #[test]
    fn only_the_servers_own_user_and_root_learn_what_opens_the_notebook() {
        for (uid, sees) in [(1000, true), (0, true), (1001, false), (65534, false)] {
            let status = Status { jupyter: fixtures::jupyter(), ..fixtures::status() };
            let Reply::Status(seen) = Who::of(uid, 1000).may_see(Reply::Status(Box::new(status))) else { panic!() };
            assert_eq!(seen.jupyter.token.is_some(), sees, "{uid}");
            assert_eq!(seen.jupyter.port, Some(8888));
        }
    }
}
