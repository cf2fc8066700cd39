//! From a name to a server that accepts connections: woken, ready, with a known host key.

use std::time::Duration;

use crate::context::ClusterContext;
use crate::error::{Error, Result};
use crate::model::server::ServerSummary;
use crate::model::wake::{self, WakeAction};
use crate::resolve;
use crate::ssh::host::Host;
use crate::wait::{self, OnInterrupt};

/// Whether and how long to wait for a server.
#[derive(Clone, Copy, Debug, Default)]
pub struct WaitOptions {
    pub no_wake: bool,
    pub timeout: Option<Duration>,
}

/// A server that accepts connections.
#[derive(Clone, Debug)]
pub struct ReadyServer {
    pub server: ServerSummary,
    /// Its host name for OpenSSH.
    pub host: Host,
    pub pod: String,
    pub host_key: String,
}

/// Resolves a name, wakes the server and waits until it is ready.
pub async fn resolve_ready(
    ctx: &ClusterContext,
    typed: Option<&str>,
    node: u32,
    options: WaitOptions,
) -> Result<ReadyServer> {
    wait_ready(ctx, resolve::resolve(ctx, typed).await?, node, options).await
}

/// Wakes a server and waits until it is ready.
pub async fn wait_ready(
    ctx: &ClusterContext,
    server: ServerSummary,
    node: u32,
    options: WaitOptions,
) -> Result<ReadyServer> {
    ReadyServer::new(wake_and_wait(ctx, server, options).await?, node)
}

impl ReadyServer {
    /// Requires a server that is ready.
    pub fn new(server: ServerSummary, node: u32) -> Result<Self> {
        let pod = pod_name(&server, node)?;
        let host_key = server.status.access.as_ref().and_then(|access| access.host_key.clone()).ok_or_else(|| {
            let name = server.name();
            Error::failed(format!("server {name} has not published its host key"))
                .with_hint(format!("try again in a moment; run `devctl debug {name}` for details"))
        })?;
        Ok(Self { host: Host::new(server.name(), node), pod, host_key, server })
    }

    /// Makes this the only host key that OpenSSH accepts for the alias.
    pub fn pin_host_key(&self, alias: &str) -> Result<()> {
        super::pin_host_key(alias, &self.host_key)
    }
}

async fn wake_and_wait(ctx: &ClusterContext, server: ServerSummary, options: WaitOptions) -> Result<ServerSummary> {
    if let Some(error) = resolve::not_connectable(&server) {
        return Err(error);
    }
    match wake::wake_action(&server, &wake::new_id()) {
        WakeAction::NotNeeded if server.is_ready() => return Ok(server),
        WakeAction::NotNeeded | WakeAction::InProgress => {}
        WakeAction::Patch(_) if options.no_wake => {
            let name = server.name();
            return Err(Error::conflict(format!("server {name} is hibernated"))
                .with_hint(format!("run `devctl wake {name}`, or omit `--no-wake`")));
        }
        WakeAction::Patch(patch) => {
            ctx.ui.info(format!("Waking server {}", server.name()));
            ctx.client.patch(server.name(), patch, None, false).await?;
        }
    }
    wait::until_ready(ctx, server.name(), OnInterrupt::Detach, options.timeout).await
}

fn pod_name(server: &ServerSummary, node: u32) -> Result<String> {
    let name = server.name();
    if node >= server.nodes() {
        let nodes = match server.nodes() {
            1 => "one node".to_owned(),
            nodes => format!("nodes 0 to {}", nodes - 1),
        };
        return Err(Error::usage(format!("node {node} not found: server {name} has {nodes}"))
            .with_hint(format!("run `devctl show {name}` to see its nodes")));
    }
    Ok(format!("{name}-{node}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn server(nodes: u32) -> ServerSummary {
        let spec = json!({"home": {}, "nodes": nodes});
        serde_json::from_value(json!({"metadata": {"name": "box"}, "spec": spec})).unwrap()
    }

    #[test]
    fn nonexistent_node_is_rejected_with_the_range() {
        assert_eq!(pod_name(&server(2), 1).unwrap(), "box-1");
        assert!(pod_name(&server(1), 1).unwrap_err().message.contains("has one node"));
        assert!(pod_name(&server(3), 3).unwrap_err().message.contains("0 to 2"));
    }
}
