//! The leader election Lease is deleted and corrupted while servers are created.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use futures_util::StreamExt as _;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::runtime::watcher::{self, Event};
use odc_api::v1alpha1::{Admission, DevServer};
use odc_tests::operator::{self, Operator};
use odc_tests::wait;
use serde_json::json;

use super::admission_ledger::AdmissionLedger;
use super::fixture::{Fixture, LEASE, TIMEOUT, status, with_fixture};
use super::watch_history::WatchHistory;

const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Interval between new servers.
const CREATE_INTERVAL: Duration = Duration::from_millis(300);
/// Number of times the Lease is deleted or corrupted.
const ROUNDS: usize = if cfg!(feature = "full") { 50 } else { 6 };

/// Two operators, as in an installation. One that exits is started again.
struct Pair<'a> {
    fixture: &'a Fixture<'a>,
    operators: [Operator; 2],
}

impl<'a> Pair<'a> {
    async fn start(fixture: &'a Fixture<'a>) -> anyhow::Result<Self> {
        let first = fixture.start_operator().await?;
        Ok(Self { fixture, operators: [first, spawn(fixture)?] })
    }

    fn restart_exited(&mut self) -> anyhow::Result<()> {
        for operator in &mut self.operators {
            if operator.child.try_wait()?.is_some() {
                *operator = spawn(self.fixture)?;
            }
        }
        Ok(())
    }

    /// Returns the number of operators that lead. One that is starting does not.
    async fn leader_count(&self) -> usize {
        let mut count = 0;
        for operator in &self.operators {
            let metrics = operator.get("/metrics").await.unwrap_or_default();
            count += usize::from(metrics.contains("odc_leader 1"));
        }
        count
    }

    /// Waits for a leader with a higher epoch, and returns its epoch.
    async fn wait_next_leader(&mut self, before: i32) -> anyhow::Result<i32> {
        let started = Instant::now();
        loop {
            self.restart_exited()?;
            let (leaders, epoch) = (self.leader_count().await, leader_epoch(self.fixture).await?);
            match epoch {
                Some(epoch) if epoch > before && leaders == 1 => return Ok(epoch),
                epoch if started.elapsed() > TIMEOUT => anyhow::bail!(
                    "{leaders} leaders with epoch {epoch:?} after epoch {before}\n{}\n{}",
                    self.operators[0].log_tail(),
                    self.operators[1].log_tail()
                ),
                _ => tokio::time::sleep(POLL_INTERVAL).await,
            }
        }
    }
}

fn spawn(fixture: &Fixture<'_>) -> anyhow::Result<Operator> {
    Operator::spawn(&fixture.kubeconfig, &fixture.directory, &operator::fast_timeouts())
}

/// Returns the epoch in the Lease if one of our operators holds it.
async fn leader_epoch(fixture: &Fixture<'_>) -> anyhow::Result<Option<i32>> {
    let spec = fixture.leases().get_opt(LEASE).await?.and_then(|lease| lease.spec);
    let held = spec.filter(|spec| spec.holder_identity.as_deref().is_some_and(|holder| holder.starts_with(LEASE)));
    Ok(held.and_then(|spec| spec.lease_transitions))
}

/// Returns the epoch of the leader that admitted a server.
fn epoch(server: &DevServer) -> Option<i64> {
    status(server).admission.map(|admission| admission.epoch)
}

/// Last admission of every server by uid, all epochs, and violations.
#[derive(Default)]
struct AdmissionLog {
    last: HashMap<String, Admission>,
    epochs: Vec<i64>,
    violations: Vec<String>,
}

impl AdmissionLog {
    fn record(&mut self, server: &DevServer) {
        let Some(current) = status(server).admission else { return };
        if let Some(before) = self.last.get(&server.uid().unwrap_or_default())
            && (current.epoch < before.epoch || current.run < before.run)
        {
            self.violations.push(format!("{}: {before:?} became {current:?}", server.name_any()));
        }
        if !self.epochs.contains(&current.epoch) {
            self.epochs.push(current.epoch);
        }
        self.last.insert(server.uid().unwrap_or_default(), current);
    }
}

fn watch(fixture: &Fixture<'_>) -> (Arc<Mutex<AdmissionLog>>, tokio::task::JoinHandle<()>) {
    let log = Arc::new(Mutex::new(AdmissionLog::default()));
    let (servers, shared) = (fixture.servers.clone(), log.clone());
    let task = tokio::spawn(async move {
        let mut events = Box::pin(watcher::watcher(servers, watcher::Config::default()));
        while let Some(event) = events.next().await {
            let mut log = shared.lock().unwrap_or_else(PoisonError::into_inner);
            match event {
                Ok(Event::Apply(server) | Event::InitApply(server)) => log.record(&server),
                // The watcher recovers from errors by itself.
                Ok(Event::Delete(_) | Event::Init | Event::InitDone) | Err(_) => {}
            }
        }
    });
    (log, task)
}

/// Creates servers until cancelled, with more devices than there are.
async fn create_servers(fixture: &Fixture<'_>) -> anyhow::Result<()> {
    for number in 0.. {
        let count = number % 4 + 1;
        let spec = json!({"flavor": "gpu", "count": count, "lifetime": "2s"});
        fixture.create(&format!("r{number}"), spec).await?;
        tokio::time::sleep(CREATE_INTERVAL).await;
    }
    Ok(())
}

#[tokio::test]
async fn deleted_or_corrupt_lease_yields_one_leader_with_higher_epoch() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        let mut pair = Pair::start(fixture).await?;
        let history = WatchHistory::start(&fixture.plane.client);
        let (log, watch_task) = watch(fixture);
        let epochs = tokio::select! {
            created = create_servers(fixture) => created.map(|()| Vec::new()),
            epochs = break_lease(fixture, &mut pair) => epochs,
        }?;
        anyhow::ensure!(epochs.is_sorted_by(|before, after| before < after), "{epochs:?}");
        watch_task.abort();
        let mut ledger = AdmissionLedger::new(["node-1", "node-2"].map(|node| (node.to_owned(), 8)));
        ledger.replay(&history.finish().await?);
        let log = std::mem::take(&mut *log.lock().unwrap_or_else(PoisonError::into_inner));
        assert_eq!((ledger.violations, log.violations), (vec![], vec![]));
        // The test was effective: pods ran, and every leader admitted servers.
        assert!(ledger.pods >= ROUNDS && log.epochs.len() >= ROUNDS, "{} pods, {:?}", ledger.pods, log.epochs);
        Ok(())
    })
    .await
}

/// Deletes or corrupts the Lease in turn, and returns the epochs of all leaders.
async fn break_lease(fixture: &Fixture<'_>, pair: &mut Pair<'_>) -> anyhow::Result<Vec<i32>> {
    let mut epochs = vec![leader_epoch(fixture).await?.context("no operator leads")?];
    for round in 0..ROUNDS {
        if round % 2 == 0 {
            fixture.leases().delete(LEASE, &DeleteParams::default()).await?;
        } else {
            let unknown = json!({"spec": {"holderIdentity": "unknown"}});
            fixture.leases().patch(LEASE, &PatchParams::default(), &Patch::Merge(unknown)).await?;
        }
        let last = epochs.last().copied().unwrap_or_default();
        epochs.push(pair.wait_next_leader(last).await?);
        let leader = epochs.last().map(|epoch| i64::from(*epoch));
        wait::until("admission by the new leader", TIMEOUT, async || {
            let servers = fixture.servers.list(&ListParams::default()).await?;
            anyhow::ensure!(servers.iter().any(|server| epoch(server) == leader), "no server has epoch {leader:?}");
            Ok(())
        })
        .await?;
    }
    Ok(epochs)
}

#[tokio::test]
async fn lease_deleted_without_a_leader_does_not_reset_the_epoch() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        for _ in 0..2 {
            fixture.start_operator().await?.kill().await?;
            fixture.release_lease().await?;
        }
        let mut third = fixture.start_operator().await?;
        assert_eq!(epoch(&fixture.create_running("before", json!({"flavor": "gpu"})).await?), Some(3));
        third.kill().await?;
        fixture.leases().delete(LEASE, &DeleteParams::default()).await?;
        // Without the Lease the fourth operator cannot know whether the third still leads, so it waits for a lease duration.
        let _fourth = fixture.start_operator().await?;
        assert_eq!(epoch(&fixture.create_running("after", json!({"flavor": "gpu"})).await?), Some(4));
        assert_eq!(leader_epoch(fixture).await?, Some(4));
        assert_eq!(epoch(&fixture.servers.get("before").await?), Some(3));
        Ok(())
    })
    .await
}
