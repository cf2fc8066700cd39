//! Serves one connection: enforces the login grace time, and disconnects when access is revoked.

use std::sync::Arc;
use std::time::Duration;

use russh::server::{Config, Handle, run_stream};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::serve::context::Context;
use crate::serve::session::process::SessionProcesses;
use crate::serve::ssh::handler::{Addresses, SshHandler};
use crate::serve::ssh::pre_auth::PreAuthGuard;
use crate::serve::ssh::receive_buffer::ReceiveBuffers;
use crate::serve::ssh::throttled_stream::{Disconnect, ThrottledStream};

/// Time from the SSH disconnect message until the TCP connection is closed.
const DISCONNECT_GRACE: Duration = Duration::from_millis(300);

pub async fn serve_connection(
    stream: TcpStream,
    addresses: Addresses,
    guard: PreAuthGuard,
    ctx: Arc<Context>,
    config: Arc<Config>,
    login_grace: Duration,
) {
    let (buffers, processes, disconnect) =
        (ReceiveBuffers::default(), SessionProcesses::default(), guard.disconnect_handle());
    let (login, mut logged_in) = watch::channel(None);
    let handler = SshHandler::new(Arc::clone(&ctx), addresses, buffers.clone(), processes.clone(), login);
    let stream = ThrottledStream::new(stream, buffers, disconnect.clone());
    let deadline = Instant::now() + login_grace;
    // Errors before authentication are not logged: any client can cause them.
    let Ok(Ok(session)) = timeout_at(deadline, run_stream(config, stream, handler)).await else { return };
    guard.version_received();
    let handle = session.handle();
    tokio::pin!(session);
    tokio::select! {
        _ = &mut session => return,
        _ = timeout_at(deadline, logged_in.wait_for(Option::is_some)) => {}
    }
    let Some(credential) = logged_in.borrow().clone() else {
        disconnect.close();
        return;
    };
    drop(guard);
    let mut changes = ctx.access.changes();
    while ctx.access.authorized_keys().allows(&credential) {
        tokio::select! {
            _ = &mut session => return,
            _ = changes.changed() => {}
        }
    }
    ctx.logger.log(format!("disconnecting {}: access revoked", addresses.client));
    processes.hang_up();
    send_disconnect(&handle, &disconnect).await;
    let _ = session.await;
}

/// Sends the disconnect message and closes the connection, even if the client does not read.
async fn send_disconnect(handle: &Handle, disconnect: &Disconnect) {
    let message = handle.disconnect(russh::Disconnect::ByApplication, "access revoked".to_owned(), String::new());
    let _ = timeout(DISCONNECT_GRACE, message).await;
    sleep(DISCONNECT_GRACE).await;
    disconnect.close();
}
