//! Waits for the reaction of the operator to a change.

use std::time::Duration;

use futures_util::StreamExt as _;

use super::deleted_error;
use crate::client::{Scope, WatchEvent};
use crate::context::ClusterContext;
use crate::error::{Error, Result};
use crate::model::server::ServerSummary;

/// A leading operator reacts within a second.
const STATUS_TIMEOUT: Duration = Duration::from_secs(30);

/// Waits until the status satisfies a condition. `request` names the request for the error.
pub async fn until_status(
    ctx: &ClusterContext,
    name: &str,
    request: &str,
    condition: impl Fn(&ServerSummary) -> bool,
) -> Result<ServerSummary> {
    let mut watch = ctx.client.watch(Scope::Own, Some(name));
    let result = async {
        while let Some(event) = watch.next().await {
            match event? {
                WatchEvent::Apply(server) if condition(&server) => return Ok(*server),
                WatchEvent::Delete(_) => break,
                WatchEvent::Apply(_) | WatchEvent::Init | WatchEvent::InitDone | WatchEvent::Interrupted(_) => {}
            }
        }
        Err(deleted_error(name))
    };
    tokio::time::timeout(STATUS_TIMEOUT, result).await.unwrap_or_else(|_| {
        Err(Error::timeout(format!("the operator did not process the {request} within {}s", STATUS_TIMEOUT.as_secs()))
            .with_hint(format!("the request is stored; run `devctl show {name}` later to see the result")))
    })
}

/// Waits until this object is deleted, so that its name is free.
pub async fn until_deleted(ctx: &ClusterContext, server: &ServerSummary, timeout: Duration) -> Result<()> {
    let (name, uid) = (server.name(), &server.metadata.uid);
    let mut watch = ctx.client.watch(Scope::Own, Some(name));
    let result = async {
        let mut exists = false;
        while let Some(event) = watch.next().await {
            match event? {
                WatchEvent::Init => exists = false,
                WatchEvent::Apply(server) if server.metadata.uid == *uid => exists = true,
                // Another server has this name.
                WatchEvent::Apply(_) | WatchEvent::Delete(_) => return Ok(()),
                WatchEvent::InitDone if !exists => return Ok(()),
                WatchEvent::InitDone | WatchEvent::Interrupted(_) => {}
            }
        }
        Ok(())
    };
    tokio::time::timeout(timeout, result).await.unwrap_or_else(|_| {
        Err(Error::timeout(format!("timed out waiting for the deletion of server {name}"))
            .with_hint("the deletion continues; run `devctl list --all` to check"))
    })
}
