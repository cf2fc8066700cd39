//! A node's kubelet and the GPUs it is told about.

use serde_json::json;

use super::Blueprint;
use crate::network::NodeIndex;
use crate::part::Part;
use crate::pki::{Authority, kubeconfig};
use crate::probe::Probe;

const HEALTH_PORT: u16 = 10248;
/// Marks Node objects of this cloud's own nodes.
pub const OURS: &str = "odc.dev/local-node";
/// Of every node of ours.
pub const LABELS: [(&str, &str); 3] =
    [(OURS, "true"), ("topology.kubernetes.io/region", "local"), ("topology.kubernetes.io/zone", "local")];
pub const GPU_RESOURCE: &str = "nvidia.com/gpu";

impl Blueprint {
    pub(super) fn kubelet(&self, node: NodeIndex) -> Part {
        let (pki, address) = (self.pki(), self.settings.network.node(node));
        let directory = self.layout.node(node);
        let (config, credentials) = (directory.join("kubelet.json"), directory.join("kubelet.kubeconfig"));
        let authority = pki.authority(Authority::Cluster).certificate;
        let serving = pki.pair(&format!("kubelet-serving-{node}"));
        let text = json!({
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": address,
            "healthzBindAddress": address,
            "healthzPort": HEALTH_PORT,
            "authentication": {"anonymous": {"enabled": false}, "webhook": {"enabled": true}, "x509": {"clientCAFile": authority}},
            "authorization": {"mode": "Webhook"},
            "tlsCertFile": serving.certificate,
            "tlsPrivateKeyFile": serving.key,
            "clusterDomain": "cluster.local",
            "clusterDNS": [self.settings.network.dns_service()],
            "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": format!("/{}", self.layout.id().cgroup_of(node).display()),
            "failCgroupV1": false,
            "failSwapOn": false,
            "oomScoreAdj": 0,
            // Looks often, so that a change shows soon; reports only what changed.
            "nodeStatusUpdateFrequency": "2s",
            "nodeStatusReportFrequency": "5m",
            // The disk is the person's whole machine: percentages of it mean nothing here.
            "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1Gi", "imagefs.available": "1Gi"},
            "imageGCHighThresholdPercent": 100,
            "imageGCLowThresholdPercent": 99,
        })
        .to_string();
        self.node_part(node, "kubelet")
            .needs("apiserver")
            .needs("cluster")
            .needs(format!("{node}/containerd"))
            .command([self.executables.kube.as_os_str()])
            .command(["kubelet"])
            .flag("hostname-override", node)
            .flag("node-ip", address)
            .flag("node-labels", LABELS.map(|(label, value)| format!("{label}={value}")).join(","))
            .path_flag("kubeconfig", &credentials)
            .path_flag("config", &config)
            .file(config.clone(), text)
            .file(credentials, kubeconfig(&self.api_url(), &authority, &pki.pair(&format!("kubelet-{node}"))))
            .ready(Probe::http(format!("http://{address}:{HEALTH_PORT}/healthz")))
    }

    pub(super) fn gpus(&self, node: NodeIndex) -> Part {
        let ill = self.layout.ill_gpus(node);
        self.node_part(node, "gpus")
            .needs(format!("{node}/kubelet"))
            .command([self.executables.gpu_plugin.as_os_str()])
            .flag("resource", GPU_RESOURCE)
            .flag("count", self.settings.gpus)
            .flag("node", node)
            .path_flag("ill-dir", &ill)
            .ready(Probe::Unix(self.layout.gpu_socket(node)))
    }
}
