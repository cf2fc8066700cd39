//! Paths in the state directory of a cluster, and names of the host resources derived from it.

use std::fmt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::components::DatabaseRole;
use crate::network::NodeIndex;

/// The state directory of a cluster.
#[derive(Clone, Debug)]
pub struct Layout {
    root: PathBuf,
}

impl Layout {
    /// `root` must be absolute, because started processes have another working directory.
    pub fn new(root: PathBuf) -> Self {
        debug_assert!(root.is_absolute());
        Self { root }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the ID in the names of links, namespaces, cgroups and the nft table of this cluster.
    pub fn id(&self) -> ClusterId {
        let hash = Sha256::digest(self.root.as_os_str().as_encoded_bytes());
        ClusterId(hash.iter().take(3).map(|byte| format!("{byte:02x}")).collect())
    }

    pub fn settings(&self) -> PathBuf {
        self.root.join("cluster.json")
    }

    pub fn socket(&self) -> PathBuf {
        self.root.join("supervisor.sock")
    }

    pub fn lock(&self) -> PathBuf {
        self.root.join("supervisor.lock")
    }

    /// Held by the command that is changing the cluster.
    pub fn command_lock(&self) -> PathBuf {
        self.root.join("command.lock")
    }

    /// Directory of the records of running processes.
    pub fn run(&self) -> PathBuf {
        self.root.join("run")
    }

    pub fn logs(&self) -> PathBuf {
        self.root.join("logs")
    }

    pub fn component_log(&self, component: &str) -> PathBuf {
        self.logs().join(format!("{component}.log"))
    }

    pub fn audit_log(&self) -> PathBuf {
        self.logs().join("audit.jsonl")
    }

    pub fn config(&self) -> PathBuf {
        self.root.join("config")
    }

    pub fn pki(&self) -> PathBuf {
        self.root.join("pki")
    }

    pub fn etcd(&self) -> PathBuf {
        self.root.join("etcd")
    }

    pub fn postgres(&self) -> PathBuf {
        self.root.join("postgres")
    }

    pub fn database_password(&self, role: DatabaseRole) -> PathBuf {
        self.pki().join(format!("{}.password", role.as_str()))
    }

    pub fn registry(&self) -> PathBuf {
        self.root.join("registry")
    }

    /// Directory of the pool of persistent volumes, bind-mounted at `/var/lib/odc-csi` of every node.
    pub fn storage(&self) -> PathBuf {
        self.root.join("storage")
    }

    /// File system of the pool, which the CSI driver creates and mounts in the nodes.
    pub fn pool_file(&self) -> PathBuf {
        self.storage().join("pool.img")
    }

    /// Directory with `kubectl`, `odc` and `devctl`, to be added to `PATH`.
    pub fn bin(&self) -> PathBuf {
        self.root.join("bin")
    }

    /// The administrator's kubeconfig.
    pub fn kubeconfig(&self) -> PathBuf {
        self.root.join("kubeconfig")
    }

    /// Bearer token of the demo user.
    pub fn demo_api_key(&self) -> PathBuf {
        self.config().join("demo.api-key")
    }

    pub fn demo_token(&self) -> PathBuf {
        self.config().join("demo.token")
    }

    pub fn component_kubeconfig(&self, component: &str) -> PathBuf {
        self.config().join(format!("{component}.kubeconfig"))
    }

    pub fn node(&self, node: NodeIndex) -> PathBuf {
        self.root.join("nodes").join(node.to_string())
    }

    /// Bind-mounted at `/var/lib/kubelet` of the node.
    pub fn kubelet(&self, node: NodeIndex) -> PathBuf {
        self.node(node).join("kubelet")
    }

    /// Pins the node's mount namespace. Its parent is a private mount point.
    pub fn mount_namespace(&self, node: NodeIndex) -> PathBuf {
        self.node(node).join("ns/mnt")
    }

    /// Socket of the node's device plugin, as seen from the host.
    pub fn gpu_socket(&self, node: NodeIndex) -> PathBuf {
        self.kubelet(node).join("device-plugins/odc-nvidia.com_gpu.sock")
    }

    pub fn containerd_socket(&self, node: NodeIndex) -> PathBuf {
        self.node(node).join("run/containerd/containerd.sock")
    }

    /// Directory of markers: a GPU is unhealthy while a file named after its ID exists here.
    pub fn unhealthy_gpus(&self, node: NodeIndex) -> PathBuf {
        self.node(node).join("unhealthy-gpus")
    }
}

/// Identifies a cluster on this machine: a hash of its state directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterId(String);

impl ClusterId {
    /// Maps the ID to an index below `choices`.
    pub fn hash_index(&self, choices: usize) -> usize {
        usize::from_str_radix(&self.0, 16).unwrap_or_default() % choices.max(1)
    }

    /// The kernel limits link names to 15 characters.
    pub fn bridge(&self) -> String {
        format!("odc{}", self.0)
    }

    pub fn link(&self, node: NodeIndex) -> String {
        format!("odc{}{node}", self.0)
    }

    pub fn network_namespace(&self, node: NodeIndex) -> String {
        format!("odc-{}-{node}", self.0)
    }

    pub fn nft_table(&self) -> String {
        format!("odc_{}", self.0)
    }

    /// Relative to the root of every hierarchy.
    pub fn cgroup(&self) -> PathBuf {
        PathBuf::from(format!("odc-{}", self.0))
    }

    pub fn node_cgroup(&self, node: NodeIndex) -> PathBuf {
        self.cgroup().join(node.to_string())
    }
}

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::MAX_NODES;

    #[test]
    fn link_names_fit_the_kernel_limit() {
        let id = Layout::new("/var/lib/odc".into()).id();
        for node in NodeIndex::all(MAX_NODES) {
            assert!(id.link(node).len() <= 15, "{}", id.link(node));
        }
    }

    #[test]
    fn ids_of_different_directories_differ() {
        assert_ne!(Layout::new("/a".into()).id(), Layout::new("/b".into()).id());
    }
}
