//! A node's container runtime and its pod network.

use serde_json::json;

use super::{Blueprint, REGISTRY_NAME};
use crate::image;
use crate::network::NodeIndex;
use crate::part::{Ending, Part};
use crate::probe::Probe;

impl Blueprint {
    pub(super) fn containerd(&self, node: NodeIndex) -> Part {
        let directory = self.layout.node(node);
        let (root, config, networks, hosts) = (
            directory.join("containerd"),
            directory.join("containerd.toml"),
            directory.join("net.d"),
            directory.join("certs.d"),
        );
        let pause = image::reference(image::PAUSE);
        // `/run/containerd` is the node's own: see `host`.
        let text = format!(
            "version = 2
root = \"{root}\"
state = \"/run/containerd\"
oom_score = 0

[grpc]
address = \"/run/containerd/containerd.sock\"

[plugins.\"io.containerd.grpc.v1.cri\"]
sandbox_image = \"{pause}\"
# The right to lower the score may be missing.
restrict_oom_score_adj = true

[plugins.\"io.containerd.grpc.v1.cri\".containerd]
snapshotter = \"overlayfs\"
default_runtime_name = \"runc\"

[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc]
runtime_type = \"io.containerd.runc.v2\"

[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc.options]
SystemdCgroup = false

[plugins.\"io.containerd.grpc.v1.cri\".cni]
bin_dir = \"/usr/lib/cni\"
conf_dir = \"{networks}\"

[plugins.\"io.containerd.grpc.v1.cri\".registry]
config_path = \"{hosts}\"
",
            root = root.display(),
            networks = networks.display(),
            hosts = hosts.display(),
        );
        let registry = format!(
            "server = \"http://{0}\"\n[host.\"http://{0}\"]\ncapabilities = [\"pull\", \"resolve\"]\n",
            self.registry_address()
        );
        let registry_port = self.settings.ports.registry;
        self.node_part(node, "containerd")
            .needs("registry")
            .needs("images")
            .command(["containerd", "--config"])
            .command([config.as_os_str()])
            .file(config.clone(), text)
            .file(networks.join("10-pods.conflist"), self.pod_network(node))
            .file(hosts.join(format!("{REGISTRY_NAME}:{registry_port}")).join("hosts.toml"), registry)
            .ending(Ending::Terminate { seconds: 10 })
            .ready(Probe::Unix(self.layout.containerd_socket(node)))
    }

    /// Pods are routed, not bridged: replies of a Service on the same node then pass the node's address translation
    /// without any help of the kernel's bridge code.
    fn pod_network(&self, node: NodeIndex) -> String {
        json!({
            "cniVersion": "0.4.0",
            "name": "pods",
            "plugins": [
                {
                    "type": "ptp",
                    "ipMasq": false,
                    "ipam": {
                        "type": "host-local",
                        "ranges": [[{"subnet": self.settings.network.pods_of(node).to_string()}]],
                        "routes": [{"dst": "0.0.0.0/0"}],
                        "dataDir": "/var/lib/cni/networks",
                    },
                },
                {"type": "portmap", "capabilities": {"portMappings": true}, "snat": true},
            ],
        })
        .to_string()
    }
}
