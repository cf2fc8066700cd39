//! Exclusive use of claims: a server starts only after the pods of other servers with the same claim have stopped.

use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams};
use odc_api::v1alpha1::condition::{self, Type};
use odc_api::v1alpha1::{DevServer, Phase};
use serde_json::json;

use super::faults::invalid_objects::{untyped_servers, wait_reported_invalid};
use super::fixture::{Fixture, NAMESPACE, with_fixture};

/// Sets the finalizers of a pod, which delay its deletion like a slow shutdown.
async fn set_finalizers(fixture: &Fixture<'_>, pod: &str, finalizers: &[&str]) -> anyhow::Result<()> {
    let patch = json!({"metadata": {"finalizers": finalizers}});
    fixture.pods.patch(pod, &PatchParams::default(), &Patch::Merge(&patch)).await?;
    Ok(())
}

/// Waits until a server reports that a pod uses its claim, and checks that it has no pod itself.
async fn check_waits_for(fixture: &Fixture<'_>, name: &str, pod: &str) -> anyhow::Result<()> {
    let reported = |server: &DevServer| {
        let conditions = server.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
        condition::find(conditions, Type::DiskReady).is_some_and(|condition| {
            condition.reason == "DiskInUse" && condition.message.contains(&format!("still mounted by pod {pod}"))
        })
    };
    fixture.wait_for(name, "waiting for the claim", reported).await?;
    fixture.wait_idle().await?;
    assert!(fixture.pods.get_opt(&format!("{name}-0")).await?.is_none());
    Ok(())
}

#[tokio::test]
async fn claim_is_released_when_the_pod_of_a_deleted_server_is_gone() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        let _operator = fixture.start_operator().await?;
        fixture.create_claim("home").await?;
        let home = json!({"home": {"claim": "home"}});
        fixture.create_running("first", home.clone()).await?;
        set_finalizers(fixture, "first-0", &["example.org/slow"]).await?;
        fixture.servers.delete("first", &DeleteParams::default()).await?;
        fixture.wait_deleted("first").await?;
        let terminating = |pod: Option<&Pod>| pod.is_some_and(|pod| pod.metadata.deletion_timestamp.is_some());
        fixture.wait_for_pod("first-0", "terminating", terminating).await?;
        fixture.create("second", home).await?;
        check_waits_for(fixture, "second", "first-0").await?;
        set_finalizers(fixture, "first-0", &[]).await?;
        fixture.wait_for_phase("second", Phase::Running).await.map(drop)
    })
    .await
}

#[tokio::test]
async fn invalid_server_keeps_its_claim() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        let _operator = fixture.start_operator().await?;
        fixture.create_claim("home").await?;
        let home = json!({"home": {"claim": "home"}});
        fixture.create_running("first", home.clone()).await?;
        fixture.create("second", home).await?;
        fixture.wait_for_phase("second", Phase::Pending).await?;
        let invalid = json!({"apiVersion": "odc.dev/v1alpha1", "kind": "DevServer",
            "metadata": {"name": "first", "namespace": NAMESPACE}, "spec": {"access": {"keys": "none"}}});
        fixture.store_invalid(&invalid).await?;
        wait_reported_invalid(fixture, "first").await?;
        check_waits_for(fixture, "second", "first-0").await?;
        untyped_servers(fixture).delete("first", &DeleteParams::default()).await?;
        fixture.wait_for_phase("second", Phase::Running).await.map(drop)
    })
    .await
}
