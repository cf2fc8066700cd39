//! Watches over a connection from outside: it must log in in time, and ends when whoever it is may not be here any more.

use std::sync::Arc;
use std::time::Duration;

use russh::Disconnect;
use russh::server::{Config, Handle, run_stream};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::serve::connection::{Connection, Peer, Stranger};
use crate::serve::inbox::Inboxes;
use crate::serve::intake::{Cut, Intake};
use crate::serve::served::Served;
use crate::serve::session::process::Leaders;

/// From the polite end of a connection to the other one.
const FAREWELL: Duration = Duration::from_millis(300);

pub async fn attend(
    stream: TcpStream,
    peer: Peer,
    stranger: Stranger,
    served: Arc<Served>,
    config: Arc<Config>,
    grace: Duration,
) {
    let (inboxes, leaders, cut) = (Inboxes::default(), Leaders::default(), stranger.cut());
    let (login, mut logged_in) = watch::channel(None);
    let connection = Connection::new(Arc::clone(&served), peer, inboxes.clone(), leaders.clone(), login);
    let intake = Intake::new(stream, inboxes, cut.clone());
    let until = Instant::now() + grace;
    // What strangers talk is no business of the log.
    let Ok(Ok(session)) = timeout_at(until, run_stream(config, intake, connection)).await else { return };
    stranger.spoke();
    let handle = session.handle();
    tokio::pin!(session);
    tokio::select! {
        _ = &mut session => return,
        _ = timeout_at(until, logged_in.wait_for(Option::is_some)) => {}
    }
    let Some(credential) = logged_in.borrow().clone() else {
        cut.now();
        return;
    };
    drop(stranger);
    let mut changes = served.access.changes();
    while served.access.lists().admits(&credential) {
        tokio::select! {
            _ = &mut session => return,
            _ = changes.changed() => {}
        }
    }
    served.journal.say(format!("{} is not allowed here any more; its connection ends", peer.client));
    leaders.hang_up();
    end(&handle, &cut).await;
    let _ = session.await;
}

/// The client is told, if it listens.
async fn end(handle: &Handle, cut: &Cut) {
    let reason = "you are not allowed here any more".to_owned();
    let _ = timeout(FAREWELL, handle.disconnect(Disconnect::ByApplication, reason, String::new())).await;
    sleep(FAREWELL).await;
    cut.now();
}
