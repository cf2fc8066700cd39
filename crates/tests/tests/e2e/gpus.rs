//! Simulated GPUs.

use std::collections::HashSet;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::Api;
use odc_tests::cleanup::with_cleanup;
use odc_tests::{pod, with_exclusive_cluster};
use serde_json::{Value, json};

fn with_gpus(name: &str, count: u8) -> Value {
    let mut manifest = pod::manifest(name, "exec sleep infinity");
    manifest["spec"]["containers"][0]["resources"] = json!({"limits": {"nvidia.com/gpu": count.to_string()}});
    manifest["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": "n1"});
    manifest
}

fn unschedulable(pod: &Pod) -> Option<String> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.reason.as_deref() == Some("Unschedulable"))?.message.clone()
}

#[tokio::test]
async fn ninth_gpu_of_a_node_is_unschedulable() -> anyhow::Result<()> {
    with_exclusive_cluster(1, async |cluster| {
        let namespace = &cluster.namespace;
        pod::run(namespace, with_gpus("two", 2)).await?;
        pod::run(namespace, with_gpus("six", 6)).await?;
        let mut assigned = HashSet::new();
        for (name, count) in [("two", 2), ("six", 6)] {
            let devices = pod::exec(namespace, name, &["printenv", "NVIDIA_VISIBLE_DEVICES"]).await?;
            assert_eq!(devices.trim().split(',').count(), count);
            assigned.extend(devices.trim().split(',').map(str::to_owned).collect::<Vec<_>>());
        }
        assert_eq!(assigned.len(), 8, "a device is assigned twice");

        pod::create(namespace, with_gpus("ninth", 1)).await?;
        let pending = pod::wait_for(namespace, "ninth", "unschedulable", |pod| unschedulable(pod).is_some()).await?;
        let reason = unschedulable(&pending).unwrap_or_default();
        assert!(reason.contains("Insufficient nvidia.com/gpu"), "{reason}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn unhealthy_gpu_is_not_allocatable() -> anyhow::Result<()> {
    with_exclusive_cluster(1, async |cluster| {
        let allocatable = async || -> anyhow::Result<String> {
            let node = Api::<Node>::all(cluster.namespace.client.clone()).get("n1").await?;
            let amounts = node.status.and_then(|status| status.allocatable).unwrap_or_default();
            Ok(amounts.get("nvidia.com/gpu").map(|amount| amount.0.clone()).unwrap_or_default())
        };
        cluster.odc_local(&["gpu", "fail", "n1", "3"]).await?.check()?;
        let while_unhealthy = with_cleanup(allocatable(), async || {
            cluster.odc_local(&["gpu", "recover", "n1", "GPU-n1-03"]).await?.check().map(drop)
        })
        .await?;
        assert_eq!((while_unhealthy.as_str(), allocatable().await?.as_str()), ("7", "8"));

        let unknown = cluster.odc_local(&["gpu", "fail", "n1", "8"]).await?;
        assert!(!unknown.success && unknown.stderr.contains("GPU-n1-00, GPU-n1-01"), "{}", unknown.stderr);
        Ok(())
    })
    .await
}
