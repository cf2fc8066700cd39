//! kube-proxy of a node. It runs in the node's network namespace, because its nft table has a fixed name.

use serde_json::json;

use super::Blueprint;
use crate::component::Component;
use crate::network::NodeIndex;
use crate::pki::{Ca, kubeconfig};
use crate::probe::Probe;

const HEALTH_PORT: u16 = 10256;
const METRICS_PORT: u16 = 10249;

impl Blueprint {
    pub(super) fn proxy(&self, node: NodeIndex) -> Component {
        let address = self.settings.network.node_ip(node);
        let directory = self.layout.node(node);
        let (config, credentials) = (directory.join("proxy.json"), directory.join("proxy.kubeconfig"));
        let text = json!({
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "mode": "nftables",
            "hostnameOverride": node.to_string(),
            "bindAddress": address,
            "healthzBindAddress": format!("{address}:{HEALTH_PORT}"),
            "metricsBindAddress": format!("{address}:{METRICS_PORT}"),
            "clusterCIDR": self.settings.network.pod_cidr().to_string(),
            "clientConnection": {"kubeconfig": credentials},
            // Do not change the conntrack limits of the machine.
            "conntrack": {"maxPerCore": 0, "min": 0},
        })
        .to_string();
        let ca = self.pki().ca(Ca::Cluster).certificate;
        self.node_component(node, "proxy")
            // It requires the Node object, which the kubelet creates.
            .depends_on(format!("{node}/kubelet"))
            .command([self.executables.kube.as_os_str()])
            .command(["kube-proxy"])
            .path_flag("config", &config)
            .file(config.clone(), text)
            .file(credentials, kubeconfig(&self.api_url(), &ca, &self.pki().cert("kube-proxy")))
            .ready(Probe::http(format!("http://{address}:{HEALTH_PORT}/healthz")))
    }
}
