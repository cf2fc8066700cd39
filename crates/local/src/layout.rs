//! Where everything of one cloud lies: one directory, known names.

use std::fmt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::network::NodeIndex;

/// The state directory of one cloud.
#[derive(Clone, Debug)]
pub struct Layout {
    root: PathBuf,
}

impl Layout {
    /// `root` must be absolute: the processes we start have other working directories.
    pub fn new(root: PathBuf) -> Self {
        debug_assert!(root.is_absolute());
        Self { root }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Names what this cloud owns outside its directory (links, namespaces, cgroups, nft table).
    pub fn id(&self) -> CloudId {
        let hash = Sha256::digest(self.root.as_os_str().as_encoded_bytes());
        CloudId(hash.iter().take(3).map(|byte| format!("{byte:02x}")).collect())
    }

    pub fn settings(&self) -> PathBuf {
        self.root.join("cloud.json")
    }

    pub fn socket(&self) -> PathBuf {
        self.root.join("supervisor.sock")
    }

    pub fn lock(&self) -> PathBuf {
        self.root.join("supervisor.lock")
    }

    /// Held by the one command that may change this cloud now.
    pub fn turn(&self) -> PathBuf {
        self.root.join("turn.lock")
    }

    /// Records of running processes.
    pub fn run(&self) -> PathBuf {
        self.root.join("run")
    }

    pub fn logs(&self) -> PathBuf {
        self.root.join("logs")
    }

    pub fn log_of(&self, part: &str) -> PathBuf {
        self.logs().join(format!("{part}.log"))
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

    pub fn database_password(&self) -> PathBuf {
        self.root.join("pki/database-password")
    }

    pub fn registry(&self) -> PathBuf {
        self.root.join("registry")
    }

    /// `kubectl` and our own commands, to be put on `PATH`.
    pub fn bin(&self) -> PathBuf {
        self.root.join("bin")
    }

    /// The administrator's.
    pub fn kubeconfig(&self) -> PathBuf {
        self.root.join("kubeconfig")
    }

    /// By which the demo user is let in.
    pub fn demo_token(&self) -> PathBuf {
        self.config().join("demo.token")
    }

    pub fn kubeconfig_of(&self, who: &str) -> PathBuf {
        self.config().join(format!("{who}.kubeconfig"))
    }

    pub fn node(&self, node: NodeIndex) -> PathBuf {
        self.root.join("nodes").join(node.to_string())
    }

    /// What is bound over the node's own `/var/lib/kubelet`.
    pub fn kubelet(&self, node: NodeIndex) -> PathBuf {
        self.node(node).join("kubelet")
    }

    /// Holds the node's mount namespace. Its own mount point, so that it can be private.
    pub fn mount_namespace(&self, node: NodeIndex) -> PathBuf {
        self.node(node).join("ns/mnt")
    }

    /// Where the node's device plugin listens, seen from the host.
    pub fn gpu_socket(&self, node: NodeIndex) -> PathBuf {
        self.kubelet(node).join("device-plugins/odc-nvidia.com_gpu.sock")
    }

    pub fn containerd_socket(&self, node: NodeIndex) -> PathBuf {
        self.node(node).join("run/containerd/containerd.sock")
    }

    /// A GPU is ill while a file of its name lies here.
    pub fn ill_gpus(&self, node: NodeIndex) -> PathBuf {
        self.node(node).join("ill-gpus")
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CloudId(String);

impl CloudId {
    /// A number below `choices` that differs between most clouds.
    pub fn spread(&self, choices: usize) -> usize {
        usize::from_str_radix(&self.0, 16).unwrap_or_default() % choices.max(1)
    }

    /// Link names may have 15 characters at most.
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

    /// Below the root of every hierarchy.
    pub fn cgroup(&self) -> PathBuf {
        PathBuf::from(format!("odc-{}", self.0))
    }

    pub fn cgroup_of(&self, node: NodeIndex) -> PathBuf {
        self.cgroup().join(node.to_string())
    }
}

impl fmt::Display for CloudId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::MAX_NODES;

    #[test]
    fn link_names_fit_the_kernel() {
        let id = Layout::new("/var/lib/odc".into()).id();
        for node in NodeIndex::all(MAX_NODES) {
            assert!(id.link(node).len() <= 15, "{}", id.link(node));
        }
    }

    #[test]
    fn two_directories_are_two_clouds() {
        assert_ne!(Layout::new("/a".into()).id(), Layout::new("/b".into()).id());
    }
}
