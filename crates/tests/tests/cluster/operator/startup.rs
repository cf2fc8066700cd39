//! Admission after a start: nothing is admitted before all caches are filled, and quotas hold for concurrent requests.

use std::time::Duration;

use anyhow::Context as _;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams};
use odc_api::v1alpha1::{Admission, DevServer, Phase};
use odc_tests::apifault::{Action, Fault, Pattern, TraceEntry, Verb};
use odc_tests::{manifests, wait};
use serde_json::{Value, json};

use super::admission_ledger::{AdmissionLedger, USER};
use super::fault_harness::FaultHarness;
use super::fixture::{Fixture, NAMESPACE, TIMEOUT, status, user, with_fixture};
use super::watch_history::WatchHistory;

const DEVICES: usize = 16;
const PENDING: usize = 50;
/// How long a list is held. With all lists, the operator admits within a second.
const HOLD_DURATION: Duration = Duration::from_secs(if cfg!(feature = "full") { 4 } else { 2 });
/// Resources that the scheduler reads.
const RESOURCES: [&str; 8] = [
    "devservers.odc.dev",
    "devserverusers.odc.dev",
    "devserverflavors.odc.dev",
    "teams.odc.dev",
    "pods",
    "nodes",
    "persistentvolumeclaims",
    "namespaces",
];

async fn create_all(fixture: &Fixture<'_>, names: &[String], spec: &Value, concurrency: usize) -> anyhow::Result<()> {
    let created = stream::iter(names).map(|name| fixture.create(name, spec.clone())).buffer_unordered(concurrency);
    created.try_for_each(async |_| Ok(())).await
}

fn admission(server: &DevServer) -> Admission {
    status(server).admission.unwrap_or_default()
}

/// Waits until `count` servers run and returns their names.
async fn wait_running(fixture: &Fixture<'_>, count: usize) -> anyhow::Result<Vec<String>> {
    wait::until(&format!("{count} running servers"), TIMEOUT, async || {
        let all = fixture.servers.list(&ListParams::default()).await?;
        let is_running = |server: &&DevServer| status(server).phase == Some(Phase::Running);
        let running: Vec<String> = all.iter().filter(is_running).map(ResourceExt::name_any).collect();
        anyhow::ensure!(running.len() == count, "{} are running", running.len());
        Ok(running)
    })
    .await
}

#[tokio::test]
async fn nothing_is_admitted_before_all_lists_are_complete() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        let mut harness = FaultHarness::start(fixture).await?;
        let names: Vec<String> = (0..DEVICES + PENDING).map(|number| format!("s-{number:02}")).collect();
        create_all(fixture, &names, &json!({"flavor": "gpu"}), 16).await?;
        for resource in RESOURCES {
            let running = wait_running(fixture, DEVICES).await.with_context(|| harness.operator.log_tail())?;
            // A server is deleted while no operator leads, so that a pending one can be admitted.
            harness.operator.kill().await?;
            let deleted = running.first().context("no server runs")?;
            fixture.servers.delete(deleted, &DeleteParams::default()).await?;
            fixture.wait_pod_deleted(&format!("{deleted}-0")).await?;
            let (since, fired) = (harness.proxy.trace().len(), harness.proxy.fired());
            harness.proxy.add(Fault::request(1).matching(Pattern::verb(Verb::List, resource)).after(Action::Hold));
            harness.spawn_next().await?;
            harness.proxy.wait_fired(fired + 1, TIMEOUT).await?;
            tokio::time::sleep(HOLD_DURATION).await;
            let trace = harness.proxy.trace();
            let early: Vec<&TraceEntry> =
                trace.iter().skip(since).filter(|entry| entry.write && entry.namespace == NAMESPACE).collect();
            assert!(early.is_empty(), "without {resource}: {early:#?}");
            harness.proxy.release();
        }
        wait_running(fixture, DEVICES).await.with_context(|| harness.operator.log_tail())?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn concurrent_servers_do_not_exceed_the_quota() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        let _operator = fixture.start_operator().await?;
        for (round, quota) in
            [json!({"flavors": {"gpu": 3}}), json!({"devices": 3}), json!({"servers": 3})].iter().enumerate()
        {
            let mut ada = user("ada");
            ada["spec"] = json!({"quota": quota});
            manifests::apply(&fixture.plane.client, &ada).await?;
            let history = WatchHistory::start(&fixture.plane.client);
            let before: Vec<String> = (0..2).map(|number| format!("before{round}-{number}")).collect();
            create_all(fixture, &before, &json!({"flavor": "gpu"}), 2).await?;
            for name in &before {
                fixture.wait_for_phase(name, Phase::Running).await?;
            }
            let names: Vec<String> = (0..64).map(|number| format!("after{round}-{number:02}")).collect();
            create_all(fixture, &names, &json!({"flavor": "gpu"}), names.len()).await?;
            // One more server runs, and all others report the reason.
            let all = wait::until("reasons of pending servers", TIMEOUT, async || {
                let all = fixture.servers.list(&ListParams::default()).await?;
                for server in all.iter().filter(|server| admission(server).nodes.is_empty()) {
                    let status = status(server);
                    let report = format!("{:?} {:?}", status.conditions, status.admission);
                    anyhow::ensure!(report.contains("QuotaExceeded"), "{quota}: {} {report}", server.name_any());
                }
                Ok(all)
            })
            .await?;
            let admitted = all.iter().filter(|server| !admission(server).nodes.is_empty()).count();
            assert_eq!(admitted, 3, "{quota}");
            let running = wait_running(fixture, 3).await?;
            assert!(before.iter().all(|name| running.contains(name)), "{quota}: {running:?}");
            let mut ledger = AdmissionLedger::new([(USER.to_owned(), 3)]);
            ledger.replay(&history.finish().await?);
            assert_eq!(ledger.violations, [""; 0], "{quota}");
            assert!(ledger.admissions >= 3, "{quota}: {} admissions in the history", ledger.admissions);
            for name in before.iter().chain(&names) {
                fixture.servers.delete(name, &DeleteParams::default()).await?;
            }
            wait::until("all pods deleted", TIMEOUT, async || {
                let left = fixture.pods.list(&ListParams::default()).await?.items.len();
                anyhow::ensure!(left == 0, "{left} pods are left");
                Ok(())
            })
            .await?;
        }
        Ok(())
    })
    .await
}
