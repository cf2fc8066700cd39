//! A control plane for one test, with simulated nodes.

use std::path::PathBuf;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Client, Config};
use odc_local::ephemeral::EphemeralControlPlane;
use serde_json::{Value, json};

use crate::audit;
use crate::cleanup::with_cleanup;
use crate::fake_kubelet::{self, FakeKubelet};
use crate::shared_cluster;

pub struct ControlPlane {
    /// Kubeconfig of the administrator.
    pub kubeconfig: PathBuf,
    audit_log: PathBuf,
    /// Client of the administrator.
    pub client: Client,
    kubelet: FakeKubelet,
}

pub async fn with_control_plane<T>(test: impl AsyncFnOnce(&ControlPlane) -> anyhow::Result<T>) -> anyhow::Result<T> {
    crate::init();
    let directory = tempfile::Builder::new().prefix(&shared_cluster::temporary_directory_prefix()).tempdir()?;
    let server = EphemeralControlPlane::start(directory.path()).await?;
    let client = Client::try_from(config(&server, "odc-tests").await?)?;
    let kubelet = FakeKubelet::start(Client::try_from(config(&server, fake_kubelet::USER_AGENT).await?)?);
    let plane = ControlPlane { audit_log: server.audit_log(), kubeconfig: server.kubeconfig(), client, kubelet };
    with_cleanup(test(&plane), async || {
        plane.kubelet.stop();
        server.stop().await
    })
    .await
}

impl ControlPlane {
    /// Returns every request that the API server has completed so far.
    pub fn requests(&self) -> anyhow::Result<Vec<audit::Request>> {
        audit::read(&self.audit_log)
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
    let now = k8s_openapi::jiff::Timestamp::now().to_string();
    json!({"type": "Ready", "status": status, "reason": "Simulated", "message": "simulated node",
        "lastHeartbeatTime": now, "lastTransitionTime": now})
}

async fn config(server: &EphemeralControlPlane, user_agent: &str) -> anyhow::Result<Config> {
    let kubeconfig = kube::config::Kubeconfig::read_from(server.kubeconfig())?;
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &kube::config::KubeConfigOptions::default()).await?;
    config.headers.push((http::header::USER_AGENT, user_agent.parse()?));
    Ok(config)
}
