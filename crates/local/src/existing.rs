//! Somebody else's cluster: what it has, and what we will and will not do there.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{Api, ListParams};

use crate::cluster::is_ready;
use crate::problem::Problem;

/// What was found there.
#[derive(Debug)]
pub struct Found {
    version: String,
    nodes: usize,
    ready: usize,
    gpus: bool,
    default_storage: Option<String>,
}

/// An absolute path to the kubeconfig: the settings outlive the directory we were called in.
pub fn resolve(path: &Path) -> anyhow::Result<PathBuf> {
    std::fs::canonicalize(path).with_context(|| format!("there is no kubeconfig {}", path.display()))
}

pub async fn look(kubeconfig: &Path) -> anyhow::Result<Found> {
    let silent = |error: anyhow::Error| Problem::NoCluster {
        kubeconfig: kubeconfig.display().to_string(),
        reason: error.root_cause().to_string(),
    };
    let client = crate::cluster::client_of_others(kubeconfig).await.map_err(silent)?;
    let version = client.apiserver_version().await.map_err(|error| silent(error.into()))?.git_version;
    let nodes = Api::<Node>::all(client.clone())
        .list(&ListParams::default())
        .await
        .map_err(|error| silent(error.into()))?
        .items;
    let classes = Api::<StorageClass>::all(client)
        .list(&ListParams::default())
        .await
        .map_err(|error| silent(error.into()))?
        .items;
    let is_default = |class: &StorageClass| {
        class.metadata.annotations.as_ref().is_some_and(|notes| {
            notes.get("storageclass.kubernetes.io/is-default-class").is_some_and(|value| value == "true")
        })
    };
    Ok(Found {
        version,
        nodes: nodes.len(),
        ready: nodes.iter().filter(|node| is_ready(node)).count(),
        gpus: nodes.iter().any(|node| {
            node.status
                .as_ref()
                .and_then(|status| status.allocatable.as_ref())
                .is_some_and(|all| all.keys().any(|name| name.ends_with("/gpu")))
        }),
        default_storage: classes.iter().find(|class| is_default(class)).and_then(|class| class.metadata.name.clone()),
    })
}

impl Found {
    /// Said before anything is done.
    pub fn plan(&self, kubeconfig: &Path) -> String {
        let have = |yes: bool, what: &str, without: &str| {
            if yes { format!("  has       {what}") } else { format!("  has no    {without}") }
        };
        let storage =
            self.default_storage.as_deref().map_or_else(String::new, |name| format!("a default StorageClass ({name})"));
        [
            format!(
                "Using the cluster of {}: Kubernetes {}, {} of {} nodes ready.",
                kubeconfig.display(),
                self.version,
                self.ready,
                self.nodes
            ),
            have(self.gpus, "GPUs", "GPUs: GPU flavors will not be schedulable there"),
            have(self.default_storage.is_some(), &storage, "default StorageClass: disks will need one named"),
            "  will start    PostgreSQL here, on loopback: the cluster cannot be asked for one".into(),
            "  will not touch anything in the cluster, and start no Kubernetes, registry or DNS".into(),
        ]
        .join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plan_says_what_is_there_what_is_missing_and_what_will_happen() {
        let found = Found {
            version: "v1.34.0".into(),
            nodes: 3,
            ready: 2,
            gpus: false,
            default_storage: Some("standard".into()),
        };
        let plan = found.plan(Path::new("/k"));
        for part in [
            "v1.34.0, 2 of 3 nodes ready",
            "has no    GPUs",
            "default StorageClass (standard)",
            "will start    PostgreSQL",
            "will not touch",
        ] {
            assert!(plan.contains(part), "{part} missing in\n{plan}");
        }
    }
}
