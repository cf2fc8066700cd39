//! `devctl hibernate`.

use clap::Args;
use odc_api::duration::Duration;
use odc_api::v1alpha1::Phase;
use serde_json::json;

use crate::cli::shared::{DryRunArgs, ServerArg};
use crate::context::ClusterContext;
use crate::error::{Error, Result};
use crate::model::server::ServerSummary;
use crate::output::json::print_server;
use crate::resolve;
use crate::wait;

#[derive(Args, Debug)]
pub struct HibernateArgs {
    #[command(flatten)]
    pub server: ServerArg,
    /// Return immediately
    #[arg(long)]
    pub no_wait: bool,
    /// Stop waiting after this time
    #[arg(long, value_name = "DURATION", default_value = "5m")]
    pub timeout: Duration,
    #[command(flatten)]
    pub dry_run: DryRunArgs,
}

pub async fn run(ctx: &ClusterContext, args: HibernateArgs) -> Result<()> {
    let server = match args.server.name.as_deref() {
        Some(name) => resolve::by_prefix(ctx, name).await?,
        None => resolve::the_only(ctx, |server| server.phase() == Some(Phase::Running), "running servers").await?,
    };
    let name = server.name();
    if let Some(error) = resolve::not_connectable(&server) {
        return Err(error);
    }
    if server.has_ephemeral_home() {
        return Err(Error::conflict(format!(
            "cannot hibernate server {name}: its home directory is ephemeral and would be lost"
        ))
        .with_hint(format!(
            "delete it with `devctl delete {name}`; to be able to hibernate, create servers without `--ephemeral`"
        )));
    }
    if server.phase() == Some(Phase::Hibernated) {
        ctx.ui.info(format!("Server {name} is already hibernated"));
        return print_server(&ctx.out, &server);
    }
    let mut after = request(ctx, name, args.dry_run.dry_run).await?;
    if args.dry_run.dry_run {
        ctx.ui.info(format!("Server {name} would be hibernated (dry run)"));
    } else if args.no_wait {
        ctx.ui.info(format!("Hibernating server {name}"));
    } else {
        after = wait::until_hibernated(ctx, name, args.timeout.into()).await?;
        ctx.ui.info(format!(
            "Hibernated server {name}. Its home is kept and its lifetime is paused. Run `devctl ssh {name}` to wake it."
        ));
    }
    print_server(&ctx.out, &after)
}

/// Requests hibernation.
pub async fn request(ctx: &ClusterContext, name: &str, dry_run: bool) -> Result<ServerSummary> {
    let requested = ctx.client.patch(name, json!({"spec": {"desired": "Hibernated"}}), None, dry_run).await;
    ctx.ui.trace_step("requesting hibernation");
    requested
}
