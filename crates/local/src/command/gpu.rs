//! `odc local gpu`: makes the simulated GPUs of a node unhealthy, and healthy again.

use std::fs::create_dir_all;
use std::io::ErrorKind;

use k8s_openapi::api::core::v1::Node;
use kube::api::Api;

use crate::components::Blueprint;
use crate::error::Error;
use crate::layout::Layout;
use crate::network::NodeIndex;
use crate::progress::Progress;

/// Makes a GPU unhealthy, so that the kubelet no longer reports it as allocatable.
pub async fn gpu_fail(layout: Layout, node: &str, gpu: &str) -> anyhow::Result<()> {
    let blueprint = super::load_blueprint(layout)?;
    let (node, gpu) = find_gpu(&blueprint, node, gpu)?;
    let directory = blueprint.layout.unhealthy_gpus(node);
    create_dir_all(&directory)?;
    std::fs::write(directory.join(&gpu), "")?;
    wait_for_allocatable(&blueprint, node).await
}

pub async fn gpu_recover(layout: Layout, node: &str, gpu: &str) -> anyhow::Result<()> {
    let blueprint = super::load_blueprint(layout)?;
    let (node, gpu) = find_gpu(&blueprint, node, gpu)?;
    match std::fs::remove_file(blueprint.layout.unhealthy_gpus(node).join(gpu)) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    wait_for_allocatable(&blueprint, node).await
}

/// Finds a GPU by its ID or its index.
fn find_gpu(blueprint: &Blueprint, node: &str, gpu: &str) -> anyhow::Result<(NodeIndex, String)> {
    let node = blueprint.settings.find_node(node)?;
    let all: Vec<String> = gpu_ids(blueprint, node).collect();
    let found = gpu.parse().ok().and_then(|index: usize| all.get(index)).or(all.iter().find(|id| *id == gpu));
    match found {
        Some(found) => Ok((node, found.clone())),
        None => Err(Error::NoSuchGpu {
            name: gpu.into(),
            known: if all.is_empty() { "none".into() } else { all.join(", ") },
        }
        .into()),
    }
}

/// Returns the device IDs that the device plugin advertises.
fn gpu_ids(blueprint: &Blueprint, node: NodeIndex) -> impl Iterator<Item = String> {
    (0..blueprint.settings.gpus).map(move |index| format!("GPU-{node}-{index:02}"))
}

pub(super) fn healthy_gpus(blueprint: &Blueprint, node: NodeIndex) -> usize {
    let unhealthy = blueprint.layout.unhealthy_gpus(node);
    gpu_ids(blueprint, node).filter(|gpu| !unhealthy.join(gpu).exists()).count()
}

/// Waits until the Node object reports the healthy GPUs as allocatable.
async fn wait_for_allocatable(blueprint: &Blueprint, node: NodeIndex) -> anyhow::Result<()> {
    let healthy = healthy_gpus(blueprint, node);
    let client = crate::cluster::client(&blueprint.layout.kubeconfig()).await?;
    let nodes: Api<Node> = Api::all(client);
    Progress::new()
        .step(
            &format!("waiting until {node} reports {healthy} healthy GPUs"),
            super::node::wait_for_node(nodes, node, super::node::has_allocatable_gpus(healthy)),
        )
        .await
}
