//! Tests that need an API server but no node.

mod address;
mod apifault;
mod definitions;
mod devctl;
mod operator;

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, PostParams};
use kube::runtime::{conditions, wait::await_condition};
use odc_tests::{PLAYER, with_control_plane, with_namespace};
use serde_json::json;

const LIMIT: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_namespace_takes_pods_from_the_start() -> anyhow::Result<()> {
    with_namespace(async |namespace| {
        let pod = json!({"metadata": {"name": "first"}, "spec": {"containers": [{"name": "main", "image": "any"}]}});
        namespace.api::<Pod>().create(&PostParams::default(), &serde_json::from_value(pod)?).await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn what_an_owner_leaves_behind_is_collected() -> anyhow::Result<()> {
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
        let gone = conditions::is_deleted(&uid);
        tokio::time::timeout(LIMIT, await_condition(maps, "owned", gone)).await??;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn two_tests_do_not_see_each_others_objects() -> anyhow::Result<()> {
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
async fn a_pod_is_scheduled_by_its_gpus_played_and_counted() -> anyhow::Result<()> {
    with_control_plane(async |plane| {
        plane.add_node("sim1", &[("cpu", "8"), ("memory", "16Gi"), ("nvidia.com/gpu", "2")]).await?;
        let pods: Api<Pod> = Api::namespaced(plane.client.clone(), "default");
        odc_local::cluster::takes_pods(&plane.client, "default").await?;
        let pod = |name: &str, gpus: &str| {
            serde_json::from_value::<Pod>(json!({
                "metadata": {"name": name},
                "spec": {"containers": [{"name": "main", "image": "any", "resources": {"limits": {"nvidia.com/gpu": gpus}}}]},
            }))
        };
        pods.create(&PostParams::default(), &pod("fits", "2")?).await?;
        tokio::time::timeout(LIMIT, await_condition(pods.clone(), "fits", conditions::is_pod_running())).await??;

        pods.create(&PostParams::default(), &pod("waits", "1")?).await?;
        let unschedulable = |pod: Option<&Pod>| {
            let all = pod.and_then(|pod| pod.status.as_ref()).and_then(|status| status.conditions.as_ref());
            all.is_some_and(|all| all.iter().any(|condition| condition.reason.as_deref() == Some("Unschedulable")))
        };
        tokio::time::timeout(LIMIT, await_condition(pods.clone(), "waits", unschedulable)).await??;
        pods.delete("fits", &DeleteParams::default()).await?;
        tokio::time::timeout(LIMIT, await_condition(pods.clone(), "waits", conditions::is_pod_running())).await??;

        let requests = plane.requests()?;
        let written = |agent: &str, verb: &str, resource: &str, name: &str| {
            let same = requests.iter().filter(|request| request.is_write() && request.agent == agent && request.verb == verb);
            same.filter(|request| request.resource == resource && request.name == name).count()
        };
        assert_eq!(written(PLAYER, "patch", "pods/status", "fits"), 1);
        assert_eq!(written(PLAYER, "delete", "pods", "fits"), 1);
        assert_eq!(written("odc-tests", "create", "pods", "fits"), 1);
        assert_eq!(written("odc-tests", "delete", "pods", "fits"), 1);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_pod_on_an_ignored_node_stays_as_it_is() -> anyhow::Result<()> {
    with_control_plane(async |plane| {
        plane.add_node("silent", &[("cpu", "8"), ("memory", "16Gi")]).await?;
        plane.ignore_node("silent");
        plane.add_node("lively", &[("cpu", "8"), ("memory", "16Gi")]).await?;
        let pods: Api<Pod> = Api::namespaced(plane.client.clone(), "default");
        odc_local::cluster::takes_pods(&plane.client, "default").await?;
        for node in ["silent", "lively"] {
            let pod = json!({"metadata": {"name": node}, "spec": {"nodeName": node, "containers": [{"name": "main", "image": "any"}]}});
            pods.create(&PostParams::default(), &serde_json::from_value(pod)?).await?;
        }
        // The player sees pods in order: when the later one runs, the earlier one has been passed over.
        tokio::time::timeout(LIMIT, await_condition(pods.clone(), "lively", conditions::is_pod_running())).await??;
        let silent = pods.get("silent").await?;
        assert_eq!(silent.status.and_then(|status| status.phase).as_deref(), Some("Pending"));
        Ok(())
    })
    .await
}
