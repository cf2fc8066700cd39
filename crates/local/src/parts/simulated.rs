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
            // Otherwise it reads the settings of the person who started us.
            .environment("KWOK_WORKDIR", self.config("kwok").display().to_string())
            .needs("cluster")
            // Each start of it is somebody else to the leases of the last one, and would wait two minutes for them.
            .wrapper(["sh", "-c", r#""$1" local job simulated-leases --dir "$2" && shift 2 && exec "$@""#, "sh"])
            .wrapper([self.executables.odc.as_os_str(), self.layout.root().as_os_str()])
            .command([self.executables.kwok.as_os_str()])
            .path_flag("kubeconfig", &self.layout.kubeconfig())
            .path_flag("config", &self.executables.kwok_stages)
            .flag("manage-all-nodes", false)
            .flag("manage-nodes-with-annotation-selector", "kwok.x-k8s.io/node=fake")
            // A renewal every 30 s is enough to keep a node ready, and 5,000 nodes renew too.
            .flag("node-lease-duration-seconds", 120)
            // Its pods have addresses nobody can reach, so they must not be real ones.
            .flag("cidr", "192.0.2.0/24")
            .flag("server-address", &address)
            .cgroup(self.control_cgroup())
            .ready(Probe::http(format!("http://{address}/healthz")));
        Some(part)
    }
}
