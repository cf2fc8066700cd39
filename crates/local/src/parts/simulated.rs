//! kwok, which plays the kubelet of nodes that exist only as objects.

use super::Blueprint;
use crate::part::Part;
use crate::probe::Probe;

impl Blueprint {
    pub(super) fn simulated(&self) -> Option<Part> {
        if self.settings.simulated_nodes == 0 {
            return None;
        }
        let address = self.at(self.settings.ports.kwok);
        let part = Part::new("simulated-nodes")
            .needs("cluster")
            .command([self.executables.kwok.as_os_str()])
            .path_flag("kubeconfig", &self.layout.kubeconfig())
            .path_flag("config", &self.executables.kwok_stages)
            .flag("manage-all-nodes", false)
            .flag("manage-nodes-with-annotation-selector", "kwok.x-k8s.io/node=fake")
            .flag("server-address", &address)
            .cgroup(self.control_cgroup())
            .ready(Probe::http(format!("http://{address}/healthz")));
        Some(part)
    }
}
