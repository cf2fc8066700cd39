//! Inspects an existing cluster before `up` uses it.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{Api, ListParams};

use crate::cluster::is_ready;
use crate::error::Error;

#[derive(Debug)]
pub struct ClusterInfo {
    version: String,
    nodes: usize,
    ready_nodes: usize,
    has_gpus: bool,
    default_storage_class: Option<String>,
}

/// Returns the absolute path of the kubeconfig, because the settings outlive the current directory.
pub fn canonical_path(path: &Path) -> anyhow::Result<PathBuf> {
    std::fs::canonicalize(path).with_context(|| format!("cannot read kubeconfig {}", path.display()))
}

pub async fn inspect(kubeconfig: &Path) -> anyhow::Result<ClusterInfo> {
    let unreachable = |error: anyhow::Error| Error::ClusterUnreachable {
        kubeconfig: kubeconfig.display().to_string(),
        reason: error.root_cause().to_string(),
    };
    let client = crate::cluster::external_client(kubeconfig).await.map_err(unreachable)?;
    let version = client.apiserver_version().await.map_err(|error| unreachable(error.into()))?.git_version;
    let nodes = Api::<Node>::all(client.clone())
        .list(&ListParams::default())
        .await
        .map_err(|error| unreachable(error.into()))?
        .items;
    let classes = Api::<StorageClass>::all(client)
        .list(&ListParams::default())
        .await
        .map_err(|error| unreachable(error.into()))?
        .items;
    let is_default = |class: &StorageClass| {
        class.metadata.annotations.as_ref().is_some_and(|annotations| {
            annotations.get("storageclass.kubernetes.io/is-default-class").is_some_and(|value| value == "true")
        })
    };
    Ok(ClusterInfo {
        version,
        nodes: nodes.len(),
        ready_nodes: nodes.iter().filter(|node| is_ready(node)).count(),
        has_gpus: nodes.iter().any(|node| {
            node.status
                .as_ref()
                .and_then(|status| status.allocatable.as_ref())
                .is_some_and(|all| all.keys().any(|name| name.ends_with("/gpu")))
        }),
        default_storage_class: classes
            .iter()
            .find(|class| is_default(class))
            .and_then(|class| class.metadata.name.clone()),
    })
}

impl ClusterInfo {
    /// Describes the cluster and what `up` will do with it; printed before anything is changed.
    pub fn describe(&self, kubeconfig: &Path) -> String {
        let feature = |present: bool, name: &str, missing: &str| {
            if present { format!("  has       {name}") } else { format!("  has no    {missing}") }
        };
        let storage = self
            .default_storage_class
            .as_deref()
            .map_or_else(String::new, |name| format!("a default StorageClass ({name})"));
        [
            format!(
                "Using the cluster of {}: Kubernetes {}, {} of {} nodes ready",
                kubeconfig.display(),
                self.version,
                self.ready_nodes,
                self.nodes
            ),
            feature(self.has_gpus, "GPUs", "GPUs; servers with a GPU flavor will stay pending"),
            feature(
                self.default_storage_class.is_some(),
                &storage,
                "default StorageClass; disks must name a storage class",
            ),
            "  will start    PostgreSQL on loopback".into(),
            "  will not touch anything in the cluster, and start no Kubernetes, registry or DNS".into(),
        ]
        .join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn description_lists_features_and_planned_changes() {
        let info = ClusterInfo {
            version: "v1.34.0".into(),
            nodes: 3,
            ready_nodes: 2,
            has_gpus: false,
            default_storage_class: Some("standard".into()),
        };
        let description = info.describe(Path::new("/k"));
        for text in [
            "v1.34.0, 2 of 3 nodes ready",
            "has no    GPUs",
            "default StorageClass (standard)",
            "will start    PostgreSQL",
            "will not touch",
        ] {
            assert!(description.contains(text), "{text} missing in\n{description}");
        }
    }
}
