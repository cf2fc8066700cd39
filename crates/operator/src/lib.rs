//! The ODC operator: controllers for servers, disks, users, teams and flavors, the scheduler, and the `queue.odc.dev` API.
//!
//! Controllers read the caches, call `odc-core` for a plan, and execute it. All state needed for correctness is stored
//! in the API server; this process holds only caches and soft state, which can be lost at any time.

pub mod agents;
mod api_server_clock;
mod apply;
mod cache;
mod client;
mod config;
mod context;
mod controller;
mod devserver;
mod disk;
mod dynamic_api;
mod error;
mod error_policy;
mod events;
#[cfg(test)]
mod fake;
mod flavor;
mod health;
mod image_entrypoint;
mod invalid_objects;
mod leader;
mod leader_tasks;
mod managed_secret;
mod metrics;
mod missing_nodes;
mod queue_api;
mod scheduler;
mod soft_state;
mod status_writer;
mod team;
mod user;
mod validated_servers;
mod watches;
mod work_queues;

use futures_util::future::select_all;
use kube::Client;

pub use config::{Config, Options};
pub use metrics::{MetricDescription, metric_descriptions};

use api_server_clock::Clock;
use health::Health;
use leader::{LeaderElector, Leadership};

const LEASE_NAME: &str = odc_api::label::OPERATOR;

/// Runs until the process receives a shutdown signal or loses leadership.
pub async fn run(config: Config) -> anyhow::Result<()> {
    let clock = Clock::new();
    let client = client::new(&config, &clock).await?;
    let health = Health::default();
    health.metrics.set_process_start(clock.now());
    let identity = identity();
    let elector = LeaderElector::new(&client, &config.namespace, LEASE_NAME, identity.clone());
    let health_server = health::serve(config.metrics_address, health.clone());
    let operator = async {
        tracing::info!(identity, "waiting for leadership");
        let leadership = tokio::select! {
            leadership = elector.acquire() => leadership,
            () = shutdown_signal() => return Ok(()),
        };
        tracing::info!(epoch = leadership.epoch, "became leader");
        health.metrics.set_leader_since(Some(clock.now()));
        let result = run_as_leader(config, client, clock, &leadership, &identity, &health, &elector).await;
        health.metrics.set_leader_since(None);
        result
    };
    tokio::select! {
        result = health_server => result,
        result = operator => result,
    }
}

/// Runs all tasks of the leader until leadership is lost or a shutdown is requested.
async fn run_as_leader(
    config: Config,
    client: Client,
    clock: Clock,
    leadership: &Leadership,
    identity: &str,
    health: &Health,
    elector: &LeaderElector,
) -> anyhow::Result<()> {
    let (tasks, ctx) = leader_tasks::build(config, client, clock, leadership.clone(), identity, health)?;
    let synced = watches::wait_for_sync(&ctx);
    health.set_syncing(true);
    let readiness = async {
        synced.await?;
        health.set_syncing(false);
        tracing::info!("caches synced");
        std::future::pending::<anyhow::Result<()>>().await
    };
    tokio::select! {
        () = elector.renew_until_lost(leadership) => {
            anyhow::bail!("leadership lost: another process is leader or the API server is unreachable")
        }
        result = readiness => result,
        (name, _, _) = select_all(tasks) => anyhow::bail!("operator task {name} ended unexpectedly"),
        () = shutdown_signal() => {
            // The tasks are dropped here, so no new writes are made. Releasing the Lease lets the next leader start
            // without waiting for it to expire.
            if let Err(error) = elector.release(leadership).await {
                tracing::info!(error = &error as &dyn std::error::Error, "failed to release the lease");
            }
            tracing::info!("shutting down");
            Ok(())
        }
    }
}

/// Returns an identity that is unique even if the pod is replaced by one of the same name.
fn identity() -> String {
    let host = std::env::var("ODC_POD_NAME").unwrap_or_else(|_| odc_api::label::OPERATOR.into());
    format!("{host}_{:016x}", rand::random::<u64>())
}

async fn shutdown_signal() {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut term), Ok(mut interrupt)) = (signal(SignalKind::terminate()), signal(SignalKind::interrupt())) else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = term.recv() => {}
        _ = interrupt.recv() => {}
    }
}
