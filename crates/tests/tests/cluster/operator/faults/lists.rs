//! Lists that fail or are stale.

use anyhow::Context as _;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;
use kube::api::DeleteParams;
use odc_api::v1alpha1::{DevServer, Phase};
use odc_tests::apifault::{Action, EventAction, Fault, Pattern, TraceEntry, Verb};
use odc_tests::wait;
use serde_json::json;

use super::super::fault_harness::FaultHarness;
use super::super::fixture::{TIMEOUT, status, with_fixture};
use super::{EVENTS, SERVERS, check_pods, is_stored, pod_uids};

/// More servers than fit on two pages of a list.
const LISTED_SERVERS: usize = 210;

/// Status codes of failed lists.
const LIST_ERRORS: &[u16] = if cfg!(feature = "full") { &[410, 429, 500, 503, 504] } else { &[410, 429, 503] };

#[tokio::test]
async fn list_that_fails_on_any_page_is_repeated() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        let mut harness = FaultHarness::start(fixture).await?;
        let names: Vec<String> = (0..LISTED_SERVERS).map(|number| format!("listed-{number:03}")).collect();
        let created =
            stream::iter(&names).map(|name| fixture.create(name, json!({"flavor": "none"}))).buffer_unordered(16);
        created.try_for_each(async |_| Ok(())).await?;
        for name in &names {
            fixture.wait_for_phase(name, Phase::Pending).await?;
        }
        fixture.wait_idle().await?;
        for code in LIST_ERRORS.iter().copied() {
            for page in 1..=3 {
                let case = format!("{code} for page {page}");
                let mark = fixture.plane.requests()?.len();
                let (since, fired) = (harness.proxy.trace().len(), harness.proxy.fired());
                let retry_after = (code == 429).then_some(1);
                let error = Action::Answer { code, reason: None, retry_after };
                harness.proxy.add(Fault::request(page).matching(Pattern::verb(Verb::List, SERVERS)).before(error));
                harness.restart().await.with_context(|| case.clone())?;
                assert_eq!(harness.proxy.fired(), fired + 1, "{case}");
                // The list restarts or continues, and reads all pages.
                let trace = harness.proxy.trace();
                let succeeded = |entry: &&TraceEntry| {
                    entry.verb == Verb::List && entry.resource == SERVERS && entry.code == Some(200)
                };
                let pages = trace.iter().skip(since).filter(succeeded).count();
                anyhow::ensure!((3..=5).contains(&pages), "{case}: {pages} pages were read");
                // No server is treated as deleted or new.
                fixture.wait_idle().await?;
                assert_eq!(fixture.writes_since(mark)?, [""; 0], "{case}");
            }
        }
        fixture.create_running("after", json!({})).await?;
        Ok(())
    })
    .await
}

/// Returns the number of successful lists of a resource in all namespaces so far.
fn list_count(harness: &FaultHarness<'_>, resource: &str) -> usize {
    let matches = |entry: &&TraceEntry| {
        entry.verb == Verb::List
            && entry.resource == resource
            && entry.namespace.is_empty()
            && entry.server_code == Some(200)
    };
    harness.proxy.trace().iter().filter(matches).count()
}

/// Answers the next list of a resource with a stale response and holds the events after it.
fn serve_stale_list(harness: &FaultHarness<'_>, resource: &str, nth: usize) {
    harness.proxy.add(Fault::request(1).matching(Pattern::verb(Verb::List, resource)).after(Action::OldList { nth }));
    harness.proxy.add(Fault::event(1, Pattern::resource(resource), None, EventAction::Hold));
}

/// Waits until the operator has sent such a request and received this status code.
async fn wait_response(
    harness: &FaultHarness<'_>,
    since: usize,
    verb: Verb,
    name: &str,
    code: u16,
) -> anyhow::Result<()> {
    wait::until(&format!("{code} for {verb:?} {name}"), TIMEOUT, async || {
        let trace = harness.proxy.trace();
        let mut later = trace.iter().skip(since);
        let found = later.any(|entry| entry.verb == verb && entry.name == name && entry.server_code == Some(code));
        anyhow::ensure!(found, "no such request");
        Ok(())
    })
    .await
}

/// Checks that a server is unchanged and that none of its objects was created or deleted. Its status may have changed and
/// changed back, because stale events arrive one by one.
async fn check_unchanged(harness: &FaultHarness<'_>, since: usize, before: &DevServer) -> anyhow::Result<()> {
    let server = before.name_any();
    let trace = harness.proxy.trace();
    let writes: Vec<&TraceEntry> = trace
        .iter()
        .skip(since)
        .filter(|entry| is_stored(entry) && entry.name.starts_with(&server) && entry.resource != EVENTS)
        .filter(|entry| entry.verb != Verb::Patch)
        .collect();
    assert!(writes.is_empty(), "{writes:#?}");
    let now = harness.fixture.wait_for_phase(&server, Phase::Running).await?;
    let admission = |server: &DevServer| server.status.as_ref().and_then(|status| status.admission.clone());
    assert_eq!((now.uid(), admission(&now)), (before.uid(), admission(before)));
    Ok(())
}

#[tokio::test]
async fn stale_list_after_a_restart_has_no_effect() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        // Longer than the test: a missing node is treated like an unresponsive one.
        let mut harness = FaultHarness::start_with(fixture, &[("ODC_NODE_LOST_TIMEOUT", "5m")]).await?;
        check_stale_nodes(&mut harness).await.context("nodes without the node of a server")?;
        check_stale_pods(&mut harness).await.context("pods without those of a server")?;
        check_stale_admission(&mut harness).await.context("servers before an admission")?;
        check_stale_namesake(&mut harness).await.context("a deleted server of the same name")
    })
    .await
}

async fn check_stale_nodes(harness: &mut FaultHarness<'_>) -> anyhow::Result<()> {
    let fixture = harness.fixture;
    let nth = list_count(harness, "nodes");
    fixture.plane.add_node("node-3", &[("cpu", "64"), ("memory", "512Gi"), ("ephemeral-storage", "1Ti")]).await?;
    let on_node_3 = json!({"scheduling": {"nodeLabels": {"kubernetes.io/hostname": "node-3"}}});
    let far = fixture.create_running("far", on_node_3).await?;
    let before = pod_uids(fixture).await?;
    let since = harness.proxy.trace().len();
    serve_stale_list(harness, "nodes", nth);
    harness.restart().await?;
    // Until then the operator has acted on the stale list.
    fixture.wait_idle().await?;
    harness.proxy.release();
    fixture.wait_idle().await?;
    check_unchanged(harness, since, &far).await?;
    assert_eq!(pod_uids(fixture).await?, before);
    fixture.servers.delete("far", &DeleteParams::default()).await?;
    fixture.wait_pod_deleted("far-0").await
}

async fn check_stale_pods(harness: &mut FaultHarness<'_>) -> anyhow::Result<()> {
    let fixture = harness.fixture;
    fixture.create_running("gang", json!({"flavor": "gpu", "nodes": 2})).await?;
    let before = pod_uids(fixture).await?;
    let since = harness.proxy.trace().len();
    serve_stale_list(harness, "pods", 1);
    harness.restart().await?;
    // The operator creates the pods again and gets a conflict.
    for pod in ["gang-0", "gang-1"] {
        wait_response(harness, since, Verb::Create, pod, 409).await?;
    }
    harness.proxy.release();
    fixture.wait_for_phase("gang", Phase::Running).await?;
    check_pods(harness, "gang", 2, 2).await?;
    assert_eq!(pod_uids(fixture).await?, before);
    Ok(())
}

async fn check_stale_admission(harness: &mut FaultHarness<'_>) -> anyhow::Result<()> {
    let fixture = harness.fixture;
    harness.operator.kill().await?;
    fixture.create("young", json!({})).await?;
    harness.restart().await?;
    let nth = list_count(harness, SERVERS);
    let young = fixture.wait_for_phase("young", Phase::Running).await?;
    let before = pod_uids(fixture).await?;
    let since = harness.proxy.trace().len();
    serve_stale_list(harness, SERVERS, nth);
    harness.restart().await?;
    // The pod belongs to an admission that the operator does not know, so it reads the server.
    wait_response(harness, since, Verb::Get, "young", 200).await?;
    // Until then the operator has acted on the stale list.
    fixture.wait_idle().await?;
    harness.proxy.release();
    fixture.wait_idle().await?;
    check_unchanged(harness, since, &young).await?;
    assert_eq!(pod_uids(fixture).await?, before);
    Ok(())
}

async fn check_stale_namesake(harness: &mut FaultHarness<'_>) -> anyhow::Result<()> {
    let fixture = harness.fixture;
    // Long enough for the list after the restart to contain the running server.
    let first = fixture.create_running("twin", json!({"lifetime": "15s"})).await?;
    harness.restart().await?;
    let nth = [SERVERS, "pods"].map(|resource| (resource, list_count(harness, resource)));
    fixture.servers.delete("twin", &DeleteParams::default()).await?;
    fixture.wait_deleted("twin").await?;
    fixture.wait_pod_deleted("twin-0").await?;
    let twin = fixture.create_running("twin", json!({"lifetime": "8h"})).await?;
    let before = pod_uids(fixture).await?;
    let expires_at = status(&first).expires_at.context("the first server has no expiry")?.0;
    wait::until("expiry of the first server", TIMEOUT, async || {
        anyhow::ensure!(Timestamp::now() > expires_at, "it expires at {expires_at}");
        Ok(())
    })
    .await?;
    let since = harness.proxy.trace().len();
    for (resource, nth) in nth {
        serve_stale_list(harness, resource, nth);
    }
    harness.restart().await?;
    // The operator tries to expire the first one and gets a conflict, because the object has another version.
    wait_response(harness, since, Verb::Patch, "twin", 409).await?;
    harness.proxy.release();
    wait::until("events of the second server", TIMEOUT, async || {
        let uid = twin.uid().unwrap_or_default();
        let received = harness.proxy.events().iter().any(|event| event.uid == uid && event.resource == SERVERS);
        anyhow::ensure!(received, "none");
        Ok(())
    })
    .await?;
    fixture.wait_idle().await?;
    check_unchanged(harness, since, &twin).await?;
    assert_eq!(pod_uids(fixture).await?, before);
    Ok(())
}
