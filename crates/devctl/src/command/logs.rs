//! `devctl logs`.

use clap::Args;
use futures_util::AsyncReadExt as _;
use odc_api::duration::Duration;
use odc_api::v1alpha1::Phase;

use crate::cli::shared::{NodeArg, ServerArg};
use crate::client::LogRequest;
use crate::context::ClusterContext;
use crate::error::{Error, Kind, Result};
use crate::model::server::ServerSummary;
use crate::resolve;

const BUFFER_SIZE: usize = 64 * 1024;

#[derive(Args, Debug)]
pub struct LogsArgs {
    #[command(flatten)]
    pub server: ServerArg,
    /// Follow the log
    #[arg(short, long)]
    pub follow: bool,
    #[command(flatten)]
    pub node: NodeArg,
    /// Number of lines from the end
    #[arg(long, value_name = "LINES")]
    pub tail: Option<i64>,
    /// Only lines newer than this, such as 10m
    #[arg(long, value_name = "DURATION")]
    pub since: Option<Duration>,
    /// Print a timestamp before each line
    #[arg(long)]
    pub timestamps: bool,
    /// Print the log of the container before its last restart
    #[arg(short, long)]
    pub previous: bool,
}

pub async fn run(ctx: &ClusterContext, args: LogsArgs) -> Result<()> {
    let server = resolve::resolve(ctx, args.server.name.as_deref()).await?;
    let request = LogRequest {
        pod: format!("{}-{}", server.name(), args.node.node),
        container: None,
        follow: args.follow,
        tail: args.tail,
        since: args.since.map(Into::into),
        timestamps: args.timestamps,
        previous: args.previous,
    };
    let mut stream = match ctx.client.logs(request).await {
        Ok(stream) => stream,
        // The pod is gone. The status has the log tail of a failed server.
        Err(error) if error.kind == Kind::NotFound => return print_log_tail(ctx, &server, args.node.node),
        Err(error) => return Err(starting_error(&server).unwrap_or(error)),
    };
    let mut buffer = vec![0; BUFFER_SIZE];
    loop {
        let count = stream.read(&mut buffer).await.map_err(|error| {
            Error::failed(format!("lost the log stream of server {}: {error}", server.name())).with_hint("try again")
        })?;
        if count == 0 {
            return Ok(());
        }
        ctx.out.write(&buffer[..count])?;
    }
}

/// Prints the log tail in the status of a server without a pod.
fn print_log_tail(ctx: &ClusterContext, server: &ServerSummary, node: u32) -> Result<()> {
    let name = server.name();
    if node >= server.nodes() {
        return Err(Error::usage(format!("node {node} not found: server {name} has {} nodes", server.nodes()))
            .with_hint("nodes are numbered from 0"));
    }
    let log_tail = server.status.last_failure.as_ref().and_then(|failure| failure.log_tail.as_deref());
    if let Some(text) = log_tail {
        ctx.ui.note(format!("server {name} is not running; showing the end of its last log"));
        return ctx.out.print(&format!("{}\n", text.trim_end_matches('\n')));
    }
    let error = Error::conflict(match server.phase() {
        Some(Phase::Hibernated | Phase::Hibernating) => {
            format!("no logs available: server {name} is hibernated and its pod was deleted")
        }
        Some(phase) if phase.is_terminal() => {
            format!("no logs available: server {name} has finished and its pod was deleted")
        }
        _ => format!("no logs available: server {name} is not running yet"),
    });
    Err(error.with_hint(format!("run `devctl debug {name}` for details")))
}

/// Kubernetes returns an error while the container is being created.
fn starting_error(server: &ServerSummary) -> Option<Error> {
    let name = server.name();
    (server.phase() == Some(Phase::Starting)).then(|| {
        Error::conflict(format!("no logs available: server {name} is starting"))
            .with_hint(format!("run `devctl debug {name}` for details"))
    })
}
