//! Kubelet device plugin that advertises simulated GPUs, with ids, allocation and health.
//!
//! Decisions ([`device`], [`allocation`] and `registration::step`) are separate from I/O: [`health`]
//! watches the directory of unhealthy devices, [`registration`] keeps the plugin served and
//! registered, [`server`] implements the device plugin API. Nothing polls: all modules wait for
//! [`dir_watcher`] or a channel and then read the whole state again.

pub mod allocation;
pub mod args;
pub mod device;
pub mod dir_watcher;
pub mod file_id;
pub mod health;
pub mod registration;
pub mod server;

/// The device plugin API, generated from `proto/deviceplugin.proto`.
pub mod proto {
    #![expect(clippy::pedantic, reason = "generated code")]
    #![allow(unused_qualifications, reason = "generated code")]
    tonic::include_proto!("v1beta1");
}

use std::sync::Arc;

use crate::args::Config;
use crate::health::HealthWatcher;
use crate::registration::Registration;

/// Serves the devices until `shutdown` resolves, then closes and removes the socket.
///
/// Failures of the kubelet are logged and retried. An error is returned only if a directory cannot
/// be watched, which requires a restart.
pub async fn run(config: Config, shutdown: impl Future<Output = ()>) -> Result<(), dir_watcher::Error> {
    let Config { resource, devices, sockets, unhealthy_dir, retry_policy } = config;
    let devices = Arc::new(devices);
    // Read the health before serving, so that the first list is correct.
    let health = HealthWatcher::scan(Arc::clone(&devices), unhealthy_dir)?;
    let mut registration = Registration::new(resource, sockets, devices, health.subscribe(), retry_policy)?;

    let result = tokio::select! {
        Err(error) = health.watch() => Err(error),
        Err(error) = registration.run() => Err(error),
        () = shutdown => Ok(()),
    };
    registration.close().await;
    result
}
