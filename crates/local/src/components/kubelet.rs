//! The kubelet of a node, and the device plugin that advertises its simulated GPUs.

use serde_json::json;

use super::Blueprint;
use crate::component::Component;
use crate::network::NodeIndex;
use crate::pki::{Ca, kubeconfig};
use crate::probe::Probe;

const HEALTH_PORT: u16 = 10248;
/// Label of the nodes that run pods, in contrast to simulated ones.
pub const LOCAL_NODE_LABEL: &str = "odc.dev/local-node";
/// Labels of every such node.
pub const NODE_LABELS: [(&str, &str); 3] =
    [(LOCAL_NODE_LABEL, "true"), ("topology.kubernetes.io/region", "local"), ("topology.kubernetes.io/zone", "local")];
pub const GPU_RESOURCE: &str = "nvidia.com/gpu";

impl Blueprint {
    pub(super) fn kubelet(&self, node: NodeIndex) -> Component {
        let (pki, address) = (self.pki(), self.settings.network.node_ip(node));
        let directory = self.layout.node(node);
        let (config, credentials) = (directory.join("kubelet.json"), directory.join("kubelet.kubeconfig"));
        let ca = pki.ca(Ca::Cluster).certificate;
        let serving = pki.cert(&format!("kubelet-serving-{node}"));
        let text = json!({
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": address,
            "healthzBindAddress": address,
            "healthzPort": HEALTH_PORT,
            "authentication": {"anonymous": {"enabled": false}, "webhook": {"enabled": true}, "x509": {"clientCAFile": ca}},
            "authorization": {"mode": "Webhook"},
            "tlsCertFile": serving.certificate,
            "tlsPrivateKeyFile": serving.key,
            "clusterDomain": "cluster.local",
            "clusterDNS": [self.settings.network.dns_service_ip()],
            "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": format!("/{}", self.layout.id().node_cgroup(node).display()),
            "failCgroupV1": false,
            "failSwapOn": false,
            "oomScoreAdj": 0,
            // Detect changes quickly, but write the status only if it has changed.
            "nodeStatusUpdateFrequency": "2s",
            "nodeStatusReportFrequency": "5m",
            // The file system is shared with the whole machine, so the default percentages do not fit.
            "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1Gi", "imagefs.available": "1Gi"},
            "imageGCHighThresholdPercent": 100,
            "imageGCLowThresholdPercent": 99,
        })
        .to_string();
        self.node_component(node, "kubelet")
            .depends_on("apiserver")
            .depends_on("cluster")
            .depends_on(format!("{node}/containerd"))
            .command([self.executables.kube.as_os_str()])
            .command(["kubelet"])
            .flag("hostname-override", node)
            .flag("node-ip", address)
            .flag("node-labels", NODE_LABELS.map(|(label, value)| format!("{label}={value}")).join(","))
            .path_flag("kubeconfig", &credentials)
            .path_flag("config", &config)
            .file(config.clone(), text)
            .file(credentials, kubeconfig(&self.api_url(), &ca, &pki.cert(&format!("kubelet-{node}"))))
            .ready(Probe::http(format!("http://{address}:{HEALTH_PORT}/healthz")))
    }

    pub(super) fn gpus(&self, node: NodeIndex) -> Component {
        self.node_component(node, "gpus")
            .depends_on(format!("{node}/kubelet"))
            .command([self.executables.fake_gpu_plugin.as_os_str()])
            .flag("resource", GPU_RESOURCE)
            .flag("count", self.settings.gpus)
            .flag("node", node)
            .path_flag("unhealthy-dir", &self.layout.unhealthy_gpus(node))
            .ready(Probe::Unix(self.layout.gpu_socket(node)))
    }
}
