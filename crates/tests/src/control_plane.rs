//! A control plane for one test, with simulated nodes.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Client, Config};
use odc_local::ephemeral::EphemeralControlPlane;
use odc_local::layout::Layout;
use serde_json::{Value, json};

use crate::audit::{self, AuditLog};
use crate::cleanup::with_cleanup;
use crate::fake_kubelet::{self, FakeKubelet};
use crate::shared_cluster::{self, CONTROL_PLANES, ClusterLease, Mode, Purpose, SharedCluster};

const POLL_INTERVAL: Duration = Duration::from_millis(100);

pub struct ControlPlane {
    /// Kubeconfig of the administrator.
    pub kubeconfig: PathBuf,
    audit_log: AuditLog,
    /// Client of the administrator.
    pub client: Client,
    kubelet: FakeKubelet,
}

/// Provides a control plane with ODC installed and without any other object. Control planes are used by one test after
/// another; their content is restored in between.
pub async fn with_control_plane<T>(test: impl AsyncFnOnce(&ControlPlane) -> anyhow::Result<T>) -> anyhow::Result<T> {
    crate::init();
    let lease = ControlPlaneLease::acquire().await?;
    let layout = Layout::new(lease.cluster.directory.clone());
    run(&layout, test, async || Ok(())).await
}

/// Provides a control plane that no test has used before.
pub async fn with_new_control_plane<T>(
    test: impl AsyncFnOnce(&ControlPlane) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    crate::init();
    let directory = tempfile::Builder::new().prefix(&shared_cluster::temporary_directory_prefix()).tempdir()?;
    let server = EphemeralControlPlane::start(directory.path()).await?;
    run(&Layout::new(directory.path().to_owned()), test, async || server.stop().await).await
}

async fn run<T>(
    layout: &Layout,
    test: impl AsyncFnOnce(&ControlPlane) -> anyhow::Result<T>,
    stop: impl AsyncFnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<T> {
    let kubeconfig = layout.kubeconfig();
    let client = Client::try_from(config(&kubeconfig, "odc-tests").await?)?;
    let kubelet = FakeKubelet::start(Client::try_from(config(&kubeconfig, fake_kubelet::USER_AGENT).await?)?);
    let plane = ControlPlane { audit_log: AuditLog::from_now(layout.audit_log())?, kubeconfig, client, kubelet };
    with_cleanup(test(&plane), async || {
        plane.kubelet.stop();
        stop().await
    })
    .await
}

/// Exclusive use of one of the control planes.
struct ControlPlaneLease {
    cluster: SharedCluster,
    _lease: ClusterLease,
    /// Held by the test, so that others choose another control plane.
    _in_use: File,
}

impl ControlPlaneLease {
    /// Waits until a control plane is free.
    async fn acquire() -> anyhow::Result<Self> {
        loop {
            for index in 0..CONTROL_PLANES {
                let cluster = SharedCluster::new(Purpose::ControlPlane(index));
                let in_use = File::create(cluster.in_use())?;
                if in_use.try_lock().is_ok() {
                    let lease = cluster.acquire(Mode::Exclusive).await?;
                    return Ok(Self { cluster, _lease: lease, _in_use: in_use });
                }
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}

impl ControlPlane {
    /// Returns every request of this test that the API server has completed so far.
    pub fn requests(&self) -> anyhow::Result<Vec<audit::Request>> {
        self.audit_log.read()
    }

    /// Adds a ready node with these resources, such as `[("cpu", "8"), ("nvidia.com/gpu", "8")]`.
    pub async fn add_node(&self, name: &str, resources: &[(&str, &str)]) -> anyhow::Result<()> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let node = serde_json::from_value(json!({
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        }))?;
        nodes.create(&PostParams::default(), &node).await.with_context(|| format!("creating node {name}"))?;
        let mut capacity = json!({"pods": "110"});
        for (resource, amount) in resources {
            capacity[*resource] = json!(amount);
        }
        let status =
            json!({"status": {"capacity": capacity, "allocatable": capacity, "conditions": [ready_condition("True")]}});
        nodes.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await?;
        Ok(())
    }

    /// Simulates a power failure: the node becomes not ready, and its pods stay as they are.
    pub async fn fail_node(&self, name: &str) -> anyhow::Result<()> {
        self.kubelet.pause_node(name);
        self.set_ready(name, "Unknown").await
    }

    /// Undoes [`Self::fail_node`] and [`Self::pause_node`].
    pub async fn recover_node(&self, name: &str) -> anyhow::Result<()> {
        self.kubelet.resume_node(name);
        self.set_ready(name, "True").await
    }

    async fn set_ready(&self, name: &str, status: &str) -> anyhow::Result<()> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let body = json!({"status": {"conditions": [ready_condition(status)]}});
        nodes.patch_status(name, &PatchParams::default(), &Patch::Merge(body)).await?;
        Ok(())
    }

    /// Stops the fake kubelet of a node that stays ready. Pods bound to the node no longer change.
    pub fn pause_node(&self, name: &str) {
        self.kubelet.pause_node(name);
    }
}

fn ready_condition(status: &str) -> Value {
    let now = jiff::Timestamp::now().to_string();
    json!({"type": "Ready", "status": status, "reason": "Simulated", "message": "simulated node",
        "lastHeartbeatTime": now, "lastTransitionTime": now})
}

async fn config(kubeconfig: &Path, user_agent: &str) -> anyhow::Result<Config> {
    let kubeconfig = kube::config::Kubeconfig::read_from(kubeconfig)?;
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &kube::config::KubeConfigOptions::default()).await?;
    config.headers.push((http::header::USER_AGENT, user_agent.parse()?));
    Ok(config)
}
