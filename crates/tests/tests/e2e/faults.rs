//! Things that break and come back.

use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, ListParams};
use kube::runtime::wait::await_condition;
use odc_tests::{Cluster, pod, wait, with_cluster_alone};

/// Parts that are killed one after the other.
const KILLED: &[&str] = if cfg!(feature = "full") {
    &[
        "etcd",
        "apiserver",
        "controller-manager",
        "scheduler",
        "dns",
        "registry",
        "postgres",
        "n1/containerd",
        "n1/kubelet",
        "n1/proxy",
        "n1/gpus",
        "n2/containerd",
        "n2/kubelet",
        "etcd",
        "apiserver",
        "n1/kubelet",
    ]
} else {
    &["etcd", "apiserver", "scheduler", "dns", "n1/containerd", "n1/kubelet", "postgres"]
};
const LIMIT: Duration = Duration::from_secs(120);

fn is_ready(node: Option<&Node>) -> bool {
    node.is_some_and(odc_local::cluster::is_ready)
}

/// The process of a part.
pub async fn process(cluster: &Cluster, part: &str) -> anyhow::Result<i32> {
    let parts: serde_json::Value = serde_json::from_str(&cluster.odc_local(&["status", "-o", "json"]).await?.stdout)?;
    let row = parts.as_array().into_iter().flatten().find(|row| row["name"] == part);
    let pid = row.and_then(|row| row["pid"].as_i64()).ok_or_else(|| anyhow::anyhow!("{part} has no process"))?;
    Ok(i32::try_from(pid)?)
}

pub fn kill(pid: i32) -> anyhow::Result<()> {
    let pid = rustix::process::Pid::from_raw(pid).ok_or_else(|| anyhow::anyhow!("no process"))?;
    Ok(rustix::process::kill_process(pid, rustix::process::Signal::KILL)?)
}

#[tokio::test]
async fn a_stopped_node_is_lost_and_comes_back() -> anyhow::Result<()> {
    with_cluster_alone(2, async |cluster| {
        let nodes: Api<Node> = Api::all(cluster.namespace.client.clone());
        let mut manifest = pod::manifest("there", "exec sleep infinity");
        manifest["spec"]["nodeSelector"] = serde_json::json!({"kubernetes.io/hostname": "n2"});
        pod::run(&cluster.namespace, manifest).await?;
        let mut manifest = pod::manifest("here", "exec sleep infinity");
        manifest["spec"]["nodeSelector"] = serde_json::json!({"kubernetes.io/hostname": "n1"});
        pod::run(&cluster.namespace, manifest).await?;
        let addresses = nodes.get("n2").await?.status.and_then(|status| status.addresses).unwrap_or_default();
        let address = addresses.iter().find(|address| address.type_ == "InternalIP").map(|one| one.address.clone());
        // The kubelet of the other node, who wants to know who asks; that it answers is enough.
        let kubelet = format!("https://{}:10250/healthz", address.context("n2 has an address")?);
        let reach = async || {
            let words = ["curl", "-sk", "-o", "/dev/null", "--max-time", "5", &kubelet];
            pod::exec(&cluster.namespace, "here", &words).await
        };
        reach().await?;

        cluster.odc_local(&["node", "stop", "n2"]).await?.good()?;
        tokio::time::timeout(LIMIT, await_condition(nodes.clone(), "n2", |node: Option<&Node>| !is_ready(node)))
            .await??;
        assert!(is_ready(Some(&nodes.get("n1").await?)), "the other node is not touched");
        assert!(pod::exec(&cluster.namespace, "there", &["true"]).await.is_err());

        cluster.odc_local(&["node", "start", "n2"]).await?.good()?;
        assert!(is_ready(Some(&nodes.get("n2").await?)), "start waits until it is ready");
        // Its neighbours find it at once.
        reach().await?;
        // The kubelet finds its container dead and starts it again, as after a power failure.
        wait::until("the pod runs again", LIMIT, async || pod::exec(&cluster.namespace, "there", &["true"]).await)
            .await?;

        let unknown = cluster.odc_local(&["node", "stop", "n7"]).await?;
        assert!(!unknown.ok && unknown.stderr.contains("this cloud has n1, n2"), "{}", unknown.stderr);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn killed_parts_are_back_and_the_cluster_is_healthy() -> anyhow::Result<()> {
    with_cluster_alone(1, async |cluster| {
        pod::run(&cluster.namespace, pod::manifest("lives", "exec sleep infinity")).await?;
        for part in KILLED.iter().copied() {
            let before = process(cluster, part).await?;
            kill(before)?;
            wait::until(&format!("{part} is back"), LIMIT, async || {
                let after = process(cluster, part).await?;
                anyhow::ensure!(after != before, "{part} is still process {before}");
                cluster.odc_local(&["status"]).await?.good()
            })
            .await?;
        }
        let nodes: Api<Node> = Api::all(cluster.namespace.client.clone());
        for node in nodes.list(&ListParams::default()).await? {
            assert!(is_ready(Some(&node)), "{:?}", node.metadata.name);
        }
        // A container outlives the runtime that started it, and new ones start.
        let restarts = cluster.namespace.api::<k8s_openapi::api::core::v1::Pod>().get("lives").await?;
        let restarts = restarts.status.and_then(|status| status.container_statuses).map(|all| all[0].restart_count);
        assert_eq!(restarts, Some(0));
        pod::run(&cluster.namespace, pod::manifest("new", "exec sleep infinity")).await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_killed_supervisor_is_followed_by_one_that_adopts_everything() -> anyhow::Result<()> {
    with_cluster_alone(1, async |cluster| {
        let parts = ["etcd", "apiserver", "n1/kubelet", "n2/containerd", "postgres", "registry"];
        let mut before = Vec::new();
        for part in parts {
            before.push(process(cluster, part).await?);
        }
        kill(supervisor(cluster)?)?;
        let down = wait::until("no supervisor answers", LIMIT, async || {
            let status = cluster.odc_local(&["status"]).await?;
            anyhow::ensure!(!status.ok, "it still answers");
            Ok(status.stderr)
        })
        .await?;
        assert!(down.contains("./dev up"), "{down}");

        cluster.odc_local(&["up"]).await?.good()?;
        for (part, before) in parts.into_iter().zip(before) {
            assert_eq!(process(cluster, part).await?, before, "{part} was started again");
        }
        // And it really watches them.
        let scheduler = process(cluster, "scheduler").await?;
        kill(scheduler)?;
        wait::until("scheduler is back", LIMIT, async || {
            anyhow::ensure!(process(cluster, "scheduler").await? != scheduler, "not yet");
            Ok(())
        })
        .await
    })
    .await
}

/// Found by its command line: it is in no list of parts.
fn supervisor(cluster: &Cluster) -> anyhow::Result<i32> {
    let wanted = format!("local\0supervise\0--dir\0{}\0", cluster.directory.display());
    for entry in std::fs::read_dir("/proc")?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let command = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        if String::from_utf8_lossy(&command).ends_with(&wanted) {
            return Ok(pid);
        }
    }
    anyhow::bail!("no supervisor of {}", cluster.directory.display())
}
