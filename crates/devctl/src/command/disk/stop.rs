//! Hibernates the server that uses a disk, before an operation that needs the disk unused.

use clap::Args;
use kube::ResourceExt as _;
use odc_api::duration::Duration;

use crate::command::hibernate;
use crate::context::ClusterContext;
use crate::error::{Error, Result};
use crate::model::disk::{self, DiskSummary};
use crate::wait;

/// How long the server may take to hibernate. A pre-stop script may take minutes.
const HIBERNATE_TIMEOUT: Duration = Duration::minutes(10);

#[derive(Args, Clone, Debug)]
pub struct StopArg {
    /// Hibernate the server that uses the disk first
    #[arg(long)]
    pub stop: bool,
}

impl StopArg {
    /// Returns the server to hibernate. Fails if there is one and that was not requested. `action` is what to do with the
    /// disk, as an infinitive.
    pub fn select_server(&self, disk: &DiskSummary, action: &str) -> Result<Option<String>> {
        let Some(holder) = disk::active_holder(disk) else { return Ok(None) };
        if self.stop {
            return Ok(Some(holder.server.clone()));
        }
        let (name, server) = (disk.name_any(), &holder.server);
        Err(Error::conflict(format!("cannot {action} disk {name}: server {server} uses it"))
            .with_hint(format!("pass `--stop` to hibernate server {server} first")))
    }
}

/// Hibernates a server and waits until it has stopped.
pub async fn hibernate(ctx: &ClusterContext, server: &str) -> Result<()> {
    hibernate::request(ctx, server, false).await?;
    wait::until_hibernated(ctx, server, HIBERNATE_TIMEOUT.into()).await?;
    ctx.ui.info(format!("Hibernated server {server}"));
    Ok(())
}

/// Returns the sentence that says how to wake a server that was hibernated.
pub fn format_wake(server: Option<&str>) -> String {
    server.map(|server| format!(" Run `devctl ssh {server}` to wake server {server}.")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::error::Kind;

    fn held(releasing: Option<&str>) -> DiskSummary {
        let mut disk = DiskSummary::test("disk-home", "50Gi");
        let holder = json!({"server": "box", "uid": "u", "since": "2026-01-01T00:00:00Z", "releasingSince": releasing});
        disk.status = serde_json::from_value(json!({"holder": holder})).unwrap();
        disk
    }

    fn select(disk: &DiskSummary, stop: bool) -> Result<Option<String>> {
        StopArg { stop }.select_server(disk, "roll back")
    }

    #[test]
    fn server_that_uses_the_disk_is_stopped_only_on_request() {
        let error = select(&held(None), false).unwrap_err();
        assert_eq!(error.message, "cannot roll back disk disk-home: server box uses it");
        assert_eq!((error.kind, error.hint.unwrap().contains("--stop")), (Kind::Conflict, true));
        assert_eq!(select(&held(None), true).unwrap().as_deref(), Some("box"));
    }

    #[test]
    fn server_that_has_stopped_needs_no_stop() {
        assert_eq!(select(&held(Some("2026-01-01T00:00:00Z")), true).unwrap(), None);
        assert_eq!(select(&DiskSummary::test("home", "20Gi"), false).unwrap(), None);
    }
}
