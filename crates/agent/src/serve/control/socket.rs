//! The Unix socket for user commands in the server, such as `odc-status`. It uses the protocol of the operator's
//! subsystem, but every user in the server has access, so it accepts only a subset of the requests.

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
use tokio::time::timeout;

use crate::serve::accept_retry::accept_retrying;
use crate::serve::context::Context;
use crate::serve::control::{self, serve_requests};

/// In the state directory.
pub const SOCKET_FILE: &str = "agent.sock";

/// Further clients wait.
const MAX_CLIENTS: usize = 32;
/// Per connection.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// Binds the socket, replacing that of a previous `serve`.
pub fn listen(state_dir: &Path) -> io::Result<UnixListener> {
    let path = state_dir.join(SOCKET_FILE);
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(&path)?;
    // Users may differ from the agent's, for example root with `sudo`.
    fs::set_permissions(&path, Permissions::from_mode(0o666))?;
    Ok(listener)
}

pub async fn serve(listener: UnixListener, ctx: Arc<Context>) {
    let permits = Arc::new(Semaphore::new(MAX_CLIENTS));
    loop {
        let Ok(permit) = Arc::clone(&permits).acquire_owned().await else { return };
        let (stream, _) = accept_retrying(|| listener.accept()).await;
        let ctx = Arc::clone(&ctx);
        let credentials = stream.peer_cred();
        let peer = credentials.map_or(Peer::Other, |peer| Peer::from_uid(peer.uid(), getuid().as_raw()));
        tokio::spawn(async move {
            // Errors are reported by the client.
            let _ = timeout(REQUEST_TIMEOUT, serve_requests(stream, |request| handle(request, peer, &ctx))).await;
            drop(permit);
        });
    }
}

/// The user of a client, from `SO_PEERCRED`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Peer {
    /// The server's user, or root, which has access to everything anyway.
    Owner,
    Other,
}

impl Peer {
    fn from_uid(uid: u32, owner: u32) -> Self {
        if uid == owner || uid == 0 { Self::Owner } else { Self::Other }
    }

    /// Removes the token of the Jupyter server, which runs as the server's user, from replies to other users.
    fn redact(self, reply: Reply) -> Reply {
        match (self, reply) {
            (Self::Other, Reply::Status(mut status)) => {
                status.jupyter.token = None;
                Reply::Status(status)
            }
            (_, reply) => reply,
        }
    }
}

async fn handle(request: Request, peer: Peer, ctx: &Arc<Context>) -> Reply {
    match request {
        Request::Status => peer.redact(control::handle(request, ctx).await),
        Request::Signals | Request::KeepAlive { .. } | Request::Heartbeat => control::handle(request, ctx).await,
        Request::SetDeadline { .. }
        | Request::Notify { .. }
        | Request::SetAccess(_)
        | Request::Jupyter { .. }
        | Request::Quiesce { .. }
        | Request::Flush { .. }
        | Request::Stats
        | Request::SetIdleStatus { .. } => {
            Reply::refused("permission denied: this request is reserved for the operator")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;
    use odc_control::Status;

    #[test]
    fn jupyter_token_is_redacted_for_other_users() {
        for (uid, has_token) in [(1000, true), (0, true), (1001, false), (65534, false)] {
            let status = Status { jupyter: fixtures::jupyter(), ..fixtures::status() };
            let Reply::Status(status) = Peer::from_uid(uid, 1000).redact(Reply::Status(Box::new(status))) else {
                panic!()
            };
            assert_eq!(status.jupyter.token.is_some(), has_token, "{uid}");
            assert_eq!(status.jupyter.port, Some(8888));
        }
    }
}
