//! Leaders are killed, paused and resumed at their writes, with up to two at a time, while servers are created.

use std::time::Duration;

use anyhow::Context as _;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use kube::ResourceExt as _;
use kube::api::ListParams;
use odc_api::v1alpha1::Phase;
use odc_tests::apifault::{Action, Apifault, Fault, Pattern, Plan};
use odc_tests::manifests;
use odc_tests::operator::{self, Operator};
use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use rustix::process::Signal;
use serde_json::json;

use super::admission_ledger::{AdmissionLedger, USER};
use super::faults::{send_signal, wait_exit};
use super::fixture::{Fixture, NAMESPACE, TIMEOUT, status, user, with_fixture};
use super::watch_history::WatchHistory;

/// Enough that the last leader still has something to write.
const SERVERS: usize = if cfg!(feature = "full") { 400 } else { 200 };
const SEED: u64 = 20_261_116;
/// Devices of each node.
const DEVICES_PER_NODE: i64 = 8;
/// Quota of the user: less than all devices, so that both limits are reached.
const QUOTA: i64 = 14;
/// Writes after which leaders fail.
const FAULT_WRITES: std::ops::RangeInclusive<u64> = 5..=40;

/// The proxy may count a fault after the leader has exited.
const KILL_DELAY: Duration = Duration::from_secs(5);
/// The number of leaders that may exit before the write at which they are to fail.
const MAX_LOST_LEASES: usize = 3;

/// Returns the write and the way in which each leader fails: every second write, alternately killed and paused; with feature
/// `full`, every write in both ways.
fn failures(rng: &mut StdRng) -> Vec<(u64, Action)> {
    let mut all: Vec<(u64, Action)> = if cfg!(feature = "full") {
        FAULT_WRITES.flat_map(|write| [(write, Action::Kill), (write, Action::Stop)]).collect()
    } else {
        FAULT_WRITES.step_by(2).zip([Action::Kill, Action::Stop].into_iter().cycle()).collect()
    };
    all.shuffle(rng);
    all
}

/// An operator behind its own proxy.
struct Leader {
    proxy: Apifault,
    operator: Operator,
}

impl Leader {
    async fn start(
        fixture: &Fixture<'_>,
        number: usize,
        faults: impl IntoIterator<Item = Fault>,
    ) -> anyhow::Result<Self> {
        let proxy = Apifault::start(&fixture.plane.kubeconfig, Plan::new(faults)).await?;
        let path = fixture.directory.join(format!("leader-{number}.kubeconfig"));
        proxy.kubeconfig(&path, Some(&operator::service_account_token(&fixture.plane.client).await?))?;
        let mut settings = operator::fast_timeouts();
        settings.push(("ODC_EXPIRY_GRACE", "0s"));
        let operator = Operator::spawn(&path, &fixture.directory, &settings)?;
        proxy.set_client(operator.child.id().context("the operator has exited")?)?;
        Ok(Self { proxy, operator })
    }
}

async fn finished_count(fixture: &Fixture<'_>) -> anyhow::Result<usize> {
    let all = fixture.servers.list(&ListParams::default()).await?;
    Ok(all.iter().filter(|server| status(server).phase.is_some_and(Phase::is_terminal)).count())
}

/// Creates servers, sixteen at a time, with one or more devices, and gangs.
async fn create_servers(fixture: &Fixture<'_>, rng: &mut StdRng) -> anyhow::Result<()> {
    let specs: Vec<_> = (0..SERVERS)
        .map(|number| {
            let (nodes, count) = if rng.random_range(0..10) == 0 { (2, 2) } else { (1, rng.random_range(1..5)) };
            (number, json!({"flavor": "gpu", "count": count, "nodes": nodes, "lifetime": "1s"}))
        })
        .collect();
    let created = stream::iter(specs).map(|(number, spec)| create(fixture, number, spec)).buffer_unordered(16);
    created.try_collect().await
}

async fn create(fixture: &Fixture<'_>, number: usize, spec: serde_json::Value) -> anyhow::Result<()> {
    fixture.create(&format!("r{number}"), spec).await.map(drop)
}

#[tokio::test]
async fn no_device_is_assigned_twice_while_leaders_change() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        let mut rng = StdRng::seed_from_u64(SEED);
        let mut ada = user("ada");
        ada["spec"] = json!({"quota": {"flavors": {"gpu": QUOTA}}});
        manifests::apply(&fixture.plane.client, &ada).await?;
        drop(fixture.start_operator().await?);
        fixture.release_lease().await?;
        let history = WatchHistory::start(&fixture.plane.client);
        create_servers(fixture, &mut rng).await?;
        let (mut paused, mut lost_leases): (Option<Leader>, usize) = (None, 0);
        for (number, (write, action)) in failures(&mut rng).into_iter().enumerate() {
            // Writes about servers and pods. The Lease has its own tests.
            let pattern = Pattern::default().in_namespace(NAMESPACE);
            let is_paused = matches!(action, Action::Stop);
            let mut leader =
                Leader::start(fixture, number, [Fault::write(write).matching(pattern).after(action)]).await?;
            if let Some(mut resumed) = paused.take() {
                // The previous leader resumes while this one leads. It detects that and exits.
                leader.operator.wait_ready().await?;
                send_signal(&resumed.operator, Signal::CONT)?;
                wait_exit(&mut resumed.operator).await?;
            }
            let fired = tokio::select! {
                fired = leader.proxy.wait_fired(1, TIMEOUT) => fired,
                _ = leader.operator.child.wait() => leader.proxy.wait_fired(1, KILL_DELAY).await,
            };
            if let Err(error) = fired {
                let log = leader.operator.log_tail();
                // On a busy machine, a leader may be unable to renew its lease. Then it exits before its write.
                anyhow::ensure!(log.contains("leadership lost"), "write {write} of leader {number}: {error:#}\n{log}");
                lost_leases += 1;
            }
            fixture.release_lease().await?;
            if is_paused && leader.operator.child.try_wait()?.is_none() {
                paused = Some(leader);
            } else {
                wait_exit(&mut leader.operator).await?;
            }
        }
        anyhow::ensure!(lost_leases <= MAX_LOST_LEASES, "{lost_leases} leaders did not reach their write");
        let last = Leader::start(fixture, usize::MAX, []).await?;
        last.operator.wait_ready().await?;
        if let Some(mut resumed) = paused.take() {
            send_signal(&resumed.operator, Signal::CONT)?;
            wait_exit(&mut resumed.operator).await?;
        }
        wait_all_finished(fixture).await.with_context(|| last.operator.log_tail())?;

        let nodes = ["node-1", "node-2"].map(|node| (node.to_owned(), DEVICES_PER_NODE));
        let mut ledger = AdmissionLedger::new(nodes.into_iter().chain([(USER.to_owned(), QUOTA)]));
        ledger.replay(&history.finish().await?);
        assert_eq!(ledger.violations, [""; 0]);
        // The test was effective: every server was admitted, and nodes and quota were exhausted.
        assert!(
            ledger.admissions >= SERVERS && ledger.pods >= SERVERS,
            "{} admissions, {} pods",
            ledger.admissions,
            ledger.pods
        );
        // Usage is higher only while two operators consider themselves leaders; the ledger checks that it is withdrawn.
        assert!(
            ledger.max_usage.get("node-1").max(ledger.max_usage.get("node-2")) >= Some(&DEVICES_PER_NODE),
            "{:?}",
            ledger.max_usage
        );
        assert!(ledger.max_usage.get(USER) >= Some(&(QUOTA - 1)), "{:?}", ledger.max_usage);
        let all = fixture.servers.list(&ListParams::default()).await?;
        for server in &all {
            let status = status(server);
            assert_eq!(status.phase, Some(Phase::Expired), "{}: {:?}", server.name_any(), status.last_failure);
            assert!(status.started_at.is_some(), "{} has not run", server.name_any());
        }
        assert_eq!(fixture.pods.list(&ListParams::default()).await?.items.len(), 0);
        Ok(())
    })
    .await
}

async fn wait_all_finished(fixture: &Fixture<'_>) -> anyhow::Result<()> {
    odc_tests::wait::until_count("finished servers", SERVERS, 2 * TIMEOUT, async || finished_count(fixture).await).await
}
