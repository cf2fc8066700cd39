//! What a fresh cluster needs before it is one: rights of the components, the DNS Service, simulated nodes.
//!
//! Applied server-side, or written only where it differs: a second run changes nothing.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Service, ServiceAccount};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::wait::await_condition;
use kube::{Client, Config, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::parts::{Blueprint, LABELS, OURS};

const MANAGER: &str = "odc-local";
/// The controller manager makes them within a second or two of its start.
const ACCOUNT_LIMIT: Duration = Duration::from_secs(60);
/// Simulated nodes carry it as annotation (kwok's selector) and as taint, so that ordinary pods stay away.
pub const SIMULATED: &str = "kwok.x-k8s.io/node";

pub fn is_ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.is_some_and(|all| all.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True"))
}

/// A client of a cloud of ours. It is on this machine: a proxy is for what is not.
pub async fn client(kubeconfig: &Path) -> anyhow::Result<Client> {
    let mut config = read(kubeconfig).await?;
    config.proxy_url = None;
    Ok(Client::try_from(config)?)
}

/// A client of somebody else's cluster.
pub async fn client_of_others(kubeconfig: &Path) -> anyhow::Result<Client> {
    Ok(Client::try_from(read(kubeconfig).await?)?)
}

async fn read(kubeconfig: &Path) -> anyhow::Result<Config> {
    let parsed = Kubeconfig::read_from(kubeconfig).with_context(|| format!("reading {}", kubeconfig.display()))?;
    Config::from_custom_kubeconfig(parsed, &KubeConfigOptions::default())
        .await
        .with_context(|| format!("reading {}", kubeconfig.display()))
}

/// Waits until a new namespace has the account its pods run as; before that they are refused.
pub async fn takes_pods(client: &Client, namespace: &str) -> anyhow::Result<()> {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
    let there = |account: Option<&ServiceAccount>| account.is_some();
    tokio::time::timeout(ACCOUNT_LIMIT, await_condition(accounts, "default", there)).await.with_context(|| {
        format!("namespace {namespace} has no default service account; see ./dev logs controller-manager")
    })??;
    Ok(())
}

/// The job `cluster`.
pub async fn prepare(blueprint: &Blueprint) -> anyhow::Result<()> {
    let client = client(&blueprint.layout.kubeconfig()).await?;
    rights(&client).await?;
    dns(&client, blueprint).await?;
    label_nodes(&client, blueprint).await?;
    gone_nodes(&client, blueprint).await?;
    simulated_nodes(&client, blueprint).await
}

/// A kubelet gives its node labels of ours only when it registers it, so one that an earlier version registered may lack
/// some.
async fn label_nodes(client: &Client, blueprint: &Blueprint) -> anyhow::Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    for name in blueprint.settings.all_nodes().map(|node| node.to_string()) {
        let Some(node) = nodes.get_opt(&name).await.with_context(|| format!("looking at node {name}"))? else {
            continue;
        };
        let known = node.metadata.labels.unwrap_or_default();
        if LABELS.iter().any(|(label, value)| known.get(*label).map(String::as_str) != Some(*value)) {
            let patch = Patch::Merge(json!({"metadata": {"labels": BTreeMap::from(LABELS)}}));
            nodes
                .patch(&name, &PatchParams::default(), &patch)
                .await
                .with_context(|| format!("labelling node {name}"))?;
        }
    }
    Ok(())
}

/// Objects of nodes the cloud no longer has.
async fn gone_nodes(client: &Client, blueprint: &Blueprint) -> anyhow::Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    let known: Vec<String> = blueprint.settings.all_nodes().map(|node| node.to_string()).collect();
    for node in nodes.list(&ListParams::default().labels(OURS)).await.context("listing nodes")? {
        let name = node.metadata.name.unwrap_or_default();
        if !known.contains(&name) {
            nodes.delete(&name, &DeleteParams::default()).await.with_context(|| format!("deleting node {name}"))?;
        }
    }
    Ok(())
}

async fn rights(client: &Client) -> anyhow::Result<()> {
    apply::<ClusterRole>(
        &Api::all(client.clone()),
        "odc-local:coredns",
        &json!({"rules": [
            {"apiGroups": [""], "resources": ["endpoints", "services", "pods", "namespaces"], "verbs": ["list", "watch"]},
            {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
        ]}),
    )
    .await?;
    for (name, role, user) in [
        ("odc-local:coredns", "odc-local:coredns", "system:coredns"),
        // exec, logs and port-forward go from the API server to the kubelet.
        ("odc-local:apiserver-to-kubelet", "system:kubelet-api-admin", "kube-apiserver-kubelet-client"),
    ] {
        apply::<ClusterRoleBinding>(
            &Api::all(client.clone()),
            name,
            &json!({
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
                "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
            }),
        )
        .await?;
    }
    Ok(())
}

/// CoreDNS runs on the host, so its Service has no selector and we name the endpoint.
async fn dns(client: &Client, blueprint: &Blueprint) -> anyhow::Result<()> {
    let (network, port) = (blueprint.settings.network, blueprint.settings.ports.dns);
    let protocols = [("dns", "UDP"), ("dns-tcp", "TCP")];
    let ports: Vec<_> = protocols
        .iter()
        .map(|(name, protocol)| json!({"name": name, "protocol": protocol, "port": 53, "targetPort": port}))
        .collect();
    apply::<Service>(
        &Api::namespaced(client.clone(), "kube-system"),
        "kube-dns",
        &json!({"metadata": {"labels": {"k8s-app": "kube-dns"}}, "spec": {"clusterIP": network.dns_service().to_string(), "ports": ports}}),
    )
    .await?;
    let ports: Vec<_> =
        protocols.iter().map(|(name, protocol)| json!({"name": name, "protocol": protocol, "port": port})).collect();
    apply::<EndpointSlice>(
        &Api::namespaced(client.clone(), "kube-system"),
        "kube-dns-local",
        &json!({
            "metadata": {"labels": {"kubernetes.io/service-name": "kube-dns"}},
            "addressType": "IPv4",
            "endpoints": [{"addresses": [network.host().to_string()], "conditions": {"ready": true}}],
            "ports": ports,
        }),
    )
    .await
}

/// Exactly as many as asked for.
async fn simulated_nodes(client: &Client, blueprint: &Blueprint) -> anyhow::Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    let wanted: Vec<String> = (1..=blueprint.settings.simulated_nodes).map(|number| format!("sim{number}")).collect();
    for node in nodes.list(&ListParams::default().labels("type=kwok")).await.context("listing simulated nodes")? {
        let name = node.metadata.name.unwrap_or_default();
        if !wanted.contains(&name) {
            nodes.delete(&name, &DeleteParams::default()).await.with_context(|| format!("deleting node {name}"))?;
        }
    }
    let mut resources = json!({"cpu": "64", "memory": "512Gi", "ephemeral-storage": "1Ti", "pods": "110"});
    if blueprint.settings.gpus > 0 {
        resources[crate::parts::GPU_RESOURCE] = json!(blueprint.settings.gpus.to_string());
    }
    for name in &wanted {
        apply::<Node>(
            &nodes,
            name,
            &json!({
                "metadata": {
                    "annotations": {SIMULATED: "fake"},
                    "labels": {"type": "kwok", "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"},
                },
                "spec": {"taints": [{"key": SIMULATED, "value": "fake", "effect": "NoSchedule"}]},
            }),
        )
        .await?;
        let status = json!({"status": {"capacity": resources, "allocatable": resources}});
        nodes
            .patch_status(name, &PatchParams::default(), &Patch::Merge(&status))
            .await
            .with_context(|| format!("giving node {name} its resources"))?;
    }
    Ok(())
}

/// Deletes the leases of simulated nodes. A kubelet holds its lease under its node's name, kwok under its own.
pub async fn release_simulated(blueprint: &Blueprint) -> anyhow::Result<()> {
    let client = client(&blueprint.layout.kubeconfig()).await?;
    let leases: Api<Lease> = Api::namespaced(client, "kube-node-lease");
    for lease in leases.list(&ListParams::default()).await.context("listing leases")? {
        let (name, holder) = (lease.metadata.name, lease.spec.and_then(|spec| spec.holder_identity));
        if let Some(name) = name.filter(|name| holder.as_ref() != Some(name)) {
            leases.delete(&name, &DeleteParams::default()).await.with_context(|| format!("deleting lease {name}"))?;
        }
    }
    Ok(())
}

/// Applies a manifest without its head, which the type knows.
async fn apply<K>(api: &Api<K>, name: &str, body: &serde_json::Value) -> anyhow::Result<()>
where
    K: Resource<DynamicType = ()> + Clone + Serialize + DeserializeOwned + std::fmt::Debug,
{
    let mut object = body.clone();
    object["apiVersion"] = json!(K::api_version(&()));
    object["kind"] = json!(K::kind(&()));
    object["metadata"]["name"] = json!(name);
    let how = PatchParams::apply(MANAGER).force();
    api.patch(name, &how, &Patch::Apply(&object)).await.with_context(|| format!("applying {} {name}", K::kind(&())))?;
    Ok(())
}
