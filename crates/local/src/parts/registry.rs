//! The cloud's own image registry, plain HTTP on the bridge.

use super::Blueprint;
use crate::part::Part;
use crate::probe::Probe;

impl Blueprint {
    pub(super) fn registry(&self) -> Part {
        let address = self.at(self.settings.ports.registry);
        let config = format!(
            "version: 0.1\n\
             log: {{level: warn}}\n\
             storage:\n  \
               filesystem: {{rootdirectory: '{}'}}\n  \
               delete: {{enabled: true}}\n\
             http: {{addr: '{address}'}}\n",
            self.layout.registry().display(),
        );
        let file = self.config("registry.yaml");
        Part::new("registry")
            .command(["docker-registry", "serve"])
            .command([file.as_os_str()])
            // Without a collector its tracing only fills the log.
            .environment("OTEL_TRACES_EXPORTER", "none")
            .file(file.clone(), config)
            .cgroup(self.control_cgroup())
            .ready(Probe::http(format!("http://{address}/v2/")))
    }

    /// Where the host itself reaches the registry.
    pub fn registry_address(&self) -> String {
        self.at(self.settings.ports.registry)
    }
}
