//! The image registry of the cluster, plain HTTP on the bridge.

use super::Blueprint;
use crate::component::Component;
use crate::probe::Probe;

impl Blueprint {
    pub(super) fn registry(&self) -> Component {
        let address = self.host_port(self.settings.ports.registry);
        let config = format!(
            "version: 0.1\n\
             log: {{level: warn}}\n\
             storage:\n  \
               filesystem: {{rootdirectory: '{}'}}\n  \
               delete: {{enabled: true}}\n\
             http: {{addr: '{address}'}}\n",
            self.layout.registry().display(),
        );
        let file = self.config_path("registry.yaml");
        Component::new("registry")
            .command(["docker-registry", "serve"])
            .command([file.as_os_str()])
            // There is no trace collector, and failed exports would fill the log.
            .environment("OTEL_TRACES_EXPORTER", "none")
            .file(file.clone(), config)
            .cgroup(self.control_cgroup())
            .ready(Probe::http(format!("http://{address}/v2/")))
    }

    /// Returns the address of the registry as seen from the host.
    pub fn registry_address(&self) -> String {
        self.host_port(self.settings.ports.registry)
    }
}
