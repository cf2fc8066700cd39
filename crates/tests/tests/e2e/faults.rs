//! Recovery of nodes, components and the supervisor.

use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, ListParams};
use kube::runtime::wait::await_condition;
use odc_tests::{Cluster, pod, wait, with_exclusive_cluster};

/// Components that are killed one after the other.
const KILLED_COMPONENTS: &[&str] = if cfg!(feature = "full") {
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
const TIMEOUT: Duration = Duration::from_secs(120);

fn is_ready(node: Option<&Node>) -> bool {
    node.is_some_and(odc_local::cluster::is_ready)
}

/// Returns the pid of a component.
pub async fn component_pid(cluster: &Cluster, component: &str) -> anyhow::Result<i32> {
    let rows: serde_json::Value = serde_json::from_str(&cluster.odc_local(&["status", "-o", "json"]).await?.stdout)?;
    let row = rows.as_array().into_iter().flatten().find(|row| row["name"] == component);
    let pid = row.and_then(|row| row["pid"].as_i64()).ok_or_else(|| anyhow::anyhow!("{component} has no process"))?;
    Ok(i32::try_from(pid)?)
}

pub fn kill(pid: i32) -> anyhow::Result<()> {
    let pid = rustix::process::Pid::from_raw(pid).ok_or_else(|| anyhow::anyhow!("not a pid"))?;
    Ok(rustix::process::kill_process(pid, rustix::process::Signal::KILL)?)
}

#[tokio::test]
async fn stopped_node_becomes_ready_after_a_restart() -> anyhow::Result<()> {
    with_exclusive_cluster(2, async |cluster| {
        let nodes: Api<Node> = Api::all(cluster.namespace.client.clone());
        let mut manifest = pod::manifest("there", "exec sleep infinity");
        manifest["spec"]["nodeSelector"] = serde_json::json!({"kubernetes.io/hostname": "n2"});
        pod::run(&cluster.namespace, manifest).await?;
        let mut manifest = pod::manifest("here", "exec sleep infinity");
        manifest["spec"]["nodeSelector"] = serde_json::json!({"kubernetes.io/hostname": "n1"});
        pod::run(&cluster.namespace, manifest).await?;
        let addresses = nodes.get("n2").await?.status.and_then(|status| status.addresses).unwrap_or_default();
        let address = addresses.iter().find(|address| address.type_ == "InternalIP").map(|one| one.address.clone());
        // The kubelet of the other node rejects the request; any response is enough.
        let kubelet = format!("https://{}:10250/healthz", address.context("n2 has no address")?);
        let reach = async || {
            let command = ["curl", "-sk", "-o", "/dev/null", "--max-time", "5", &kubelet];
            pod::exec(&cluster.namespace, "here", &command).await
        };
        reach().await?;

        cluster.odc_local(&["node", "stop", "n2"]).await?.check()?;
        tokio::time::timeout(TIMEOUT, await_condition(nodes.clone(), "n2", |node: Option<&Node>| !is_ready(node)))
            .await??;
        assert!(is_ready(Some(&nodes.get("n1").await?)), "the other node is not affected");
        assert!(pod::exec(&cluster.namespace, "there", &["true"]).await.is_err());

        cluster.odc_local(&["node", "start", "n2"]).await?.check()?;
        assert!(is_ready(Some(&nodes.get("n2").await?)), "`node start` returns when the node is ready");
        // The other node reaches it immediately.
        reach().await?;
        // The kubelet restarts the container, as after a power failure.
        wait::until("restarted pod", TIMEOUT, async || pod::exec(&cluster.namespace, "there", &["true"]).await).await?;

        let unknown = cluster.odc_local(&["node", "stop", "n7"]).await?;
        assert!(!unknown.success && unknown.stderr.contains("this cluster has n1, n2"), "{}", unknown.stderr);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn killed_components_are_restarted() -> anyhow::Result<()> {
    with_exclusive_cluster(1, async |cluster| {
        pod::run(&cluster.namespace, pod::manifest("lives", "exec sleep infinity")).await?;
        for component in KILLED_COMPONENTS.iter().copied() {
            let before = component_pid(cluster, component).await?;
            kill(before)?;
            wait::until(&format!("restarted {component}"), TIMEOUT, async || {
                let after = component_pid(cluster, component).await?;
                anyhow::ensure!(after != before, "{component} still has pid {before}");
                cluster.odc_local(&["status"]).await?.check()
            })
            .await?;
        }
        let nodes: Api<Node> = Api::all(cluster.namespace.client.clone());
        for node in nodes.list(&ListParams::default()).await? {
            assert!(is_ready(Some(&node)), "{:?}", node.metadata.name);
        }
        // Containers survive a restart of the runtime, and new ones start.
        let restarts = cluster.namespace.api::<k8s_openapi::api::core::v1::Pod>().get("lives").await?;
        let restarts = restarts.status.and_then(|status| status.container_statuses).map(|all| all[0].restart_count);
        assert_eq!(restarts, Some(0));
        pod::run(&cluster.namespace, pod::manifest("new", "exec sleep infinity")).await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn new_supervisor_adopts_running_components() -> anyhow::Result<()> {
    with_exclusive_cluster(1, async |cluster| {
        let components = ["etcd", "apiserver", "n1/kubelet", "n2/containerd", "postgres", "registry"];
        let mut before = Vec::new();
        for component in components {
            before.push(component_pid(cluster, component).await?);
        }
        kill(supervisor_pid(cluster)?)?;
        let error = wait::until("missing supervisor", TIMEOUT, async || {
            let status = cluster.odc_local(&["status"]).await?;
            anyhow::ensure!(!status.success, "the supervisor still responds");
            Ok(status.stderr)
        })
        .await?;
        assert!(error.contains("./dev up"), "{error}");

        cluster.odc_local(&["up"]).await?.check()?;
        for (component, before) in components.into_iter().zip(before) {
            assert_eq!(component_pid(cluster, component).await?, before, "{component} was restarted");
        }
        // The new supervisor monitors them.
        let scheduler = component_pid(cluster, "scheduler").await?;
        kill(scheduler)?;
        wait::until("restarted scheduler", TIMEOUT, async || {
            anyhow::ensure!(
                component_pid(cluster, "scheduler").await? != scheduler,
                "the scheduler has not been restarted"
            );
            Ok(())
        })
        .await
    })
    .await
}

/// Returns the pid of the supervisor, found by its command line.
fn supervisor_pid(cluster: &Cluster) -> anyhow::Result<i32> {
    let expected = format!("local\0supervise\0--dir\0{}\0", cluster.directory.display());
    for entry in std::fs::read_dir("/proc")?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let command = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        if String::from_utf8_lossy(&command).ends_with(&expected) {
            return Ok(pid);
        }
    }
    anyhow::bail!("no supervisor of {}", cluster.directory.display())
}
