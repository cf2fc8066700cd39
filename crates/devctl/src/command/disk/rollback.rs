//! `devctl disk rollback`.

use clap::Args;
use kube::ResourceExt as _;
use odc_api::duration::Duration;
use odc_api::v1alpha1::{Disk, DiskAction, DiskArguments, RestorePoint};

use super::{DiskArg, OperationArgs, PointArg, operation, resolve};
use crate::clock;
use crate::command::hibernate;
use crate::context::ClusterContext;
use crate::error::{Error, Result};
use crate::model::disk;
use crate::output::duration::format_clock;
use crate::ui::{Confirm, PASS_YES};
use crate::wait;

/// How long the server may take to hibernate. A pre-stop script may take minutes.
const HIBERNATE_TIMEOUT: Duration = Duration::minutes(10);

#[derive(Args, Debug)]
pub struct RollbackArgs {
    #[command(flatten)]
    pub disk: DiskArg,
    #[command(flatten)]
    pub point: PointArg,
    /// Hibernate the server that uses the disk first
    #[arg(long)]
    pub stop: bool,
    #[command(flatten)]
    pub wait: OperationArgs,
}

pub async fn run(ctx: &ClusterContext, args: RollbackArgs) -> Result<()> {
    let disk = resolve(ctx, &args.disk).await?;
    let name = disk.name_any();
    let point = disk::find_point(&disk, &args.point.point)?;
    let server = server_to_stop(&disk, args.stop)?;
    let question = question(&name, point, server.as_deref());
    let action = format!("roll back disk {name}");
    if !ctx.ui.confirm(&Confirm { question: &question, action: &action, hint: PASS_YES, default: false })? {
        return Err(Error::interrupted("aborted"));
    }
    if let Some(server) = &server {
        hibernate::request(ctx, server, false).await?;
        wait::until_hibernated(ctx, server, HIBERNATE_TIMEOUT.into()).await?;
        ctx.ui.info(format!("Hibernated server {server}"));
    }
    let arguments = DiskArguments { point: Some(point.name.clone()), ..DiskArguments::default() };
    let spec = operation::spec(&disk, DiskAction::Rollback, arguments)?;
    let Some(done) = operation::run(ctx, &spec, &args.wait).await? else { return Ok(()) };
    let wake = server.map(|server| format!(" Run `devctl ssh {server}` to wake server {server}.")).unwrap_or_default();
    let previous = operation::format_previous(&done);
    ctx.ui.info(format!("Rolled back disk {name} to {}.{previous}{wake}", point.name));
    operation::print(ctx, &done, None)
}

/// Returns the server to hibernate. Fails if there is one and that was not requested.
fn server_to_stop(disk: &Disk, stop: bool) -> Result<Option<String>> {
    let Some(holder) = disk::active_holder(disk) else { return Ok(None) };
    if stop {
        return Ok(Some(holder.server.to_string()));
    }
    let (name, server) = (disk.name_any(), &holder.server);
    Err(Error::conflict(format!("cannot roll back disk {name}: server {server} uses it"))
        .with_hint(format!("pass `--stop` to hibernate server {server} first")))
}

fn question(disk: &str, point: &RestorePoint, server: Option<&str>) -> String {
    let taken = point.at.as_ref().map(|at| format!(" of {}", format_clock(at.0, clock::now()))).unwrap_or_default();
    let stop = server.map(|server| format!(" Server {server} is hibernated first.")).unwrap_or_default();
    format!(
        "Replace the data of disk {disk} by restore point {}{taken}?{stop} A restore point of the current data is taken.",
        point.name
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::error::Kind;

    fn held(releasing: Option<&str>) -> Disk {
        let mut disk = Disk::test();
        let holder = json!({"server": "box", "uid": "u", "since": "2026-01-01T00:00:00Z", "releasingSince": releasing});
        disk.status = serde_json::from_value(json!({"holder": holder})).unwrap();
        disk
    }

    #[test]
    fn server_that_uses_the_disk_is_stopped_only_on_request() {
        let error = server_to_stop(&held(None), false).unwrap_err();
        assert_eq!((error.kind, error.hint.unwrap().contains("--stop")), (Kind::Conflict, true));
        assert_eq!(server_to_stop(&held(None), true).unwrap().as_deref(), Some("box"));
    }

    #[test]
    fn server_that_has_stopped_needs_no_stop() {
        assert_eq!(server_to_stop(&held(Some("2026-01-01T00:00:00Z")), true).unwrap(), None);
        assert_eq!(server_to_stop(&Disk::test(), false).unwrap(), None);
    }

    #[test]
    fn question_names_what_happens() {
        let point = json!({"name": "home-1", "reason": "Stop", "consistency": "Clean"});
        let text = question("home", &serde_json::from_value(point).unwrap(), Some("box"));
        assert_eq!(
            text,
            "Replace the data of disk home by restore point home-1? Server box is hibernated first. A restore point of \
             the current data is taken."
        );
    }
}
