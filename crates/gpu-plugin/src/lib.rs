//! Advertises devices that do not exist to a kubelet, so that a cluster on one machine has GPUs
//! with ids, accounting and devices that fall ill.
//!
//! The kubelet sees an ordinary device plugin. What is decided ([`device`], [`allocation`] and
//! `registration::step`) is kept apart from what is done: [`health`] follows the directory
//! that says which devices are ill, [`registration`] keeps the plugin served and registered,
//! [`server`] answers the kubelet. No part polls; everything waits on [`directory`] or on a channel
//! and then looks at the whole state again.

pub mod allocation;
pub mod args;
pub mod device;
pub mod directory;
pub mod file_id;
pub mod health;
pub mod registration;
pub mod server;

/// The kubelet's interface as generated from `proto/deviceplugin.proto`.
pub mod proto {
    #![expect(clippy::pedantic, reason = "generated code")]
    #![allow(unused_qualifications, reason = "generated code")]
    tonic::include_proto!("v1beta1");
}

use std::sync::Arc;

use crate::args::Config;
use crate::health::Health;
use crate::registration::Registration;

/// Serves the devices until `shutdown` resolves, then closes and removes the socket.
///
/// Trouble with the kubelet is logged and retried for ever. An error means that the machine does
/// not let us watch a directory; a restart by the supervisor is the only thing left to try.
pub async fn run(config: Config, shutdown: impl Future<Output = ()>) -> Result<(), directory::Error> {
    let Config { resource, devices, sockets, ill_dir, pace } = config;
    let devices = Arc::new(devices);
    // The first list a kubelet gets must already be true, so illness is known before anything is
    // served.
    let health = Health::look(Arc::clone(&devices), ill_dir)?;
    let mut registration = Registration::new(resource, sockets, devices, health.subscribe(), pace)?;

    let ended = tokio::select! {
        Err(error) = health.follow() => Err(error),
        Err(error) = registration.keep() => Err(error),
        () = shutdown => Ok(()),
    };
    registration.close().await;
    ended
}
