//! From a name to a server one can connect to: woken, waited for, its host key known.

use std::time::Duration;

use crate::app::App;
use crate::failure::{Failure, Result};
use crate::find;
use crate::glance::Glance;
use crate::ssh::host::Host;
use crate::ssh::known_hosts;
use crate::wait::{self, Interrupt};
use crate::waking::{self, Waking};

/// How long and for what to wait.
#[derive(Clone, Copy, Debug, Default)]
pub struct Patience {
    pub no_wake: bool,
    pub limit: Option<Duration>,
}

/// A server that can be connected to.
#[derive(Clone, Debug)]
pub struct Arrived {
    pub server: Glance,
    /// What OpenSSH calls it.
    pub host: Host,
    pub pod: String,
    pub host_key: String,
}

/// Finds the server; wakes it and waits for it if need be.
pub async fn arrive(app: &App, typed: Option<&str>, node: u32, patience: Patience) -> Result<Arrived> {
    reach(app, find::server(app, typed).await?, node, patience).await
}

/// Wakes a server that was found and waits for it if need be.
pub async fn reach(app: &App, server: Glance, node: u32, patience: Patience) -> Result<Arrived> {
    Arrived::at(ready(app, server, patience).await?, node)
}

impl Arrived {
    /// A server that is known to be ready.
    pub fn at(server: Glance, node: u32) -> Result<Self> {
        let pod = pod(&server, node)?;
        let host_key = server.status.access.as_ref().and_then(|access| access.host_key.clone()).ok_or_else(|| {
            let name = server.name();
            Failure::failed(format!("{name} does not say its host key, so nobody could tell it from another"))
                .advise(format!("Wait a moment and try again; devctl debug {name} says more."))
        })?;
        Ok(Self { host: Host::new(server.name(), node), pod, host_key, server })
    }

    /// Whatever the host is called, OpenSSH will find this key for it and no other.
    pub fn pin(&self, alias: &str) -> Result<()> {
        known_hosts::pin(&super::places()?.known_hosts(), alias, &self.host_key)
            .map_err(|error| Failure::failed(crate::failure::chain(&error)))
    }
}

async fn ready(app: &App, server: Glance, patience: Patience) -> Result<Glance> {
    if let Some(failure) = find::not_reachable(&server) {
        return Err(failure);
    }
    match waking::waking(&server, &waking::new_id()) {
        Waking::Awake if server.ready() => return Ok(server),
        Waking::Awake | Waking::UnderWay => {}
        Waking::By(_) if patience.no_wake => {
            let name = server.name();
            return Err(Failure::conflict(format!("{name} is asleep"))
                .advise(format!("devctl wake {name} wakes it, and so does this command without --no-wake.")));
        }
        Waking::By(patch) => {
            app.talk.say(format!("Waking {}", server.name()));
            app.backend.change(server.name(), patch, None, false).await?;
        }
    }
    wait::until_ready(app, server.name(), Interrupt::Leaves, patience.limit).await
}

/// The pod of a node.
fn pod(server: &Glance, node: u32) -> Result<String> {
    let name = server.name();
    if node >= server.nodes() {
        let has = match server.nodes() {
            1 => "has one node".to_owned(),
            nodes => format!("has the nodes 0 to {}", nodes - 1),
        };
        return Err(Failure::usage(format!("{name} {has}, so there is no node {node}"))
            .advise(format!("devctl show {name} lists its nodes.")));
    }
    Ok(format!("{name}-{node}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn gang(nodes: u32) -> Glance {
        let spec = json!({"home": {}, "nodes": nodes});
        serde_json::from_value(json!({"metadata": {"name": "box"}, "spec": spec})).unwrap()
    }

    #[test]
    fn a_node_that_is_not_there_is_named() {
        assert_eq!(pod(&gang(2), 1).unwrap(), "box-1");
        assert!(pod(&gang(1), 1).unwrap_err().message.contains("has one node"));
        assert!(pod(&gang(3), 3).unwrap_err().message.contains("0 to 2"));
    }
}
