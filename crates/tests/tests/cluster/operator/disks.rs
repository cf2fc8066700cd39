//! Claims that only one can use: nobody begins to write to one before everybody else has ended.

use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams};
use odc_api::v1alpha1::condition::{self, Type};
use odc_api::v1alpha1::{DevServer, Phase};
use serde_json::json;

use super::faults::{any_servers, until_told};
use super::stage::{NAMESPACE, Stage, with_stage};

/// Keeps a pod from going, as a slow end would, or lets it go.
async fn hold(stage: &Stage<'_>, pod: &str, finalizers: &[&str]) -> anyhow::Result<()> {
    let patch = json!({"metadata": {"finalizers": finalizers}});
    stage.pods.patch(pod, &PatchParams::default(), &Patch::Merge(&patch)).await?;
    Ok(())
}

/// Waits until a server is told that a pod has its disk, and sees that it is not made meanwhile.
async fn check_waits_for(stage: &Stage<'_>, name: &str, pod: &str) -> anyhow::Result<()> {
    let told = |server: &DevServer| {
        let conditions = server.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
        condition::find(conditions, Type::DiskReady).is_some_and(|condition| {
            condition.reason == "DiskInUse" && condition.message.contains(&format!("still mounted by pod {pod}"))
        })
    };
    stage.until(name, "told who has its disk", told).await?;
    stage.quiet().await?;
    assert!(stage.pods.get_opt(&format!("{name}-0")).await?.is_none());
    Ok(())
}

#[tokio::test]
async fn a_disk_is_given_on_when_the_pod_of_a_deleted_server_is_gone() -> anyhow::Result<()> {
    with_stage(async |stage| {
        let _operator = stage.operator().await?;
        stage.claim("home").await?;
        let home = json!({"home": {"claim": "home"}});
        stage.create("first", home.clone()).await?;
        stage.until_phase("first", Phase::Running).await?;
        hold(stage, "first-0", &["example.org/slow"]).await?;
        stage.servers.delete("first", &DeleteParams::default()).await?;
        stage.until_gone("first").await?;
        let leaving = |pod: Option<&Pod>| pod.is_some_and(|pod| pod.metadata.deletion_timestamp.is_some());
        stage.until_pod("first-0", "on its way out", leaving).await?;
        stage.create("second", home).await?;
        check_waits_for(stage, "second", "first-0").await?;
        hold(stage, "first-0", &[]).await?;
        stage.until_phase("second", Phase::Running).await.map(drop)
    })
    .await
}

#[tokio::test]
async fn a_server_nobody_can_read_any_more_keeps_its_disk() -> anyhow::Result<()> {
    with_stage(async |stage| {
        let _operator = stage.operator().await?;
        stage.claim("home").await?;
        let home = json!({"home": {"claim": "home"}});
        stage.create("first", home.clone()).await?;
        stage.until_phase("first", Phase::Running).await?;
        stage.create("second", home).await?;
        stage.until_phase("second", Phase::Pending).await?;
        let unreadable = json!({"apiVersion": "odc.dev/v1alpha1", "kind": "DevServer",
            "metadata": {"name": "first", "namespace": NAMESPACE}, "spec": {"access": {"keys": "none"}}});
        stage.store_by_other_rules(&unreadable).await?;
        until_told(stage, "first").await?;
        check_waits_for(stage, "second", "first-0").await?;
        any_servers(stage).delete("first", &DeleteParams::default()).await?;
        stage.until_phase("second", Phase::Running).await.map(drop)
    })
    .await
}
