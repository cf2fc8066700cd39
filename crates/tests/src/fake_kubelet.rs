//! Kubelet of simulated nodes: makes bound pods ready and removes deleted ones.
//!
//! Its requests carry [`USER_AGENT`], so that tests which count writes can exclude them.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, Patch, PatchParams, Preconditions};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Client, ResourceExt as _};
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio_stream::StreamExt as _;

pub const USER_AGENT: &str = "odc-fake-kubelet";

/// Pods handled at a time.
const MAX_CONCURRENT: usize = 32;

#[derive(Debug)]
pub(crate) struct FakeKubelet {
    task: JoinHandle<()>,
    paused: Arc<Mutex<HashSet<String>>>,
}

impl FakeKubelet {
    pub(crate) fn start(client: Client) -> Self {
        let paused = Arc::new(Mutex::new(HashSet::new()));
        Self { task: tokio::spawn(run(client, paused.clone())), paused }
    }

    /// Ignores the pods of a node from now on.
    pub(crate) fn pause_node(&self, node: &str) {
        lock(&self.paused).insert(node.into());
    }

    /// Handles the pods of a node again, each at its next change.
    pub(crate) fn resume_node(&self, node: &str) {
        lock(&self.paused).remove(node);
    }

    pub(crate) fn stop(&self) {
        self.task.abort();
    }
}

async fn run(client: Client, paused: Arc<Mutex<HashSet<String>>>) {
    let pods: Api<Pod> = Api::all(client.clone());
    let permits = Arc::new(Semaphore::new(MAX_CONCURRENT));
    let mut events = Box::pin(watcher(pods, watcher::Config::default()).default_backoff().touched_objects());
    while let Some(event) = events.next().await {
        // The watcher restarts a broken watch itself.
        let Ok(pod) = event else { continue };
        let Some(node) = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()) else { continue };
        if lock(&paused).contains(&node) {
            continue;
        }
        let Ok(permit) = permits.clone().acquire_owned().await else { continue };
        let client = client.clone();
        tokio::spawn(async move {
            // A pod that has changed again causes another event, and a deleted one needs no handling.
            let _ = sync_pod(&client, &pod).await;
            drop(permit);
        });
    }
}

async fn sync_pod(client: &Client, pod: &Pod) -> kube::Result<()> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace().unwrap_or_default());
    if pod.metadata.deletion_timestamp.is_some() {
        let preconditions = Preconditions { uid: pod.uid(), resource_version: None };
        let params = DeleteParams {
            grace_period_seconds: Some(0),
            preconditions: Some(preconditions),
            ..DeleteParams::default()
        };
        return pods.delete(&pod.name_any(), &params).await.map(drop);
    }
    if pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running") {
        return Ok(());
    }
    pods.patch_status(&pod.name_any(), &PatchParams::default(), &Patch::Merge(running_status(pod))).await.map(drop)
}

fn running_status(pod: &Pod) -> serde_json::Value {
    let now = jiff::Timestamp::now().to_string();
    let condition = |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": now});
    let conditions = ["Initialized", "Ready", "ContainersReady"].map(condition);
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers).map(|container| {
        json!({"name": container.name, "image": container.image, "imageID": "", "ready": true, "started": true, "restartCount": 0,
            "state": {"running": {"startedAt": now}}})
    });
    json!({
        "metadata": {"uid": pod.uid()},
        "status": {
            "phase": "Running",
            "podIP": "127.0.0.2",
            "podIPs": [{"ip": "127.0.0.2"}],
            "startTime": now,
            "conditions": conditions,
            "containerStatuses": containers.collect::<Vec<_>>(),
        },
    })
}

fn lock(paused: &Mutex<HashSet<String>>) -> std::sync::MutexGuard<'_, HashSet<String>> {
    paused.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
