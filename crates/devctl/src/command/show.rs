//! `devctl show`.

pub mod details;

use clap::Args;
use odc_api::quantity::Quantity;
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
use details::Observed;

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
    let home_size = if ctx.out.structured() { None } else { fetch_home_size(ctx, &server).await };
    match ctx.out.format {
        Format::Json => ctx.out.json(&ServerDetailJson::new(&server, activity)),
        Format::Yaml => ctx.out.yaml(&ServerDetailJson::new(&server, activity)),
        Format::Name => ctx.out.print(&format!("{}\n", server.name())),
        Format::Table | Format::Wide => {
            let observed = Observed { activity: activity.as_ref(), home_size };
            ctx.out.print(&details::render(ctx, &server, observed, clock::now()))
        }
    }
}

/// Prints how to connect to a server that just became ready.
pub async fn print_ready(ctx: &ClusterContext, server: &ServerSummary) -> Result<()> {
    let activity = if server.spec.access.jupyter { fetch_activity(ctx, server).await } else { None };
    let observed = Observed { activity: activity.as_ref(), home_size: fetch_home_size(ctx, server).await };
    ctx.out.print(&details::render_ready(ctx, server, observed, clock::now()))
}

/// Returns the size of the disk of a server's home. Without it, only the name is printed.
pub async fn fetch_home_size(ctx: &ClusterContext, server: &ServerSummary) -> Option<Quantity> {
    let disk = ctx.client.disk(server.spec.home.disk.as_deref()?).await.ok()??;
    Some(disk.spec.size)
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
