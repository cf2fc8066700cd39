//! containerd of a node, and its CNI configuration.

use serde_json::json;

use super::{Blueprint, REGISTRY_NAME};
use crate::component::{Component, StopSignal};
use crate::image;
use crate::network::NodeIndex;
use crate::probe::Probe;

impl Blueprint {
    pub(super) fn containerd(&self, node: NodeIndex) -> Component {
        let directory = self.layout.node(node);
        let (root, config, cni, hosts) = (
            directory.join("containerd"),
            directory.join("containerd.toml"),
            directory.join("net.d"),
            directory.join("certs.d"),
        );
        let pause = image::reference(image::PAUSE);
        // `/run/containerd` is private to the node, see `host`.
        let text = format!(
            "version = 2
root = \"{root}\"
state = \"/run/containerd\"
oom_score = 0

[grpc]
address = \"/run/containerd/containerd.sock\"

[plugins.\"io.containerd.grpc.v1.cri\"]
sandbox_image = \"{pause}\"
# Lowering the score may not be permitted.
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
conf_dir = \"{cni}\"

[plugins.\"io.containerd.grpc.v1.cri\".registry]
config_path = \"{hosts}\"
",
            root = root.display(),
            cni = cni.display(),
            hosts = hosts.display(),
        );
        let registry = format!(
            "server = \"http://{0}\"\n[host.\"http://{0}\"]\ncapabilities = [\"pull\", \"resolve\"]\n",
            self.registry_address()
        );
        let registry_port = self.settings.ports.registry;
        self.node_component(node, "containerd")
            .depends_on("registry")
            .depends_on("images")
            .command(["containerd", "--config"])
            .command([config.as_os_str()])
            .file(config.clone(), text)
            .file(cni.join("10-pods.conflist"), self.cni_config(node))
            .file(hosts.join(format!("{REGISTRY_NAME}:{registry_port}")).join("hosts.toml"), registry)
            .stop_signal(StopSignal::Terminate { seconds: 10 })
            .ready(Probe::Unix(self.layout.containerd_socket(node)))
    }

    /// Pods are routed instead of bridged, so that replies within a node pass the node's NAT without `br_netfilter`.
    fn cni_config(&self, node: NodeIndex) -> String {
        json!({
            "cniVersion": "0.4.0",
            "name": "pods",
            "plugins": [
                {
                    "type": "ptp",
                    "ipMasq": false,
                    "ipam": {
                        "type": "host-local",
                        "ranges": [[{"subnet": self.settings.network.node_pod_cidr(node).to_string()}]],
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
