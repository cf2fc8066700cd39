//! Tests with an API server and without real nodes.

mod apifault;
mod crds;
mod devctl;
mod endpoint_address;
mod operator;
mod service;

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, PostParams};
use kube::runtime::{conditions, wait::await_condition};
use odc_tests::{fake_kubelet, namespace, with_control_plane, with_namespace};
use serde_json::json;

const TIMEOUT: Duration = Duration::from_secs(60);

#[tokio::test]
async fn new_namespace_accepts_pods() -> anyhow::Result<()> {
    with_namespace(async |namespace| {
        let pod = json!({"metadata": {"name": "first"}, "spec": {"containers": [{"name": "main", "image": "any"}]}});
        namespace.api::<Pod>().create(&PostParams::default(), &serde_json::from_value(pod)?).await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn dependents_of_a_deleted_owner_are_garbage_collected() -> anyhow::Result<()> {
    with_namespace(async |namespace| {
        let maps: Api<ConfigMap> = namespace.api();
        let owner = maps
            .create(&PostParams::default(), &serde_json::from_value(json!({"metadata": {"name": "owner"}}))?)
            .await?;
        let reference = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner.uid()});
        let child = serde_json::from_value(json!({"metadata": {"name": "owned", "ownerReferences": [reference]}}))?;
        let child: ConfigMap = maps.create(&PostParams::default(), &child).await?;
        maps.delete("owner", &DeleteParams::default()).await?;
        let uid = child.uid().unwrap_or_default();
        let deleted = conditions::is_deleted(&uid);
        tokio::time::timeout(TIMEOUT, await_condition(maps, "owned", deleted)).await??;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn namespaces_of_two_tests_are_isolated() -> anyhow::Result<()> {
    with_namespace(async |one| {
        one.api::<ConfigMap>()
            .create(&PostParams::default(), &serde_json::from_value(json!({"metadata": {"name": "mine"}}))?)
            .await?;
        with_namespace(async |two| {
            assert_ne!(one.name, two.name);
            assert_eq!(two.api::<ConfigMap>().get_opt("mine").await?, None);
            Ok(())
        })
        .await
    })
    .await
}

#[tokio::test]
async fn fake_kubelet_runs_scheduled_pods_and_the_audit_log_has_its_writes() -> anyhow::Result<()> {
    with_control_plane(async |plane| {
        plane.add_node("sim1", &[("cpu", "8"), ("memory", "16Gi"), ("nvidia.com/gpu", "2")]).await?;
        let pods: Api<Pod> = Api::namespaced(plane.client.clone(), "default");
        namespace::wait_ready(&plane.client, "default").await?;
        let pod = |name: &str, gpus: &str| {
            serde_json::from_value::<Pod>(json!({
                "metadata": {"name": name},
                "spec": {"containers": [{"name": "main", "image": "any", "resources": {"limits": {"nvidia.com/gpu": gpus}}}]},
            }))
        };
        pods.create(&PostParams::default(), &pod("fits", "2")?).await?;
        tokio::time::timeout(TIMEOUT, await_condition(pods.clone(), "fits", conditions::is_pod_running())).await??;

        pods.create(&PostParams::default(), &pod("waits", "1")?).await?;
        let unschedulable = |pod: Option<&Pod>| {
            let all = pod.and_then(|pod| pod.status.as_ref()).and_then(|status| status.conditions.as_ref());
            all.is_some_and(|all| all.iter().any(|condition| condition.reason.as_deref() == Some("Unschedulable")))
        };
        tokio::time::timeout(TIMEOUT, await_condition(pods.clone(), "waits", unschedulable)).await??;
        pods.delete("fits", &DeleteParams::default()).await?;
        tokio::time::timeout(TIMEOUT, await_condition(pods.clone(), "waits", conditions::is_pod_running())).await??;

        let requests = plane.requests()?;
        let write_count = |agent: &str, verb: &str, resource: &str, name: &str| {
            let writes = requests.iter().filter(|request| request.is_write() && request.agent == agent && request.verb == verb);
            writes.filter(|request| request.resource == resource && request.name == name).count()
        };
        assert_eq!(write_count(fake_kubelet::USER_AGENT, "patch", "pods/status", "fits"), 1);
        assert_eq!(write_count(fake_kubelet::USER_AGENT, "delete", "pods", "fits"), 1);
        assert_eq!(write_count("odc-tests", "create", "pods", "fits"), 1);
        assert_eq!(write_count("odc-tests", "delete", "pods", "fits"), 1);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn fake_kubelet_ignores_pods_of_a_paused_node() -> anyhow::Result<()> {
    with_control_plane(async |plane| {
        plane.add_node("paused", &[("cpu", "8"), ("memory", "16Gi")]).await?;
        plane.pause_node("paused");
        plane.add_node("active", &[("cpu", "8"), ("memory", "16Gi")]).await?;
        let pods: Api<Pod> = Api::namespaced(plane.client.clone(), "default");
        namespace::wait_ready(&plane.client, "default").await?;
        for node in ["paused", "active"] {
            let pod = json!({"metadata": {"name": node}, "spec": {"nodeName": node, "containers": [{"name": "main", "image": "any"}]}});
            pods.create(&PostParams::default(), &serde_json::from_value(pod)?).await?;
        }
        // Events arrive in order: when the later pod runs, the earlier one has been ignored.
        tokio::time::timeout(TIMEOUT, await_condition(pods.clone(), "active", conditions::is_pod_running())).await??;
        let paused = pods.get("paused").await?;
        assert_eq!(paused.status.and_then(|status| status.phase).as_deref(), Some("Pending"));
        Ok(())
    })
    .await
}
