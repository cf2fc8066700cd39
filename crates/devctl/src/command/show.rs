//! `devctl show`.

pub mod details;

use clap::Args;
use odc_api::v1alpha1::Phase;

use crate::cli::Format;
use crate::cli::shared::ServerArg;
use crate::client::Scope;
use crate::clock;
use crate::context::ClusterContext;
use crate::error::Result;
use crate::model::activity::Activity;
use crate::model::queue::{fetch_or_warn, merge_live};
use crate::model::server::ServerSummary;
use crate::output::json::ServerDetailJson;
use crate::resolve;
use crate::ssh::remote;

#[derive(Args, Debug)]
pub struct ShowArgs {
    #[command(flatten)]
    pub server: ServerArg,
    /// Do not query the server for its activity or the queue for its position
    #[arg(long)]
    pub offline: bool,
}

pub async fn run(ctx: &ClusterContext, args: ShowArgs) -> Result<()> {
    let mut server = resolve::resolve(ctx, args.server.name.as_deref()).await?;
    if server.phase() == Some(Phase::Queued) && !args.offline {
        let entries = fetch_or_warn(ctx, ctx.client.queue_entries(Scope::Own)).await?;
        merge_live(&mut server, &entries.unwrap_or_default());
    }
    let activity = if args.offline { None } else { fetch_activity(ctx, &server).await };
    match ctx.out.format {
        Format::Json => ctx.out.json(&ServerDetailJson::new(&server, activity)),
        Format::Yaml => ctx.out.yaml(&ServerDetailJson::new(&server, activity)),
        Format::Name => ctx.out.print(&format!("{}\n", server.name())),
        Format::Table | Format::Wide => ctx.out.print(&details::render(ctx, &server, activity.as_ref(), clock::now())),
    }
}

/// Fetches the activity of a ready server from its agent. Prints a warning if that fails.
pub async fn fetch_activity(ctx: &ClusterContext, server: &ServerSummary) -> Option<Activity> {
    if !server.is_ready() {
        return None;
    }
    let status = remote::agent_status(ctx, server).await;
    ctx.ui.trace_step("querying the server");
    match status {
        Ok(status) => status.as_ref().map(Activity::from_status),
        Err(error) => {
            ctx.ui.warn(format!("could not query the activity of server {}: {error}", server.name()));
            None
        }
    }
}
