//! `devctl disk browse`: a shell or command in a pod with a restore point mounted read-only.

use clap::Args;
use kube::ResourceExt as _;
use odc_api::name::ObjectName;
use odc_api::v1alpha1::{DiskAction, DiskArguments, DiskOperation, DiskOperationPhase};

use super::{DiskArg, OperationArgs, PointArg, operation, resolve};
use crate::command::ssh::{SshInvocation, terminal_option};
use crate::context::ClusterContext;
use crate::error::{Error, Result};
use crate::model::disk;
use crate::ssh::host::browse_alias;
use crate::ssh::options::SshOverrides;
use crate::ssh::{self, process};
use crate::wait::{self, OperationGoal};

#[derive(Args, Debug)]
pub struct BrowseArgs {
    #[command(flatten)]
    pub disk: DiskArg,
    #[command(flatten)]
    pub point: PointArg,
    #[command(flatten)]
    pub wait: OperationArgs,
    /// Command to run instead of a shell
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

pub async fn run(ctx: &ClusterContext, args: BrowseArgs) -> Result<()> {
    let disk = resolve(ctx, &args.disk).await?;
    let point = disk::find_point(&disk, &args.point.point)?.name.clone();
    let arguments = DiskArguments { point: Some(point.clone()), ..DiskArguments::default() };
    let spec = operation::spec(&disk, DiskAction::Browse, arguments)?;
    let known = ctx.client.operations(spec.disk.as_str()).await?;
    let operation = match known.into_iter().find(|known| is_open(known, &point)) {
        Some(open) => open,
        None => ctx.client.create_operation(&spec).await?,
    };
    if args.wait.no_wait {
        return operation::print(ctx, &operation, Some(&operation.name_any()));
    }
    let timeout = args.wait.timeout.map(Into::into);
    let ready = wait::until_operation(ctx, &operation, OperationGoal::Connectable, timeout).await?;
    let result = ready.status.and_then(|status| status.result).unwrap_or_default();
    let (Some(pod), Some(host_key)) = (result.pod, result.host_key) else {
        return Err(Error::failed(format!("restore point {point} has no pod")).with_hint("try again"));
    };
    let alias = browse_alias(pod.as_str());
    ssh::pin_host_key(&alias, &host_key)?;
    if args.command.is_empty() {
        ctx.ui.info(format!(
            "Opened restore point {point} read-only as {alias}. It is closed after 30m without a connection."
        ));
    }
    let invocation = SshInvocation {
        options: terminal_option(&args.command).into_iter().collect(),
        overrides: SshOverrides::NO_AGENT,
        command_line: (!args.command.is_empty()).then(|| args.command.join(" ")),
    };
    let status = process::run(invocation.command_for(ctx, &alias, None)?).await?;
    match process::exit_code(status) {
        0 => Ok(()),
        code => Err(Error::remote(code)),
    }
}

/// Reports whether an earlier operation has this point open.
fn is_open(operation: &DiskOperation, point: &ObjectName) -> bool {
    let Some(status) = &operation.status else { return false };
    operation.spec.action == DiskAction::Browse
        && operation.spec.point() == Some(point)
        && operation.metadata.deletion_timestamp.is_none()
        && status.phase == Some(DiskOperationPhase::Running)
        && status.result.as_ref().is_some_and(|result| result.pod.is_some())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_a_running_browse_of_the_same_point_is_open() {
        let point: ObjectName = "home-1".parse().unwrap();
        let operation = |action: DiskAction, point: &str, phase: &str| {
            let mut operation = DiskOperation::test("op", action);
            operation.spec.arguments = serde_json::from_value(json!({"point": point})).unwrap();
            operation.status = serde_json::from_value(json!({"phase": phase, "result": {"pod": "p"}})).unwrap();
            operation
        };
        assert!(is_open(&operation(DiskAction::Browse, "home-1", "Running"), &point));
        assert!(!is_open(&operation(DiskAction::Browse, "home-2", "Running"), &point));
        assert!(!is_open(&operation(DiskAction::Browse, "home-1", "Succeeded"), &point));
        assert!(!is_open(&operation(DiskAction::Diff, "home-1", "Running"), &point));
        assert!(!is_open(&DiskOperation::test("op", DiskAction::Browse), &point));
    }
}
