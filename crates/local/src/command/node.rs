//! `odc local node`: powers nodes off and on, to test how the cluster reacts.

use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use kube::api::Api;
use kube::runtime::wait::await_condition;
use odc_api::duration::format_seconds;

use crate::components::{Blueprint, GPU_RESOURCE};
use crate::control::Request;
use crate::layout::Layout;
use crate::network::NodeIndex;
use crate::process::Record;
use crate::progress::Progress;

const NODE_READY_TIMEOUT: Duration = Duration::from_mins(2);

pub async fn node_stop(layout: Layout, name: &str) -> anyhow::Result<()> {
    let _lock = super::lock_running_cluster(&layout).await?;
    let mut blueprint = super::load_blueprint(layout)?;
    blueprint.settings.find_node(name)?;
    blueprint.settings.stopped.insert(name.into());
    blueprint.settings.store(&blueprint.layout)?;
    let progress = Progress::new();
    let power_off = Request::PowerOffNode { node: name.into() };
    progress.step(&format!("powering off {name}"), super::request(&blueprint, &power_off)).await?;
    progress.print(&format!(
        "Powered off node {name}. Kubernetes reports it as NotReady within a minute. Run `odc local node start {name}` to start it again."
    ));
    Ok(())
}

pub async fn node_start(layout: Layout, name: &str) -> anyhow::Result<()> {
    let _lock = super::lock_running_cluster(&layout).await?;
    let mut blueprint = super::load_blueprint(layout)?;
    let node = blueprint.settings.find_node(name)?;
    blueprint.settings.stopped.remove(name);
    blueprint.settings.store(&blueprint.layout)?;
    Progress::new()
        .step(&format!("starting {name}"), async {
            super::request(&blueprint, &Request::Apply).await?;
            super::up::wait_components_ready(&blueprint).await?;
            let client = crate::cluster::client(&blueprint.layout.kubeconfig()).await?;
            wait_node_ready(&client, &blueprint, node).await
        })
        .await
}

/// Waits until the running kubelet has reported the node as ready. Conditions from before its start do not count.
pub(super) async fn wait_node_ready(client: &Client, blueprint: &Blueprint, node: NodeIndex) -> anyhow::Result<()> {
    let kubelet = format!("{node}/kubelet");
    let record =
        Record::load(&blueprint.layout.run(), &kubelet).with_context(|| format!("{kubelet} is not running"))?;
    let started = record.started_at()?;
    let has_gpus = has_allocatable_gpus(super::gpu::healthy_gpus(blueprint, node));
    let ready = |node: &Node| {
        let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let mut heartbeats = conditions
            .filter(|condition| condition.type_ == "Ready")
            .filter_map(|condition| condition.last_heartbeat_time.as_ref());
        crate::cluster::is_ready(node) && has_gpus(node) && heartbeats.any(|heartbeat| heartbeat.0 >= started)
    };
    wait_for_node(Api::all(client.clone()), node, ready).await.map_err(|error| {
        let bridge = blueprint.layout.id().bridge();
        let reason = format!("{error}; a firewall on this machine must allow traffic on {bridge}");
        super::up::not_ready(blueprint, &kubelet, &reason).into()
    })
}

pub(super) fn has_allocatable_gpus(count: usize) -> impl Fn(&Node) -> bool {
    move |node| {
        let allocatable = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
        let reported = allocatable
            .and_then(|all| all.get(GPU_RESOURCE))
            .map_or(0, |quantity| quantity.0.parse().unwrap_or(usize::MAX));
        reported == count
    }
}

pub(super) async fn wait_for_node(
    nodes: Api<Node>,
    node: NodeIndex,
    condition: impl Fn(&Node) -> bool,
) -> anyhow::Result<()> {
    let holds = |object: Option<&Node>| object.is_some_and(&condition);
    tokio::time::timeout(NODE_READY_TIMEOUT, await_condition(nodes, &node.to_string(), holds)).await.with_context(
        || format!("node {node} is not in the expected state after {}", format_seconds(NODE_READY_TIMEOUT.as_secs())),
    )??;
    Ok(())
}
