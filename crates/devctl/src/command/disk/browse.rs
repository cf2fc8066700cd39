//! `devctl disk browse`: a shell or command in a pod with a restore point mounted read-only.

use std::time::{Duration, Instant};

use clap::Args;
use kube::ResourceExt as _;
use odc_api::name::ObjectName;
use odc_api::ssh_key::PublicKey;
use odc_api::v1alpha1::{DiskAction, DiskArguments, DiskOperation, DiskOperationPhase};

use super::{DiskArg, OperationArgs, PointArg, operation, resolve};
use crate::command::ssh::{SshInvocation, terminal_option};
use crate::context::ClusterContext;
use crate::error::{Error, Kind, Result};
use crate::model::disk;
use crate::ssh::host::browse_alias;
use crate::ssh::options::SshOverrides;
use crate::ssh::{self, process};
use crate::wait::{self, OperationGoal};

/// A session that ends with 255 within this time failed to authenticate or connect.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(30);
/// The limit of the API.
const MAX_KEYS: usize = 16;

#[derive(Args, Debug)]
pub struct BrowseArgs {
    #[command(flatten)]
    pub disk: DiskArg,
    #[command(flatten)]
    pub point: PointArg,
    /// Keep the pod after the session; it is deleted after 30m without use
    #[arg(long)]
    pub keep: bool,
    #[command(flatten)]
    pub wait: OperationArgs,
    /// Command to run instead of a shell
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

pub async fn run(ctx: &ClusterContext, args: BrowseArgs) -> Result<()> {
    let disk = resolve(ctx, &args.disk).await?;
    let point = disk::point_name(disk::find_point(&disk, &args.point.point)?)?;
    let mut keys = ssh::user_keys(ctx).await?;
    keys.truncate(MAX_KEYS);
    let arguments = DiskArguments { point: Some(point.clone()), keys, ..DiskArguments::default() };
    let spec = operation::spec(&disk, DiskAction::Browse, arguments)?;
    let known = ctx.client.operations(spec.disk.as_str()).await?;
    let open = known.into_iter().find(|known| is_open(known, &point, spec.keys()));
    let keep = args.keep || open.is_some();
    let operation = match open {
        Some(open) => open,
        None => ctx.client.create_operation(&spec).await?,
    };
    if args.wait.no_wait {
        return operation::print(ctx, &operation, Some(&operation.name_any()));
    }
    let timeout = args.wait.timeout.map(Into::into);
    let ready = wait::until_operation(ctx, &operation, OperationGoal::Connectable, timeout).await?;
    let result = ready.status.clone().and_then(|status| status.result).unwrap_or_default();
    let (Some(pod), Some(host_key)) = (result.pod, result.host_key) else {
        return Err(Error::failed(format!("restore point {point} has no pod")).with_hint("try again"));
    };
    let alias = browse_alias(pod.as_str());
    ssh::pin_host_key(&alias, &host_key)?;
    if args.command.is_empty() {
        let end = if keep { ". It is closed after 30m without use." } else { "" };
        ctx.ui.info(format!("Opened restore point {point} read-only as {alias}{end}"));
    }
    let connected = connect(ctx, &args, &alias).await;
    if !keep && let Err(error) = close(ctx, &ready, &alias).await {
        ctx.ui.warn(format!("could not close restore point {point}: {}", error.message));
    }
    connected
}

/// Runs ssh and passes on its exit status.
async fn connect(ctx: &ClusterContext, args: &BrowseArgs, alias: &str) -> Result<()> {
    let invocation = SshInvocation {
        options: terminal_option(&args.command).into_iter().collect(),
        overrides: SshOverrides::NO_AGENT,
        command_line: (!args.command.is_empty()).then(|| args.command.join(" ")),
    };
    let started = Instant::now();
    match process::exit_code(process::run(invocation.command_for(ctx, alias, None)?).await?) {
        0 => Ok(()),
        255 if started.elapsed() < LOGIN_TIMEOUT => {
            Err(Error::new(Kind::Remote(255), format!("could not connect to {alias}"))
                .with_hint("try again, or copy files with `devctl disk restore` without a connection"))
        }
        code => Err(Error::remote(code)),
    }
}

/// Ends the operation, which deletes its pod.
async fn close(ctx: &ClusterContext, operation: &DiskOperation, alias: &str) -> Result<()> {
    let uid = operation.metadata.uid.as_deref().unwrap_or_default();
    ctx.client.delete_operation(&operation.name_any(), uid).await?;
    ssh::remove_host_key(alias)
}

/// Reports whether an earlier operation has this point open for one of the keys.
fn is_open(operation: &DiskOperation, point: &ObjectName, keys: &[PublicKey]) -> bool {
    let Some(status) = &operation.status else { return false };
    operation.spec.action == DiskAction::Browse
        && operation.spec.point() == Some(point)
        && operation.spec.keys().iter().any(|key| keys.contains(key))
        && operation.metadata.deletion_timestamp.is_none()
        && status.phase == Some(DiskOperationPhase::Running)
        && status.result.as_ref().is_some_and(|result| result.pod.is_some())
}

#[cfg(test)]
mod tests {
    use odc_api::fixtures::KEY;
    use serde_json::json;

    use super::*;

    #[test]
    fn only_a_running_browse_of_the_same_point_with_the_same_key_is_open() {
        let point: ObjectName = "home-1".parse().unwrap();
        let keys: Vec<PublicKey> = vec![KEY.parse().unwrap()];
        let operation = |action: DiskAction, point: &str, phase: &str| {
            let mut operation = DiskOperation::test("op", action);
            operation.spec.arguments = serde_json::from_value(json!({"point": point, "keys": [KEY]})).unwrap();
            operation.status = serde_json::from_value(json!({"phase": phase, "result": {"pod": "p"}})).unwrap();
            operation
        };
        assert!(is_open(&operation(DiskAction::Browse, "home-1", "Running"), &point, &keys));
        assert!(!is_open(&operation(DiskAction::Browse, "home-1", "Running"), &point, &[]));
        assert!(!is_open(&operation(DiskAction::Browse, "home-2", "Running"), &point, &keys));
        assert!(!is_open(&operation(DiskAction::Browse, "home-1", "Succeeded"), &point, &keys));
        assert!(!is_open(&operation(DiskAction::Diff, "home-1", "Running"), &point, &keys));
        assert!(!is_open(&DiskOperation::test("op", DiskAction::Browse), &point, &keys));
    }
}
