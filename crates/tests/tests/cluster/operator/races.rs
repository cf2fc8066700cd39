//! Leaders that die, sleep and wake at their writes, one after another and two at once, while people ask for devices.

use anyhow::Context as _;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use kube::ResourceExt as _;
use kube::api::ListParams;
use odc_api::v1alpha1::{DevServer, Phase};
use odc_tests::apifault::{Action, Apifault, Fault, Pattern, Plan};
use odc_tests::odc::{self, Operator};
use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use rustix::process::Signal;
use serde_json::json;

use super::faults::{ended, signal};
use super::grants::{Ledger, USER};
use super::history::History;
use super::stage::{LIMIT, NAMESPACE, Stage, user, with_stage};

/// Enough for something to be left to write for the last leader.
const REQUESTS: usize = if cfg!(feature = "full") { 400 } else { 200 };
const SEED: u64 = 20_261_116;
/// On each of the nodes.
const HAVE: i64 = 8;
/// Of the user: less than there is, so that both limits are met.
const QUOTA: i64 = 14;
/// Leaders fail after each of these writes.
const WRITES: std::ops::RangeInclusive<u64> = 5..=40;

/// At which write each leader fails, and how: every number once, in the long tests once in each way.
fn failures(dice: &mut StdRng) -> Vec<(u64, Action)> {
    let both = |at: u64| [(at, Action::Kill), (at, Action::Stop)];
    let one = |at: u64| [(at, if at.is_multiple_of(2) { Action::Kill } else { Action::Stop })];
    let mut all: Vec<(u64, Action)> =
        if cfg!(feature = "full") { WRITES.flat_map(both).collect() } else { WRITES.flat_map(one).collect() };
    all.shuffle(dice);
    all
}

/// A leader behind a proxy of its own, which is to fail it at a write.
struct Leader {
    proxy: Apifault,
    operator: Operator,
}

impl Leader {
    async fn start(stage: &Stage<'_>, number: usize, faults: impl IntoIterator<Item = Fault>) -> anyhow::Result<Self> {
        let proxy = Apifault::start(&stage.plane.kubeconfig, Plan::new(faults)).await?;
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
        let mut ada = user("ada");
        ada["spec"] = json!({"quota": {"flavors": {"gpu": QUOTA}}});
        odc::apply(&stage.plane.client, &ada).await?;
        drop(stage.operator().await?);
        stage.forget_leader().await?;
        let history = History::begin(&stage.plane.client);
        ask(stage, &mut dice).await?;
        let mut paused: Option<Leader> = None;
        for (number, (at, action)) in failures(&mut dice).into_iter().enumerate() {
            // Of what it writes about servers, pods and the queue; the Lease is another test's.
            let of = Pattern::default().in_namespace(NAMESPACE);
            let is_paused = matches!(action, Action::Stop);
            let mut leader = Leader::start(stage, number, [Fault::write(at).of(of).after(action)]).await?;
            if let Some(mut woken) = paused.take() {
                // The one before goes on where it stood, while this one leads. It finds that out, and ends.
                leader.operator.until_ready().await?;
                signal(&woken.operator, Signal::CONT)?;
                ended(&mut woken.operator).await?;
            }
            let failed = leader.proxy.until_fired(1, LIMIT).await;
            failed.with_context(|| {
                format!("write {at} of leader {number} does not come:\n{}", leader.operator.words())
            })?;
            stage.forget_leader().await?;
            if is_paused {
                paused = Some(leader);
            } else {
                ended(&mut leader.operator).await?;
            }
        }
        let last = Leader::start(stage, usize::MAX, []).await?;
        last.operator.until_ready().await?;
        if let Some(mut woken) = paused.take() {
            signal(&woken.operator, Signal::CONT)?;
            ended(&mut woken.operator).await?;
        }
        until_over(stage).await.with_context(|| last.operator.words())?;

        let nodes = ["node-1", "node-2"].map(|node| (node.to_owned(), HAVE));
        let mut ledger = Ledger::new(nodes.into_iter().chain([(USER.to_owned(), QUOTA)]));
        ledger.play(&history.end().await?);
        assert_eq!(ledger.broken, [""; 0]);
        // It was worth watching: everybody was granted something, and nodes and quota were used up.
        assert!(
            ledger.granted >= REQUESTS && ledger.pods >= REQUESTS,
            "{} grants, {} pods",
            ledger.granted,
            ledger.pods
        );
        // More only for as long as two thought they led: the ledger checks that it was taken back.
        assert!(ledger.most.get("node-1").max(ledger.most.get("node-2")) >= Some(&HAVE), "{:?}", ledger.most);
        assert!(ledger.most.get(USER) >= Some(&(QUOTA - 1)), "{:?}", ledger.most);
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
