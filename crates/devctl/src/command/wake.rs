//! `devctl wake`.

use clap::Args;
use odc_api::v1alpha1::Phase;

use super::show::print_ready;
use crate::cli::shared::{DryRunArgs, TimeoutArgs};
use crate::context::ClusterContext;
use crate::error::Result;
use crate::model::server::ServerSummary;
use crate::model::wake::{WakeAction, new_id, wake_action};
use crate::output::json::print_server;
use crate::resolve;
use crate::wait::{self, OnInterrupt};

#[derive(Args, Debug)]
pub struct WakeArgs {
    /// Server name or unique prefix [default: your only hibernated server]
    #[arg(value_name = "NAME", add = clap_complete::ArgValueCompleter::new(crate::completion::server))]
    pub name: Option<String>,
    /// Return immediately
    #[arg(long)]
    pub no_wait: bool,
    #[command(flatten)]
    pub timeout: TimeoutArgs,
    #[command(flatten)]
    pub dry_run: DryRunArgs,
}

pub async fn run(ctx: &ClusterContext, args: WakeArgs) -> Result<()> {
    let hibernated = |server: &ServerSummary| matches!(server.phase(), Some(Phase::Hibernated | Phase::Hibernating));
    let server = match args.name.as_deref() {
        Some(name) => resolve::by_prefix(ctx, name).await?,
        None => resolve::the_only(ctx, hibernated, "hibernated servers").await?,
    };
    let name = server.name();
    if let Some(error) = resolve::not_connectable(&server) {
        return Err(error);
    }
    let after = match wake_action(&server, &new_id()) {
        WakeAction::NotNeeded => {
            ctx.ui.info(format!("Server {name} is not hibernated (phase: {})", server.phase_str()));
            return print_server(&ctx.out, &server);
        }
        WakeAction::InProgress => server.clone(),
        WakeAction::Patch(patch) => {
            let after = ctx.client.patch(name, patch, None, args.dry_run.dry_run).await?;
            ctx.ui.trace_step("requesting the wake");
            after
        }
    };
    if args.dry_run.dry_run {
        ctx.ui.info(format!("Server {name} would be woken (dry run)"));
        return print_server(&ctx.out, &after);
    }
    if args.no_wait {
        ctx.ui.info(format!("Waking server {name}. Run `devctl ssh {name}` to connect when it is ready."));
        return print_server(&ctx.out, &after);
    }
    let timeout = args.timeout.timeout.map(Into::into);
    let ready = wait::until_ready(ctx, name, OnInterrupt::Detach, timeout).await?;
    if ctx.out.structured() {
        return print_server(&ctx.out, &ready);
    }
    print_ready(ctx, &ready).await
}
