//! Leaders that die, sleep and wake at their writes, one after another and two at once, while people ask for devices.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context as _;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{Api, ListParams};
use kube::runtime::watcher::{self, Event};
use odc_api::v1alpha1::{DevServer, Phase};
use odc_tests::apifault::{Action, Apifault, Fault, Pattern, Plan};
use odc_tests::odc::{self, Operator};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use rustix::process::Signal;
use serde_json::json;

use super::faults::{ended, signal};
use super::stage::{LIMIT, Stage, with_stage};

const REQUESTS: usize = 200;
const SEED: u64 = 20_261_116;
const GPU: &str = "nvidia.com/gpu";
/// On each of the nodes.
const HAVE: i64 = 8;

/// What every bound pod takes, as the watch tells it, from the first to the last.
#[derive(Default)]
pub(super) struct Bound {
    /// Node and devices, by uid.
    pods: HashMap<String, (String, i64)>,
    most: i64,
    pub seen: usize,
    pub broken: Vec<String>,
}

impl Bound {
    fn see(&mut self, pod: &Pod) {
        let uid = pod.uid().unwrap_or_default();
        let over = pod
            .status
            .as_ref()
            .and_then(|status| status.phase.as_deref())
            .is_some_and(|phase| matches!(phase, "Succeeded" | "Failed"));
        let Some(node) = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).filter(|_| !over) else {
            self.pods.remove(&uid);
            return;
        };
        let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
        let devices = containers.filter_map(|container| {
            let requests = container.resources.as_ref()?.requests.as_ref()?;
            requests.get(GPU)?.0.parse::<i64>().ok()
        });
        if self.pods.insert(uid, (node.clone(), devices.sum())).is_none() {
            self.seen += 1;
        }
        let here = self.pods.values().filter(|(on, _)| *on == node);
        let taken: i64 = here.map(|(_, devices)| devices).sum();
        self.most = self.most.max(taken);
        if taken > HAVE {
            self.broken.push(format!("{taken} devices of {node} are taken at {}", pod.name_any()));
        }
    }
}

/// Watches all pods for as long as it lives.
pub(super) fn watch(stage: &Stage<'_>) -> (Arc<Mutex<Bound>>, tokio::task::JoinHandle<()>) {
    let bound = Arc::new(Mutex::new(Bound::default()));
    let pods: Api<Pod> = Api::all(stage.plane.client.clone());
    let seen = bound.clone();
    let task = tokio::spawn(async move {
        let mut events = Box::pin(watcher::watcher(pods, watcher::Config::default()));
        while let Some(event) = events.next().await {
            let mut bound = seen.lock().unwrap_or_else(PoisonError::into_inner);
            match event {
                Ok(Event::Apply(pod) | Event::InitApply(pod)) => bound.see(&pod),
                Ok(Event::Delete(pod)) => drop(bound.pods.remove(&pod.uid().unwrap_or_default())),
                Ok(Event::Init | Event::InitDone) => {}
                Err(error) => bound.broken.push(format!("the watch broke: {error}")),
            }
        }
    });
    (bound, task)
}

/// A leader behind a proxy of its own, which is to fail it at a write.
struct Leader {
    proxy: Apifault,
    operator: Operator,
}

impl Leader {
    async fn start(stage: &Stage<'_>, number: usize, fault: Fault) -> anyhow::Result<Self> {
        let proxy = Apifault::start(&stage.plane.kubeconfig, Plan::new([fault])).await?;
        let path = stage.directory.join(format!("leader-{number}.kubeconfig"));
        proxy.kubeconfig(&path, Some(&odc::token(&stage.plane.client).await?))?;
        let mut settings = odc::short_times();
        settings.push(("ODC_EXPIRY_GRACE", "0s"));
        let operator = Operator::spawn(&path, &stage.directory, &settings)?;
        proxy.client(operator.child.id().context("it runs")?)?;
        Ok(Self { proxy, operator })
    }
}

async fn are_all_over(stage: &Stage<'_>) -> anyhow::Result<bool> {
    let all = stage.servers.list(&ListParams::default()).await?;
    let over = |server: &DevServer| server.status.as_ref().and_then(|status| status.phase).is_some_and(Phase::terminal);
    Ok(all.items.len() == REQUESTS && all.iter().all(over))
}

/// Asks for devices, sixteen at a time: single ones, many, and gangs.
async fn ask(stage: &Stage<'_>, dice: &mut StdRng) -> anyhow::Result<()> {
    let specs: Vec<_> = (0..REQUESTS)
        .map(|number| {
            let (nodes, count) = if dice.random_range(0..10) == 0 { (2, 2) } else { (1, dice.random_range(1..5)) };
            (number, json!({"flavor": "gpu", "count": count, "nodes": nodes, "lifetime": "1s"}))
        })
        .collect();
    let created = stream::iter(specs).map(|(number, spec)| stage_create(stage, number, spec)).buffer_unordered(16);
    created.try_collect().await
}

async fn stage_create(stage: &Stage<'_>, number: usize, spec: serde_json::Value) -> anyhow::Result<()> {
    stage.create(&format!("r{number}"), spec).await.map(drop)
}

#[tokio::test]
async fn no_device_is_given_twice_while_leaders_come_and_go() -> anyhow::Result<()> {
    with_stage(async |stage| {
        let mut dice = StdRng::seed_from_u64(SEED);
        drop(stage.operator().await?);
        stage.forget_leader().await?;
        let (bound, watching) = watch(stage);
        ask(stage, &mut dice).await?;
        let mut paused: Option<Leader> = None;
        let mut ends: BTreeMap<&str, usize> = BTreeMap::new();
        for number in 0.. {
            anyhow::ensure!(number < 200, "they come to no end: {ends:?}");
            // Of what it writes about servers, pods and the queue; the Lease is another test's.
            let of = Pattern { namespace: Some(super::stage::NAMESPACE.into()), ..Pattern::default() };
            let (at, action) = (dice.random_range(5..80), if dice.random() { Action::Kill } else { Action::Stop });
            let word = if matches!(action, Action::Kill) { "killed" } else { "paused" };
            let mut leader = Leader::start(stage, number, Fault::write(at).of(of).after(action)).await?;
            if let Some(mut woken) = paused.take() {
                // The one before goes on where it stood, while this one leads. It finds that out, and ends.
                leader.operator.until_ready().await?;
                signal(&woken.operator, Signal::CONT)?;
                ended(&mut woken.operator).await?;
            }
            let done = tokio::select! {
                fired = leader.proxy.until_fired(1, 4 * LIMIT) => fired.map(|()| false),
                over = until_over(stage) => over.map(|()| true),
            };
            if done? {
                break;
            }
            *ends.entry(word).or_default() += 1;
            stage.forget_leader().await?;
            if word == "paused" {
                paused = Some(leader);
            } else {
                ended(&mut leader.operator).await?;
            }
        }
        watching.abort();
        let bound = std::mem::take(&mut *bound.lock().unwrap_or_else(PoisonError::into_inner));
        assert_eq!(bound.broken, [""; 0]);
        // It was worth watching: pods came and went, nodes were full, and leaders of both kinds were lost.
        assert!(bound.seen >= REQUESTS && bound.most == HAVE, "{} pods, {} at most", bound.seen, bound.most);
        assert!(ends.values().all(|times| *times >= 2) && ends.len() == 2, "{ends:?}");
        let all = stage.servers.list(&ListParams::default()).await?;
        for server in &all {
            let status = server.status.clone().unwrap_or_default();
            assert_eq!(status.phase, Some(Phase::Expired), "{}: {:?}", server.name_any(), status.last_failure);
            assert!(status.started_at.is_some(), "{} never ran", server.name_any());
        }
        assert_eq!(stage.pods.list(&ListParams::default()).await?.items.len(), 0);
        Ok(())
    })
    .await
}

async fn until_over(stage: &Stage<'_>) -> anyhow::Result<()> {
    odc_tests::wait::until("all are over", 4 * LIMIT, async || {
        anyhow::ensure!(are_all_over(stage).await?, "some are not");
        Ok(())
    })
    .await
}
