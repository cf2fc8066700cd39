//! `odc worker`: executes accepted requests and writes the projection.
//!
//! Messages are delivered at least once. The execution of a request can be repeated, and its result is stored only for the
//! delivery that is current, so that every request ends exactly once.

mod answer;
mod consumer;
mod decision;
mod execute;
mod health;
mod in_progress;
mod listener;
pub(crate) mod metrics;
mod options;
mod results;
mod upkeep;

use std::pin::pin;
use std::time::Duration;

use kube::Client;
use odc_api::label;
use odc_store::Store;
use tokio::time::sleep;

use crate::{kube_client, projection};
use consumer::Consumer;
use health::Health;
use listener::Notifications;

pub use metrics::metric_descriptions;
pub use options::Options;

/// How often the version of the schema is read until the database is migrated.
const MIGRATION_CHECK_INTERVAL: Duration = Duration::from_secs(2);

/// Runs until the process receives a shutdown signal.
pub async fn run(options: Options) -> anyhow::Result<()> {
    let store = Store::new(&options.database.settings(label::WORKER)?);
    let client = kube_client::new(options.kubeconfig.as_deref(), label::WORKER).await?;
    let health = Health::default();
    let server = health::serve(options.metrics_address, health.clone());
    tokio::select! {
        result = server => result,
        () = work(options, store, client, health) => Ok(()),
    }
}

async fn work(options: Options, store: Store, client: Client, health: Health) {
    let mut shutdown = pin!(shutdown_signal());
    let start = async {
        wait_until_migrated(&store).await;
        listener::start(&store).await
    };
    let listener = tokio::select! {
        listener = start => listener,
        () = &mut shutdown => return,
    };
    let settings = options.settings();
    let metrics = health.metrics.clone();
    let notifications = Notifications::default();
    let poll_interval = settings.poll_interval;
    let consumer = Consumer::new(store.clone(), client.clone(), settings, notifications.clone(), health);
    // All tasks but the consumer can be interrupted at any time.
    tokio::select! {
        () = consumer.run(shutdown) => {}
        () = listener::listen(&store, listener, &notifications, poll_interval, &metrics) => {}
        () = projection::run(&store, &client, &metrics) => {}
        () = upkeep::enforce_retention(&store, options.retention()) => {}
        () = upkeep::measure_queues(&store, &metrics) => {}
    }
}

async fn wait_until_migrated(store: &Store) {
    loop {
        match store.is_migrated().await {
            Ok(true) => return,
            Ok(false) => tracing::warn!("waiting for `odc migrate`: the schema is older than this program"),
            Err(error) => tracing::warn!(error = &error as &dyn std::error::Error, "waiting for the database"),
        }
        sleep(MIGRATION_CHECK_INTERVAL).await;
    }
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
