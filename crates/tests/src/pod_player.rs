//! Plays the kubelet of nodes that are only objects: a bound pod becomes Ready, a deleted one is gone.
//!
//! Its requests carry the user agent [`PLAYER`], so that tests which count writes can tell them apart.

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

pub const PLAYER: &str = "odc-pod-player";

/// Pods seen to at once.
const HANDS: usize = 32;

#[derive(Debug)]
pub(crate) struct PodPlayer {
    task: JoinHandle<()>,
    ignored: Arc<Mutex<HashSet<String>>>,
}

impl PodPlayer {
    pub(crate) fn start(client: Client) -> Self {
        let ignored = Arc::new(Mutex::new(HashSet::new()));
        Self { task: tokio::spawn(play(client, ignored.clone())), ignored }
    }

    pub(crate) fn ignore(&self, node: &str) {
        lock(&self.ignored).insert(node.into());
    }

    pub(crate) fn heed(&self, node: &str) {
        lock(&self.ignored).remove(node);
    }

    pub(crate) fn end(&self) {
        self.task.abort();
    }
}

async fn play(client: Client, ignored: Arc<Mutex<HashSet<String>>>) {
    let pods: Api<Pod> = Api::all(client.clone());
    let hands = Arc::new(Semaphore::new(HANDS));
    let mut changes = Box::pin(watcher(pods, watcher::Config::default()).default_backoff().touched_objects());
    while let Some(change) = changes.next().await {
        // A broken watch is made anew by the watcher itself.
        let Ok(pod) = change else { continue };
        let Some(node) = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()) else { continue };
        if lock(&ignored).contains(&node) {
            continue;
        }
        // As many kubelets would, side by side.
        let Ok(hand) = hands.clone().acquire_owned().await else { continue };
        let client = client.clone();
        tokio::spawn(async move {
            // A pod that changed meanwhile comes again; one that is gone needs nothing.
            let _ = act(&client, &pod).await;
            drop(hand);
        });
    }
}

async fn act(client: &Client, pod: &Pod) -> kube::Result<()> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace().unwrap_or_default());
    if pod.metadata.deletion_timestamp.is_some() {
        let this_one = Preconditions { uid: pod.uid(), resource_version: None };
        let at_once =
            DeleteParams { grace_period_seconds: Some(0), preconditions: Some(this_one), ..DeleteParams::default() };
        return pods.delete(&pod.name_any(), &at_once).await.map(drop);
    }
    if pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running") {
        return Ok(());
    }
    pods.patch_status(&pod.name_any(), &PatchParams::default(), &Patch::Merge(running(pod))).await.map(drop)
}

fn running(pod: &Pod) -> serde_json::Value {
    let now = k8s_openapi::jiff::Timestamp::now().to_string();
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

fn lock(ignored: &Mutex<HashSet<String>>) -> std::sync::MutexGuard<'_, HashSet<String>> {
    ignored.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
