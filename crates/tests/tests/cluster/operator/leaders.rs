//! The Lease by which operators lead is deleted and spoilt by hand while people ask for devices.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use futures_util::StreamExt as _;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::runtime::watcher::{self, Event};
use odc_api::v1alpha1::{Admission, DevServer, Phase};
use odc_tests::odc::{self, Operator};
use odc_tests::wait;
use serde_json::json;

use super::grants::Ledger;
use super::history::History;
use super::stage::{LEASE, LIMIT, Stage, with_stage};

/// A leader has to be there again so long after.
const AGAIN: Duration = Duration::from_secs(15 + 2);
/// What a busy machine takes for starting a process and for looking at it.
const SLACK: Duration = Duration::from_secs(5);
const TIMES: usize = if cfg!(feature = "full") { 50 } else { 6 };

/// Two operators, as they are installed: whichever ends is started again.
struct Pair<'a> {
    stage: &'a Stage<'a>,
    operators: [Operator; 2],
}

impl<'a> Pair<'a> {
    async fn start(stage: &'a Stage<'a>) -> anyhow::Result<Self> {
        let first = stage.operator().await?;
        Ok(Self { stage, operators: [first, spawn(stage)?] })
    }

    fn keep(&mut self) -> anyhow::Result<()> {
        for operator in &mut self.operators {
            if operator.child.try_wait()?.is_some() {
                *operator = spawn(self.stage)?;
            }
        }
        Ok(())
    }

    /// How many lead. One that is just starting does not.
    async fn leading(&self) -> usize {
        let mut leading = 0;
        for operator in &self.operators {
            let metrics = operator.get("/metrics").await.unwrap_or_default();
            leading += usize::from(metrics.contains("odc_leading 1"));
        }
        leading
    }

    /// Waits for a leader with a higher number than that; gives its own.
    async fn until_led_after(&mut self, before: i32) -> anyhow::Result<i32> {
        let started = Instant::now();
        loop {
            self.keep()?;
            let (leading, now) = (self.leading().await, held(self.stage).await?);
            match now {
                Some(now) if now > before && leading == 1 => return Ok(now),
                now if started.elapsed() > AGAIN + SLACK => anyhow::bail!(
                    "after {before}: {leading} lead by {now:?}\n{}\n{}",
                    self.operators[0].words(),
                    self.operators[1].words()
                ),
                _ => tokio::time::sleep(Duration::from_millis(200)).await,
            }
        }
    }
}

fn spawn(stage: &Stage<'_>) -> anyhow::Result<Operator> {
    Operator::spawn(&stage.kubeconfig, &stage.directory, &odc::short_times())
}

/// By which number somebody leads, if anybody does whom we started.
async fn held(stage: &Stage<'_>) -> anyhow::Result<Option<i32>> {
    let spec = stage.leases().get_opt(LEASE).await?.and_then(|lease| lease.spec);
    let ours = spec.filter(|spec| spec.holder_identity.as_deref().is_some_and(|holder| holder.starts_with(LEASE)));
    Ok(ours.and_then(|spec| spec.lease_transitions))
}

/// By which leader it was granted.
fn epoch(server: &DevServer) -> Option<i64> {
    server.status.as_ref().and_then(|status| status.admission.as_ref()).map(|admission| admission.epoch)
}

/// Every grant that was ever stored, by the server's uid, and what should not have been.
#[derive(Default)]
struct Granted {
    last: HashMap<String, Admission>,
    epochs: Vec<i64>,
    broken: Vec<String>,
}

impl Granted {
    fn see(&mut self, server: &DevServer) {
        let Some(now) = server.status.as_ref().and_then(|status| status.admission.clone()) else { return };
        if let Some(before) = self.last.get(&server.uid().unwrap_or_default())
            && (now.epoch < before.epoch || now.run < before.run)
        {
            self.broken.push(format!("{}: {before:?} became {now:?}", server.name_any()));
        }
        if !self.epochs.contains(&now.epoch) {
            self.epochs.push(now.epoch);
        }
        self.last.insert(server.uid().unwrap_or_default(), now);
    }
}

fn watch(stage: &Stage<'_>) -> (Arc<Mutex<Granted>>, tokio::task::JoinHandle<()>) {
    let granted = Arc::new(Mutex::new(Granted::default()));
    let (servers, seen) = (stage.servers.clone(), granted.clone());
    let task = tokio::spawn(async move {
        let mut events = Box::pin(watcher::watcher(servers, watcher::Config::default()));
        while let Some(event) = events.next().await {
            let mut granted = seen.lock().unwrap_or_else(PoisonError::into_inner);
            match event {
                Ok(Event::Apply(server) | Event::InitApply(server)) => granted.see(&server),
                Ok(Event::Delete(_) | Event::Init | Event::InitDone) => {}
                Err(error) => granted.broken.push(format!("the watch broke: {error}")),
            }
        }
    });
    (granted, task)
}

/// Asks for devices for as long as it runs, more than there are.
async fn ask(stage: &Stage<'_>) -> anyhow::Result<()> {
    for number in 0.. {
        let count = number % 4 + 1;
        let spec = json!({"flavor": "gpu", "count": count, "lifetime": "2s"});
        stage.create(&format!("r{number}"), spec).await?;
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    Ok(())
}

#[tokio::test]
async fn whatever_becomes_of_the_lease_there_is_one_leader_again_with_a_higher_number() -> anyhow::Result<()> {
    with_stage(async |stage| {
        let mut pair = Pair::start(stage).await?;
        let history = History::begin(&stage.plane.client);
        let (granted, following) = watch(stage);
        let numbers = tokio::select! {
            asked = ask(stage) => asked.map(|()| Vec::new()),
            numbers = spoil(stage, &mut pair) => numbers,
        }?;
        anyhow::ensure!(numbers.is_sorted_by(|before, after| before < after), "{numbers:?}");
        following.abort();
        let mut ledger = Ledger::new(["node-1", "node-2"].map(|node| (node.to_owned(), 8)));
        ledger.play(&history.end().await?);
        let granted = std::mem::take(&mut *granted.lock().unwrap_or_else(PoisonError::into_inner));
        assert_eq!((ledger.broken, granted.broken), (vec![], vec![]));
        // It was worth watching: pods came, and every new leader decided something.
        assert!(ledger.pods >= TIMES && granted.epochs.len() >= TIMES, "{} pods, {:?}", ledger.pods, granted.epochs);
        Ok(())
    })
    .await
}

/// Gives the numbers of all leaders, one after the other.
async fn spoil(stage: &Stage<'_>, pair: &mut Pair<'_>) -> anyhow::Result<Vec<i32>> {
    let mut numbers = vec![held(stage).await?.context("somebody leads")?];
    for time in 0..TIMES {
        if time % 2 == 0 {
            stage.leases().delete(LEASE, &DeleteParams::default()).await?;
        } else {
            let nobody = json!({"spec": {"holderIdentity": "nobody anybody knows"}});
            stage.leases().patch(LEASE, &PatchParams::default(), &Patch::Merge(nobody)).await?;
        }
        let last = numbers.last().copied().unwrap_or_default();
        numbers.push(pair.until_led_after(last).await?);
        // It leads for a while, so that it grants something.
        let leader = numbers.last().map(|number| i64::from(*number));
        wait::until("something is granted", LIMIT, async || {
            let servers = stage.servers.list(&ListParams::default()).await?;
            anyhow::ensure!(servers.iter().any(|server| epoch(server) == leader), "nothing by {leader:?}");
            Ok(())
        })
        .await?;
    }
    Ok(numbers)
}

#[tokio::test]
async fn a_lease_that_was_deleted_while_nobody_led_does_not_set_the_number_back() -> anyhow::Result<()> {
    with_stage(async |stage| {
        for _ in 0..2 {
            stage.operator().await?.kill().await?;
            stage.forget_leader().await?;
        }
        let mut third = stage.operator().await?;
        stage.create("before", json!({"flavor": "gpu"})).await?;
        assert_eq!(epoch(&stage.until_phase("before", Phase::Running).await?), Some(3));
        third.kill().await?;
        stage.leases().delete(LEASE, &DeleteParams::default()).await?;
        // Nobody can know whether the third still leads, so the fourth waits; then it takes the next number.
        let _fourth = stage.operator().await?;
        stage.create("after", json!({"flavor": "gpu"})).await?;
        assert_eq!(epoch(&stage.until_phase("after", Phase::Running).await?), Some(4));
        assert_eq!(held(stage).await?, Some(4));
        assert_eq!(epoch(&stage.servers.get("before").await?), Some(3));
        Ok(())
    })
    .await
}
