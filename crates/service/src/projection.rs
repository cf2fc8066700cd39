//! Copies the custom resources into the database, with their history.
//!
//! One worker at a time writes. It lists and watches all objects, so that the rows are complete whatever happened before,
//! and can be rebuilt from nothing. Only the newest state of each object is written; phase transitions and usage are
//! derived from the status, so they do not depend on when the projection ran.

mod kind;
mod managed_fields;
mod pending;
mod row;
mod write;

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::stream::{BoxStream, select_all};
use futures_util::{Stream, StreamExt as _};
use jiff::Timestamp;
use kube::Client;
use kube::api::{Api, DynamicObject};
use kube::runtime::{WatchStreamExt as _, watcher};
use odc_store::Store;
use odc_store::projection::Writer;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until, timeout};

use crate::worker::metrics::Metrics;
use kind::Kind;
use pending::Pending;
use row::Flavors;
use write::BatchSize;

/// How long changes are collected before they are written.
const WRITE_INTERVAL: Duration = Duration::from_millis(200);
/// The wait after a failed write.
const RETRY_INTERVAL: Duration = Duration::from_secs(2);
/// How often the connection that makes this worker the writer is checked, which needs no statement.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);
const CHECK_TIMEOUT: Duration = Duration::from_secs(5);
/// How often a worker tries to become the writer: soon after a change of the writer, then rarely, to keep idle workers
/// cheap.
const TAKEOVER_INTERVAL: Duration = Duration::from_secs(5);
const STANDBY_INTERVAL: Duration = Duration::from_secs(75);
const MAX_QUICK_ATTEMPTS: u32 = 12;

const LIST_PAGE_SIZE: u32 = 500;

/// Runs for ever: waits until no other worker writes, then writes until the connection is lost.
pub async fn run(store: &Store, client: &Client, metrics: &Metrics) {
    loop {
        let mut writer = become_writer(store).await;
        tracing::info!("became the writer of the projection");
        metrics.projection_writer.set(1);
        let projection = Projection { store, metrics, pending: Pending::default(), flavors: Flavors::default() };
        projection.write_until_lost(&mut writer, all_events(client)).await;
        metrics.projection_writer.set(0);
        metrics.pending_objects.set(0);
        tracing::warn!("lost the connection of the projection; the objects are listed again after a reconnect");
    }
}

async fn become_writer(store: &Store) -> Writer {
    let mut attempts = 0;
    loop {
        match store.try_become_writer().await {
            Ok(Some(writer)) => return writer,
            Ok(None) => attempts += 1,
            Err(error) => {
                attempts = 0;
                tracing::warn!(error = &error as &dyn std::error::Error, "cannot become the writer of the projection");
            }
        }
        sleep(if attempts < MAX_QUICK_ATTEMPTS { TAKEOVER_INTERVAL } else { STANDBY_INTERVAL }).await;
    }
}

type WatchResult = watcher::Result<watcher::Event<DynamicObject>>;

/// Watches all kinds. Each watch starts with a list, and lists again after it was interrupted for too long.
fn all_events(client: &Client) -> impl Stream<Item = (Kind, WatchResult)> + Unpin + use<> {
    let events = |kind: Kind| -> BoxStream<'static, (Kind, WatchResult)> {
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &kind.resource());
        let config = watcher::Config::default().page_size(LIST_PAGE_SIZE);
        watcher(api, config).default_backoff().map(move |event| (kind, event)).boxed()
    };
    select_all(Kind::ALL.map(events))
}

struct Projection<'a> {
    store: &'a Store,
    metrics: &'a Metrics,
    pending: Pending,
    flavors: Flavors,
}

impl Projection<'_> {
    /// Writes changes until the connection of the writer is lost. Another worker may be the writer from then on.
    async fn write_until_lost(
        mut self,
        writer: &mut Writer,
        mut events: impl Stream<Item = (Kind, WatchResult)> + Unpin,
    ) {
        let mut check = interval(CHECK_INTERVAL);
        check.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut sizes = BTreeMap::new();
        let mut write_at = None;
        loop {
            // Servers are not written before the flavors are known, so their list has to be read.
            let may_read = !self.pending.is_full() || !self.pending.is_synced(Kind::Flavor);
            tokio::select! {
                Some((kind, event)) = events.next(), if may_read => {
                    self.record(kind, event);
                    if write_at.is_none() && self.pending.is_due() {
                        write_at = Some(Instant::now() + WRITE_INTERVAL);
                    }
                }
                () = sleep_until(write_at.unwrap_or_else(Instant::now)), if write_at.is_some() => {
                    if !is_connected(writer).await {
                        return;
                    }
                    let delay = self.write(writer, &mut sizes).await;
                    write_at = self.pending.is_due().then(|| Instant::now() + delay);
                }
                _ = check.tick() => {
                    if !is_connected(writer).await {
                        return;
                    }
                }
            }
            self.metrics.pending_objects.set(i64::try_from(self.pending.len()).unwrap_or(i64::MAX));
        }
    }

    fn record(&mut self, kind: Kind, event: WatchResult) {
        match event {
            Ok(event) => {
                if let (Kind::Flavor, watcher::Event::Apply(object) | watcher::Event::InitApply(object)) =
                    (kind, &event)
                {
                    self.flavors.insert(object);
                }
                self.pending.record(kind, event, Timestamp::now());
            }
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(kind = kind.as_str(), error, "the watch was interrupted and is started again");
            }
        }
    }

    /// Writes one batch of each kind. Returns how long to wait before the next.
    async fn write(&mut self, writer: &mut Writer, sizes: &mut BTreeMap<Kind, BatchSize>) -> Duration {
        for kind in Kind::ALL {
            // Usage has the price of the flavor at the start.
            if kind == Kind::Server && !self.pending.is_synced(Kind::Flavor) {
                continue;
            }
            let size = sizes.entry(kind).or_default();
            let written =
                write::write_batch(self.store, writer, kind, &mut self.pending, &self.flavors, size, self.metrics)
                    .await;
            if let Err(error) = written {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(
                    kind = kind.as_str(),
                    pending = self.pending.len(),
                    error,
                    "cannot write the projection"
                );
                return RETRY_INTERVAL;
            }
        }
        WRITE_INTERVAL
    }
}

async fn is_connected(writer: &mut Writer) -> bool {
    matches!(timeout(CHECK_TIMEOUT, writer.check()).await, Ok(Ok(())))
}
