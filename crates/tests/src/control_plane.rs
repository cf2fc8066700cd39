//! A control plane of the test's own, with nodes that are only objects.

use std::path::PathBuf;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Client, Config};
use odc_local::bound::Bound;
use serde_json::json;

use crate::audit;
use crate::bed;
use crate::finally::finally;
use crate::pod_player::PodPlayer;

pub struct ControlPlane {
    /// The administrator's.
    pub kubeconfig: PathBuf,
    audit_log: PathBuf,
    /// With all rights.
    pub client: Client,
    /// Plays the kubelets of the simulated nodes.
    player: PodPlayer,
}

pub async fn with_control_plane<T>(test: impl AsyncFnOnce(&ControlPlane) -> anyhow::Result<T>) -> anyhow::Result<T> {
    crate::begin();
    let directory = tempfile::Builder::new().prefix(&bed::temporary()).tempdir()?;
    let server = Bound::control_plane(directory.path()).await?;
    let client = Client::try_from(config(&server, "odc-tests").await?)?;
    let player = PodPlayer::start(Client::try_from(config(&server, crate::PLAYER).await?)?);
    let plane = ControlPlane { audit_log: server.audit_log(), kubeconfig: server.kubeconfig(), client, player };
    finally(test(&plane), async || {
        plane.player.end();
        server.end().await
    })
    .await
}

impl ControlPlane {
    /// Every request the API server has answered so far.
    pub fn requests(&self) -> anyhow::Result<Vec<audit::Request>> {
        audit::read(&self.audit_log)
    }

    /// A ready node with these resources, such as `[("cpu", "8"), ("nvidia.com/gpu", "8")]`.
    pub async fn add_node(&self, name: &str, resources: &[(&str, &str)]) -> anyhow::Result<()> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let node = serde_json::from_value(json!({
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        }))?;
        nodes.create(&PostParams::default(), &node).await.with_context(|| format!("creating node {name}"))?;
        let mut all = json!({"pods": "110"});
        for (resource, amount) in resources {
            all[*resource] = json!(amount);
        }
        let now = k8s_openapi::jiff::Timestamp::now().to_string();
        let ready = json!({"type": "Ready", "status": "True", "reason": "Simulated", "message": "plays a node",
            "lastHeartbeatTime": now, "lastTransitionTime": now});
        let status = json!({"status": {"capacity": all, "allocatable": all, "conditions": [ready]}});
        nodes.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await?;
        Ok(())
    }

    /// As if its power failed: its pods are left as they are, and it is not ready any more.
    pub async fn silence_node(&self, name: &str) -> anyhow::Result<()> {
        self.player.ignore(name);
        self.set_ready(name, "Unknown").await
    }

    /// Switches it on again.
    pub async fn revive_node(&self, name: &str) -> anyhow::Result<()> {
        self.player.heed(name);
        self.set_ready(name, "True").await
    }

    async fn set_ready(&self, name: &str, status: &str) -> anyhow::Result<()> {
        let now = k8s_openapi::jiff::Timestamp::now().to_string();
        let ready = json!({"type": "Ready", "status": status, "reason": "Simulated", "message": "plays a node",
            "lastHeartbeatTime": now, "lastTransitionTime": now});
        let nodes: Api<Node> = Api::all(self.client.clone());
        let body = json!({"status": {"conditions": [ready]}});
        nodes.patch_status(name, &PatchParams::default(), &Patch::Merge(body)).await?;
        Ok(())
    }

    /// From now on pods bound to this node are left alone, as by a kubelet that is not there.
    pub fn ignore_node(&self, name: &str) {
        self.player.ignore(name);
    }
}

async fn config(server: &Bound, agent: &str) -> anyhow::Result<Config> {
    let kubeconfig = kube::config::Kubeconfig::read_from(server.kubeconfig())?;
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &kube::config::KubeConfigOptions::default()).await?;
    config.headers.push((http::header::USER_AGENT, agent.parse()?));
    Ok(config)
}
