//! Waiting for the operator's word about a change.

use std::time::Duration;

use futures_util::StreamExt as _;

use crate::app::App;
use crate::backend::{Change, Scope};
use crate::failure::{Failure, Result};
use crate::glance::Glance;

/// An operator that leads answers within a second.
const LIMIT: Duration = Duration::from_secs(30);

/// Watches the server until its status says this; `what` is what was asked for.
pub async fn answered(app: &App, name: &str, what: &str, said: impl Fn(&Glance) -> bool) -> Result<Glance> {
    let mut changes = app.backend.watch(Scope::Own, Some(name));
    let watching = async {
        while let Some(change) = changes.next().await {
            match change? {
                Change::Put(server) if said(&server) => return Ok(*server),
                Change::Gone(_) => break,
                Change::Put(_) | Change::Relisted | Change::Listed | Change::Interrupted(_) => {}
            }
        }
        Err(Failure::not_found(format!("{name} was deleted meanwhile")).advise("devctl list shows what you have."))
    };
    tokio::time::timeout(LIMIT, watching).await.unwrap_or_else(|_| {
        Err(Failure::timeout(format!("{what} is asked for, but nobody has answered within {} s", LIMIT.as_secs()))
            .advise(format!(
                "The operator may be busy or away: devctl show {name} shows its answer when there is one."
            )))
    })
}

/// Watches until this very object is gone, so that its name is free.
pub async fn until_gone(app: &App, old: &Glance, limit: Duration) -> Result<()> {
    let (name, uid) = (old.name(), &old.metadata.uid);
    let mut changes = app.backend.watch(Scope::Own, Some(name));
    let watching = async {
        let mut there = false;
        while let Some(change) = changes.next().await {
            match change? {
                Change::Relisted => there = false,
                Change::Put(server) if server.metadata.uid == *uid => there = true,
                // Another one has its name by now.
                Change::Put(_) | Change::Gone(_) => return Ok(()),
                Change::Listed if !there => return Ok(()),
                Change::Listed | Change::Interrupted(_) => {}
            }
        }
        Ok(())
    };
    tokio::time::timeout(limit, watching).await.unwrap_or_else(|_| {
        Err(Failure::timeout(format!("{name} is still being deleted"))
            .advise("It goes on: devctl list --all shows when it is gone."))
    })
}
