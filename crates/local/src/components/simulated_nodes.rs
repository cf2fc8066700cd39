//! kwok, which simulates the kubelets of nodes that are only Node objects.

use super::Blueprint;
use crate::component::Component;
use crate::probe::Probe;

impl Blueprint {
    pub(super) fn simulated_nodes(&self) -> Option<Component> {
        if self.settings.simulated_nodes == 0 {
            return None;
        }
        let address = self.host_port(self.settings.ports.kwok);
        let component = Component::new("simulated-nodes")
            // Keeps kwok from reading the user's configuration.
            .environment("KWOK_WORKDIR", self.config_path("kwok").display().to_string())
            .depends_on("cluster")
            // kwok has a new identity at every start and would wait two minutes for the leases of the previous process.
            .wrapper(["sh", "-c", r#""$1" local job simulated-leases --dir "$2" && shift 2 && exec "$@""#, "sh"])
            .wrapper([self.executables.odc.as_os_str(), self.layout.root().as_os_str()])
            .command([self.executables.kwok.as_os_str()])
            .path_flag("kubeconfig", &self.layout.kubeconfig())
            .path_flag("config", &self.executables.kwok_stages)
            .flag("manage-all-nodes", false)
            .flag("manage-nodes-with-annotation-selector", "kwok.x-k8s.io/node=fake")
            // One renewal per node every 30 s, which still works with 5,000 nodes.
            .flag("node-lease-duration-seconds", 120)
            // Addresses of simulated pods, from a documentation range so that they do not overlap with real ones.
            .flag("cidr", "192.0.2.0/24")
            .flag("server-address", &address)
            .cgroup(self.control_cgroup())
            .ready(Probe::http(format!("http://{address}/healthz")));
        Some(component)
    }
}
