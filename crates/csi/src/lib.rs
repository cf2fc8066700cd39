//! CSI driver whose volumes are btrfs subvolumes in a [`pool`].
//!
//! Decisions have no I/O: names, capacities, capabilities, topology and pages are parsed into types ([`name`],
//! [`capacity`], [`access`], [`topology`], [`page`], [`request`]), and [`volume`] decides whether an existing object
//! satisfies a repeated request. [`pool`] and [`publish`] change the machine, through [`btrfs`] and the mount table
//! ([`mountinfo`]). [`identity`], [`controller`] and [`node`] implement the services; [`status`] maps all errors to codes.
//!
//! The driver does not know Kubernetes: the sidecars translate between its objects and CSI calls.

pub mod access;
pub mod args;
mod authority;
pub mod btrfs;
pub mod capacity;
pub mod command;
pub mod controller;
pub mod identity;
pub mod mountinfo;
pub mod name;
pub mod node;
pub mod operation;
pub mod page;
pub mod pool;
pub mod publish;
pub mod registration;
pub mod request;
pub mod server;
pub mod status;
pub mod topology;
pub mod volume;

/// The APIs of CSI and kubelet, generated from `proto/`.
pub mod proto {
    pub mod csi {
        #![expect(clippy::pedantic, reason = "generated code")]
        #![allow(unused_qualifications, reason = "generated code")]
        tonic::include_proto!("csi.v1");
    }
    pub mod registration {
        #![expect(clippy::pedantic, reason = "generated code")]
        #![allow(unused_qualifications, reason = "generated code")]
        tonic::include_proto!("pluginregistration");
    }
}

use std::sync::Arc;

use crate::args::Config;
use crate::controller::Controller;
use crate::identity::Identity;
use crate::node::Node;
use crate::operation::Operations;
use crate::pool::Pool;
use crate::registration::Registration;
use crate::server::Server;

/// Name of the driver in storage classes and volumes.
pub const DRIVER_NAME: &str = "csi.odc.dev";

/// Reason for which the driver ends.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Pool(#[from] pool::OpenError),
    #[error(transparent)]
    Server(#[from] server::Error),
    #[error(transparent)]
    Registration(#[from] registration::Error),
}

impl Error {
    /// Returns what the administrator can do.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Pool(error) => error.hint(),
            Self::Server(_) => "check that the directory of the socket exists and that no other driver serves it",
            Self::Registration(_) => "check the log of the kubelet",
        }
    }
}

/// Serves the driver until `shutdown` resolves. Mounts of volumes and of the pool stay.
pub async fn run(config: Config, shutdown: impl Future<Output = ()>) -> Result<(), Error> {
    let Config { endpoint, node, pool, pool_id, registration_socket } = config;
    let pool = Arc::new(Pool::open(pool).await?);
    let operations = Operations::default();
    let services = tonic::service::Routes::new(Identity::new(Arc::clone(&pool)).into_server())
        .add_service(Controller::new(Arc::clone(&pool), pool_id.clone(), operations.clone()).into_server())
        .add_service(Node::new(Arc::clone(&pool), node, pool_id, operations).into_server());
    let server = Server::open(&endpoint, services).await?;
    let registration = match registration_socket {
        Some(socket) => Some(Registration::open(&socket, &endpoint).await?),
        None => None,
    };
    tracing::info!("serving {}", endpoint.display());
    let result = tokio::select! {
        () = pool.maintain() => Ok(()),
        error = registration::wait_for_rejection(registration.as_ref()) => Err(Error::Registration(error)),
        () = shutdown => Ok(()),
    };
    // The kubelet must not connect to a socket that is closing.
    if let Some(registration) = registration {
        registration.close().await;
    }
    server.close().await;
    result
}
