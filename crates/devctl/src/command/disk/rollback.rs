//! `devctl disk rollback`.

use clap::Args;
use kube::ResourceExt as _;
use odc_api::v1alpha1::{DiskAction, DiskArguments};

use super::stop::{self, StopArg};
use super::{DiskArg, OperationArgs, PointArg, operation, resolve};
use crate::clock;
use crate::context::ClusterContext;
use crate::error::{Error, Result};
use crate::model::disk::{self, Point};
use crate::output::duration::format_clock;
use crate::ui::{Confirm, PASS_YES};

#[derive(Args, Debug)]
pub struct RollbackArgs {
    #[command(flatten)]
    pub disk: DiskArg,
    #[command(flatten)]
    pub point: PointArg,
    #[command(flatten)]
    pub stop: StopArg,
    #[command(flatten)]
    pub wait: OperationArgs,
}

pub async fn run(ctx: &ClusterContext, args: RollbackArgs) -> Result<()> {
    let disk = resolve(ctx, &args.disk).await?;
    let name = disk.name_any();
    let point = disk::find_point(&disk, &args.point.point)?;
    let server = args.stop.select_server(&disk, "roll back")?;
    let question = question(&name, point, server.as_deref());
    let action = format!("roll back disk {name}");
    if !ctx.ui.confirm(&Confirm { question: &question, action: &action, hint: PASS_YES, default: false })? {
        return Err(Error::interrupted("aborted"));
    }
    if let Some(server) = &server {
        stop::hibernate(ctx, server).await?;
    }
    let arguments = DiskArguments { point: Some(disk::point_name(point)?), ..DiskArguments::default() };
    let spec = operation::spec(&disk, DiskAction::Rollback, arguments)?;
    let Some(done) = operation::run(ctx, &spec, &args.wait).await? else { return Ok(()) };
    let wake = stop::format_wake(server.as_deref());
    let previous = operation::format_previous(&done);
    ctx.ui.info(format!("Rolled back disk {name} to {}.{previous}{wake}", point.name));
    operation::print(ctx, &done, None)
}

fn question(disk: &str, point: &Point, server: Option<&str>) -> String {
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
