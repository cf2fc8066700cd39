//! Clients for clusters, and the objects every local cluster has: RBAC of the components, the DNS Service, simulated nodes.
//!
//! Objects are applied server-side or patched only if they differ, so a second run changes nothing.

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

use crate::components::{Blueprint, LOCAL_NODE_LABEL, NODE_LABELS};

const FIELD_MANAGER: &str = "odc-local";
/// The controller manager creates service accounts within two seconds of its start.
const SERVICE_ACCOUNT_TIMEOUT: Duration = Duration::from_secs(60);
/// Key of the annotation by which kwok selects nodes, and of the taint that keeps ordinary pods away from them.
pub const SIMULATED_NODE_KEY: &str = "kwok.x-k8s.io/node";

pub fn is_ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.is_some_and(|all| all.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True"))
}

/// Returns a client of a local cluster, which bypasses any HTTP proxy.
pub async fn client(kubeconfig: &Path) -> anyhow::Result<Client> {
    let mut config = read_config(kubeconfig).await?;
    config.proxy_url = None;
    Ok(Client::try_from(config)?)
}

/// Returns a client of an existing cluster.
pub async fn external_client(kubeconfig: &Path) -> anyhow::Result<Client> {
    Ok(Client::try_from(read_config(kubeconfig).await?)?)
}

async fn read_config(kubeconfig: &Path) -> anyhow::Result<Config> {
    let parsed = Kubeconfig::read_from(kubeconfig).with_context(|| format!("reading {}", kubeconfig.display()))?;
    Config::from_custom_kubeconfig(parsed, &KubeConfigOptions::default())
        .await
        .with_context(|| format!("reading {}", kubeconfig.display()))
}

/// Waits until a new namespace has its default service account, without which the API server rejects pods.
pub async fn wait_default_service_account(client: &Client, namespace: &str) -> anyhow::Result<()> {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
    let exists = |account: Option<&ServiceAccount>| account.is_some();
    tokio::time::timeout(SERVICE_ACCOUNT_TIMEOUT, await_condition(accounts, "default", exists)).await.with_context(
        || format!("namespace {namespace} has no default service account; see ./dev logs controller-manager"),
    )??;
    Ok(())
}

/// Runs the job `cluster`.
pub async fn bootstrap(blueprint: &Blueprint) -> anyhow::Result<()> {
    let client = client(&blueprint.layout.kubeconfig()).await?;
    apply_rbac(&client).await?;
    apply_dns(&client, blueprint).await?;
    label_nodes(&client, blueprint).await?;
    delete_stale_nodes(&client, blueprint).await?;
    apply_simulated_nodes(&client, blueprint).await
}

/// Adds missing labels. A kubelet sets labels only when it registers its node, so nodes registered by an earlier version
/// may lack some.
async fn label_nodes(client: &Client, blueprint: &Blueprint) -> anyhow::Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    for name in blueprint.settings.all_nodes().map(|node| node.to_string()) {
        let Some(node) = nodes.get_opt(&name).await.with_context(|| format!("reading node {name}"))? else {
            continue;
        };
        let labels = node.metadata.labels.unwrap_or_default();
        if NODE_LABELS.iter().any(|(label, value)| labels.get(*label).map(String::as_str) != Some(*value)) {
            let patch = Patch::Merge(json!({"metadata": {"labels": BTreeMap::from(NODE_LABELS)}}));
            nodes
                .patch(&name, &PatchParams::default(), &patch)
                .await
                .with_context(|| format!("labeling node {name}"))?;
        }
    }
    Ok(())
}

/// Deletes the objects of removed nodes.
async fn delete_stale_nodes(client: &Client, blueprint: &Blueprint) -> anyhow::Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    let known: Vec<String> = blueprint.settings.all_nodes().map(|node| node.to_string()).collect();
    for node in nodes.list(&ListParams::default().labels(LOCAL_NODE_LABEL)).await.context("listing nodes")? {
        let name = node.metadata.name.unwrap_or_default();
        if !known.contains(&name) {
            nodes.delete(&name, &DeleteParams::default()).await.with_context(|| format!("deleting node {name}"))?;
        }
    }
    Ok(())
}

async fn apply_rbac(client: &Client) -> anyhow::Result<()> {
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
        // For exec, logs and port-forward, which the API server proxies to the kubelet.
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

/// Applies the Service of CoreDNS. CoreDNS runs on the host, so the Service has no selector and a manual `EndpointSlice`.
async fn apply_dns(client: &Client, blueprint: &Blueprint) -> anyhow::Result<()> {
    let (network, port) = (blueprint.settings.network, blueprint.settings.ports.dns);
    let protocols = [("dns", "UDP"), ("dns-tcp", "TCP")];
    let ports: Vec<_> = protocols
        .iter()
        .map(|(name, protocol)| json!({"name": name, "protocol": protocol, "port": 53, "targetPort": port}))
        .collect();
    apply::<Service>(
        &Api::namespaced(client.clone(), "kube-system"),
        "kube-dns",
        &json!({"metadata": {"labels": {"k8s-app": "kube-dns"}}, "spec": {"clusterIP": network.dns_service_ip().to_string(), "ports": ports}}),
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
            "endpoints": [{"addresses": [network.host_ip().to_string()], "conditions": {"ready": true}}],
            "ports": ports,
        }),
    )
    .await
}

/// Creates missing simulated nodes and deletes surplus ones.
async fn apply_simulated_nodes(client: &Client, blueprint: &Blueprint) -> anyhow::Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    let desired: Vec<String> = (1..=blueprint.settings.simulated_nodes).map(|number| format!("sim{number}")).collect();
    for node in nodes.list(&ListParams::default().labels("type=kwok")).await.context("listing simulated nodes")? {
        let name = node.metadata.name.unwrap_or_default();
        if !desired.contains(&name) {
            nodes.delete(&name, &DeleteParams::default()).await.with_context(|| format!("deleting node {name}"))?;
        }
    }
    let mut resources = json!({"cpu": "64", "memory": "512Gi", "ephemeral-storage": "1Ti", "pods": "110"});
    if blueprint.settings.gpus > 0 {
        resources[crate::components::GPU_RESOURCE] = json!(blueprint.settings.gpus.to_string());
    }
    for name in &desired {
        apply::<Node>(
            &nodes,
            name,
            &json!({
                "metadata": {
                    "annotations": {SIMULATED_NODE_KEY: "fake"},
                    "labels": {"type": "kwok", "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"},
                },
                "spec": {"taints": [{"key": SIMULATED_NODE_KEY, "value": "fake", "effect": "NoSchedule"}]},
            }),
        )
        .await?;
        let status = json!({"status": {"capacity": resources, "allocatable": resources}});
        nodes
            .patch_status(name, &PatchParams::default(), &Patch::Merge(&status))
            .await
            .with_context(|| format!("setting the resources of node {name}"))?;
    }
    Ok(())
}

/// Deletes the leases of simulated nodes: those whose holder is kwok and not the node itself.
pub async fn delete_simulated_leases(blueprint: &Blueprint) -> anyhow::Result<()> {
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

/// Applies a manifest. API version, kind and name are filled in.
async fn apply<K>(api: &Api<K>, name: &str, body: &serde_json::Value) -> anyhow::Result<()>
where
    K: Resource<DynamicType = ()> + Clone + Serialize + DeserializeOwned + std::fmt::Debug,
{
    let mut object = body.clone();
    object["apiVersion"] = json!(K::api_version(&()));
    object["kind"] = json!(K::kind(&()));
    object["metadata"]["name"] = json!(name);
    let params = PatchParams::apply(FIELD_MANAGER).force();
    api.patch(name, &params, &Patch::Apply(&object))
        .await
        .with_context(|| format!("applying {} {name}", K::kind(&())))?;
    Ok(())
}
