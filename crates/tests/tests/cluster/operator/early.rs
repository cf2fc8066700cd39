//! What the queue decides from: nothing before it has seen everything, and never more than a quota allows, however many ask
//! at once.

use std::time::Duration;

use anyhow::Context as _;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams};
use odc_api::v1alpha1::{Admission, DevServer, Phase};
use odc_tests::apifault::{Action, Entry, Fault, Pattern, Verb};
use odc_tests::{odc, wait};
use serde_json::{Value, json};

use super::grants::{Ledger, USER};
use super::history::History;
use super::rig::Rig;
use super::stage::{LIMIT, NAMESPACE, Stage, user, with_stage};

const DEVICES: usize = 16;
const WAITING: usize = 50;
/// Everybody else decides within a second; so long a list is held back.
const HELD: Duration = Duration::from_secs(4);
/// What the queue has to know.
const KINDS: [&str; 8] = [
    "devservers.odc.dev",
    "devserverusers.odc.dev",
    "devserverflavors.odc.dev",
    "teams.odc.dev",
    "pods",
    "nodes",
    "persistentvolumeclaims",
    "namespaces",
];

async fn create_all(stage: &Stage<'_>, names: &[String], spec: &Value, together: usize) -> anyhow::Result<()> {
    let created = stream::iter(names).map(|name| stage.create(name, spec.clone())).buffer_unordered(together);
    created.try_for_each(async |_| Ok(())).await
}

fn admission(server: &DevServer) -> Admission {
    server.status.as_ref().and_then(|status| status.admission.clone()).unwrap_or_default()
}

/// Who runs, once so many do.
async fn until_running(stage: &Stage<'_>, count: usize) -> anyhow::Result<Vec<String>> {
    wait::until(&format!("{count} run"), LIMIT, async || {
        let all = stage.servers.list(&ListParams::default()).await?;
        let phase =
            |server: &&DevServer| server.status.as_ref().and_then(|status| status.phase) == Some(Phase::Running);
        let running: Vec<String> = all.iter().filter(phase).map(ResourceExt::name_any).collect();
        anyhow::ensure!(running.len() == count, "{} do", running.len());
        Ok(running)
    })
    .await
}

#[tokio::test]
async fn nothing_is_granted_before_everything_was_seen() -> anyhow::Result<()> {
    with_stage(async |stage| {
        let mut rig = Rig::start(stage).await?;
        let names: Vec<String> = (0..DEVICES + WAITING).map(|number| format!("s-{number:02}")).collect();
        create_all(stage, &names, &json!({"flavor": "gpu"}), 16).await?;
        for kind in KINDS {
            let running = until_running(stage, DEVICES).await.with_context(|| rig.operator.words())?;
            // One leaves while nobody leads, so that there is a place for the next.
            rig.operator.kill().await?;
            let leaves = running.first().context("somebody runs")?;
            stage.servers.delete(leaves, &DeleteParams::default()).await?;
            stage.until_pod(&format!("{leaves}-0"), "gone", |pod| pod.is_none()).await?;
            let (since, fired) = (rig.proxy.trace().len(), rig.proxy.fired());
            rig.proxy.add(Fault::request(1).of(Pattern::verb(Verb::List, kind)).after(Action::Hold));
            rig.begin_anew().await?;
            rig.proxy.until_fired(fired + 1, LIMIT).await?;
            tokio::time::sleep(HELD).await;
            let trace = rig.proxy.trace();
            let early: Vec<&Entry> =
                trace.iter().skip(since).filter(|entry| entry.write && entry.namespace == NAMESPACE).collect();
            assert!(early.is_empty(), "without {kind}: {early:#?}");
            rig.proxy.release();
        }
        until_running(stage, DEVICES).await.with_context(|| rig.operator.words())?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn of_many_who_ask_at_once_one_gets_what_is_left_of_the_quota() -> anyhow::Result<()> {
    with_stage(async |stage| {
        let _operator = stage.operator().await?;
        for (round, quota) in
            [json!({"flavors": {"gpu": 3}}), json!({"devices": 3}), json!({"servers": 3})].iter().enumerate()
        {
            let mut ada = user("ada");
            ada["spec"] = json!({"quota": quota});
            odc::apply(&stage.plane.client, &ada).await?;
            let history = History::begin(&stage.plane.client);
            let before: Vec<String> = (0..2).map(|number| format!("before{round}-{number}")).collect();
            create_all(stage, &before, &json!({"flavor": "gpu"}), 2).await?;
            for name in &before {
                stage.until_phase(name, Phase::Running).await?;
            }
            let names: Vec<String> = (0..64).map(|number| format!("asks{round}-{number:02}")).collect();
            create_all(stage, &names, &json!({"flavor": "gpu"}), names.len()).await?;
            // One more runs, and everybody else is told why not.
            let all = wait::until("everybody is told", LIMIT, async || {
                let all = stage.servers.list(&ListParams::default()).await?;
                for server in all.iter().filter(|server| admission(server).nodes.is_empty()) {
                    let status = server.status.clone().unwrap_or_default();
                    let said = format!("{:?} {:?}", status.conditions, status.admission);
                    anyhow::ensure!(said.contains("QuotaExceeded"), "{quota}: {} {said}", server.name_any());
                }
                Ok(all)
            })
            .await?;
            let granted = all.iter().filter(|server| !admission(server).nodes.is_empty()).count();
            assert_eq!(granted, 3, "{quota}");
            let running = until_running(stage, 3).await?;
            assert!(before.iter().all(|name| running.contains(name)), "{quota}: {running:?}");
            let mut ledger = Ledger::new([(USER.to_owned(), 3)]);
            ledger.play(&history.end().await?);
            assert_eq!(ledger.broken, [""; 0], "{quota}");
            assert!(ledger.granted >= 3, "{quota}: the watch told of {} grants", ledger.granted);
            for name in before.iter().chain(&names) {
                stage.servers.delete(name, &DeleteParams::default()).await?;
            }
            wait::until("all are gone", LIMIT, async || {
                let left = stage.pods.list(&ListParams::default()).await?.items.len();
                anyhow::ensure!(left == 0, "{left} are left");
                Ok(())
            })
            .await?;
        }
        Ok(())
    })
    .await
}
