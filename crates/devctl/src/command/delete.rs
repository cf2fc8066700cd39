//! `devctl delete`: stops servers and deletes them. The finished object is kept for a day unless `--purge` is given.

use clap::Args;
use odc_api::duration::Duration;
use serde_json::json;

use crate::cli::Format;
use crate::cli::shared::DryRunArgs;
use crate::context::ClusterContext;
use crate::error::{Error, Result, format_chain};
use crate::model::server::ServerSummary;
use crate::output::json::ServerJson;
use crate::resolve;
use crate::ssh;
use crate::ui::{Confirm, PASS_YES};
use crate::wait;

#[derive(Args, Debug)]
pub struct DeleteArgs {
    /// Server names or unique prefixes
    #[arg(value_name = "NAME", add = clap_complete::ArgValueCompleter::new(crate::completion::server))]
    pub names: Vec<String>,
    /// Delete all your servers
    #[arg(short, long, conflicts_with = "names")]
    pub all: bool,
    /// Do not ask for confirmation, same as --yes
    #[arg(short, long)]
    pub force: bool,
    /// Also remove the finished server, which is otherwise kept for a day
    #[arg(long)]
    pub purge: bool,
    /// Wait until the server has stopped
    #[arg(long)]
    pub wait: bool,
    /// Stop waiting after this time
    #[arg(long, value_name = "DURATION", default_value = "5m", requires = "wait")]
    pub timeout: Duration,
    #[command(flatten)]
    pub dry_run: DryRunArgs,
}

impl DeleteArgs {
    const fn is_dry_run(&self) -> bool {
        self.dry_run.dry_run
    }
}

pub async fn run(ctx: &ClusterContext, args: DeleteArgs) -> Result<()> {
    let servers = select(ctx, &args).await?;
    if servers.is_empty() {
        ctx.ui.info("No servers to delete");
        return print(ctx, &[]);
    }
    if !skips_confirmation(ctx, &args) && !confirm(ctx, &servers, &args)? {
        return Err(Error::interrupted("aborted"));
    }
    let (mut deleted, mut failed) = (Vec::new(), None);
    for server in &servers {
        // Continue with the others if one fails.
        match delete(ctx, server, &args).await {
            Ok((after, message)) => {
                ctx.ui.info(message);
                deleted.push(after);
            }
            Err(error) if servers.len() == 1 => return Err(error),
            Err(error) => {
                ctx.ui.warn(format!("could not delete server {}: {}", server.name(), error.message));
                failed = Some(error);
            }
        }
    }
    print(ctx, &deleted)?;
    failed.map_or(Ok(()), |last| {
        Err(Error::new(last.kind, "some servers could not be deleted").with_hint("run `devctl list --all` to see them"))
    })
}

/// Prints all servers as one array.
fn print(ctx: &ClusterContext, deleted: &[ServerSummary]) -> Result<()> {
    let servers = || deleted.iter().map(ServerJson::from).collect::<Vec<_>>();
    match ctx.out.format {
        Format::Json => ctx.out.json(&servers()),
        Format::Yaml => ctx.out.yaml(&servers()),
        Format::Name => ctx.out.lines(deleted.iter().map(|server| server.name().to_owned()).collect()),
        Format::Table | Format::Wide => Ok(()),
    }
}

fn skips_confirmation(ctx: &ClusterContext, args: &DeleteArgs) -> bool {
    args.force || args.is_dry_run() || ctx.ui.yes()
}

async fn select(ctx: &ClusterContext, args: &DeleteArgs) -> Result<Vec<ServerSummary>> {
    let is_active = |server: &ServerSummary| !server.is_finished() && !server.is_deleting();
    if args.all {
        return Ok(resolve::list_own(ctx).await?.into_iter().filter(is_active).collect());
    }
    if args.names.is_empty() {
        return resolve::one_or_all(ctx, is_active, "active servers").await;
    }
    let mut servers: Vec<ServerSummary> = Vec::new();
    for name in &args.names {
        // A prefix needs a confirmation that shows the full name.
        let unconfirmed = skips_confirmation(ctx, args) || !ctx.ui.is_interactive();
        let server = if unconfirmed {
            resolve::exact_if_unconfirmed(ctx, name).await?
        } else {
            resolve::by_prefix(ctx, name).await?
        };
        if servers.iter().all(|known| known.name() != server.name()) {
            servers.push(server);
        }
    }
    Ok(servers)
}

/// Asks for confirmation. Without a terminal, a single server with its full name needs none.
fn confirm(ctx: &ClusterContext, servers: &[ServerSummary], args: &DeleteArgs) -> Result<bool> {
    let exact = servers.iter().all(|server| args.names.iter().any(|name| name == server.name()));
    let single = servers.len() == 1 && exact;
    if single && !ctx.ui.is_interactive() {
        return Ok(true);
    }
    let names: Vec<&str> = servers.iter().map(ServerSummary::name).collect();
    let lost: Vec<&str> = servers.iter().filter(|server| loses_home(server)).map(ServerSummary::name).collect();
    let warning = match lost.len() {
        0 => String::new(),
        _ if servers.len() == 1 => " Its ephemeral home directory will be lost.".to_owned(),
        count => format!(" {count} ephemeral home directories will be lost: {}.", resolve::join_names(&lost)),
    };
    let noun = if names.len() == 1 { "server" } else { "servers" };
    let question = format!("Delete {noun} {}?{warning}", resolve::join_names(&names));
    let action = if names.len() == 1 {
        format!("delete server {}", names[0])
    } else {
        format!("delete {} servers", names.len())
    };
    ctx.ui.confirm(&Confirm { question: &question, action: &action, hint: PASS_YES, default: false })
}

fn loses_home(server: &ServerSummary) -> bool {
    server.has_ephemeral_home() && !server.is_finished()
}

/// Deletes one server. Returns its state and the message to print.
async fn delete(ctx: &ClusterContext, server: &ServerSummary, args: &DeleteArgs) -> Result<(ServerSummary, String)> {
    let name = server.name();
    let uid = server.metadata.uid.as_deref().unwrap_or_default();
    if server.is_finished() || args.purge {
        ctx.client.delete(name, uid, args.is_dry_run()).await?;
        ctx.ui.trace_step("deleting the server");
        if args.is_dry_run() {
            return Ok((server.clone(), format!("Server {name} would be deleted (dry run)")));
        }
        remove_host_keys(ctx, server);
        if args.wait {
            wait::until_deleted(ctx, server, args.timeout.into()).await?;
        }
        let mut deleted = server.clone();
        deleted.status.phase = Some("Deleted".to_owned());
        return Ok((deleted, format!("Deleted server {name}")));
    }
    let after = ctx.client.patch(name, json!({"spec": {"desired": "Ended"}}), None, args.is_dry_run()).await?;
    ctx.ui.trace_step("requesting the stop");
    if args.is_dry_run() {
        return Ok((after, format!("Server {name} would be deleted (dry run)")));
    }
    remove_host_keys(ctx, server);
    if args.wait {
        let finished = wait::until_finished(ctx, name, args.timeout.into()).await?;
        return Ok((finished, format!("Deleted server {name}")));
    }
    Ok((after, format!("Stopping server {name}")))
}

fn remove_host_keys(ctx: &ClusterContext, server: &ServerSummary) {
    if let Err(error) = ssh::remove_host_keys(server) {
        ctx.ui.warn(format_chain(&error));
    }
}
