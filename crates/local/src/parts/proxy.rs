//! A node's kube-proxy. Its nft table has a fixed name, so it lives in the node's own network namespace.

use serde_json::json;

use super::Blueprint;
use crate::network::NodeIndex;
use crate::part::Part;
use crate::pki::{Authority, kubeconfig};
use crate::probe::Probe;

const HEALTH_PORT: u16 = 10256;

impl Blueprint {
    pub(super) fn proxy(&self, node: NodeIndex) -> Part {
        let address = self.settings.network.node(node);
        let directory = self.layout.node(node);
        let (config, credentials) = (directory.join("proxy.json"), directory.join("proxy.kubeconfig"));
        let text = json!({
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "mode": "nftables",
            "hostnameOverride": node.to_string(),
            "bindAddress": address,
            "healthzBindAddress": format!("{address}:{HEALTH_PORT}"),
            "metricsBindAddress": format!("{address}:10249"),
            "clusterCIDR": self.settings.network.pods().to_string(),
            "clientConnection": {"kubeconfig": credentials},
            // Limits of the whole machine are not ours to raise.
            "conntrack": {"maxPerCore": 0, "min": 0},
        })
        .to_string();
        let authority = self.pki().authority(Authority::Cluster).certificate;
        self.node_part(node, "proxy")
            // It waits for its Node object, which the kubelet makes.
            .needs(format!("{node}/kubelet"))
            .command([self.executables.kube.as_os_str()])
            .command(["kube-proxy"])
            .path_flag("config", &config)
            .file(config.clone(), text)
            .file(credentials, kubeconfig(&self.api_url(), &authority, &self.pki().pair("kube-proxy")))
            .ready(Probe::http(format!("http://{address}:{HEALTH_PORT}/healthz")))
    }
}
