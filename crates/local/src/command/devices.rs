//! Takes nodes and GPUs away and gives them back, for people who want to see what happens then.

use k8s_openapi::api::core::v1::Node;
use kube::api::Api;

use crate::control::Request;
use crate::layout::Layout;
use crate::network::NodeIndex;
use crate::parts::Blueprint;
use crate::problem::Problem;
use crate::progress::Progress;

pub async fn node_stop(layout: Layout, name: &str) -> anyhow::Result<()> {
    let _turn = super::take_running(&layout).await?;
    let mut blueprint = super::blueprint(layout)?;
    blueprint.settings.find_node(name)?;
    blueprint.settings.stopped.insert(name.into());
    blueprint.settings.store(&blueprint.layout)?;
    let progress = Progress::new();
    progress
        .step(&format!("pulling the plug of {name}"), super::ask(&blueprint, &Request::Unplug { node: name.into() }))
        .await?;
    progress.say(&format!(
        "{name} is off. Kubernetes will notice within a minute; bring it back: odc local node start {name}"
    ));
    Ok(())
}

pub async fn node_start(layout: Layout, name: &str) -> anyhow::Result<()> {
    let _turn = super::take_running(&layout).await?;
    let mut blueprint = super::blueprint(layout)?;
    let node = blueprint.settings.find_node(name)?;
    blueprint.settings.stopped.remove(name);
    blueprint.settings.store(&blueprint.layout)?;
    let progress = Progress::new();
    progress
        .step(&format!("starting {name}"), async {
            super::ask(&blueprint, &Request::Apply).await?;
            super::up::parts_ready(&blueprint).await?;
            let client = crate::cluster::client(&blueprint.layout.kubeconfig()).await?;
            super::up::node_ready(&client, &blueprint, node).await
        })
        .await
}

/// A node's GPU falls ill: the kubelet no longer counts it.
pub async fn gpu_fail(layout: Layout, node: &str, gpu: &str) -> anyhow::Result<()> {
    let blueprint = super::blueprint(layout)?;
    let (node, gpu) = find_gpu(&blueprint, node, gpu)?;
    let directory = blueprint.layout.ill_gpus(node);
    std::fs::create_dir_all(&directory)?;
    std::fs::write(directory.join(&gpu), "")?;
    allocatable(&blueprint, node).await
}

pub async fn gpu_heal(layout: Layout, node: &str, gpu: &str) -> anyhow::Result<()> {
    let blueprint = super::blueprint(layout)?;
    let (node, gpu) = find_gpu(&blueprint, node, gpu)?;
    match std::fs::remove_file(blueprint.layout.ill_gpus(node).join(gpu)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    allocatable(&blueprint, node).await
}

/// By its whole id or its number.
fn find_gpu(blueprint: &Blueprint, node: &str, gpu: &str) -> anyhow::Result<(NodeIndex, String)> {
    let node = blueprint.settings.find_node(node)?;
    let all: Vec<String> = gpus(blueprint, node).collect();
    let found = gpu.parse().ok().and_then(|index: usize| all.get(index)).or(all.iter().find(|id| *id == gpu));
    match found {
        Some(found) => Ok((node, found.clone())),
        None => Err(Problem::NoSuchGpu {
            name: gpu.into(),
            known: if all.is_empty() { "none".into() } else { all.join(", ") },
        }
        .into()),
    }
}

/// The ids the device plugin gives out.
fn gpus(blueprint: &Blueprint, node: NodeIndex) -> impl Iterator<Item = String> {
    (0..blueprint.settings.gpus).map(move |index| format!("GPU-{node}-{index:02}"))
}

pub(super) fn healthy_gpus(blueprint: &Blueprint, node: NodeIndex) -> usize {
    let ill = blueprint.layout.ill_gpus(node);
    gpus(blueprint, node).filter(|gpu| !ill.join(gpu).exists()).count()
}

/// Waits until the API server shows what the node's devices now amount to.
async fn allocatable(blueprint: &Blueprint, node: NodeIndex) -> anyhow::Result<()> {
    let healthy = healthy_gpus(blueprint, node);
    let client = crate::cluster::client(&blueprint.layout.kubeconfig()).await?;
    let progress = Progress::new();
    let nodes: Api<Node> = Api::all(client);
    progress
        .step(
            &format!("{node} has {healthy} healthy GPUs"),
            super::up::await_node(nodes, node, super::up::gpus_are(healthy)),
        )
        .await
}
