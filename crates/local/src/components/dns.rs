//! CoreDNS, the endpoint of the Service `kube-dns`.
//!
//! It runs on the host instead of in a pod, so that names resolve before the first pod runs and after the loss of a node,
//! and so that it can reach the upstream resolvers of the host.

use super::{Blueprint, REGISTRY_NAME};
use crate::component::Component;
use crate::pki::{Ca, kubeconfig};
use crate::probe::Probe;

impl Blueprint {
    pub(super) fn dns(&self) -> Component {
        let (network, ports) = (self.settings.network, &self.settings.ports);
        let config = self.layout.component_kubeconfig("coredns");
        let host = network.host_ip();
        let corefile = format!(
            ".:{dns} {{
    bind {host}
    errors
    health {health}
    ready {ready}
    hosts /dev/null {REGISTRY_NAME} {{
        {host} {REGISTRY_NAME}
        fallthrough
    }}
    kubernetes cluster.local in-addr.arpa ip6.arpa {{
        kubeconfig {kubeconfig}
        pods insecure
        fallthrough in-addr.arpa ip6.arpa
        ttl 5
    }}
    forward . /etc/resolv.conf
    cache 5
    loop
}}
",
            dns = ports.dns,
            health = self.host_port(ports.dns_health),
            ready = self.host_port(ports.dns_ready),
            kubeconfig = config.display(),
        );
        let ca = self.pki().ca(Ca::Cluster).certificate;
        let file = self.config_path("Corefile");
        Component::new("dns")
            .depends_on("cluster")
            .command([self.executables.coredns.as_os_str()])
            .command(["-conf"])
            .command([file.as_os_str()])
            .file(file.clone(), corefile)
            .file(config, kubeconfig(&self.api_url(), &ca, &self.pki().cert("coredns")))
            .cgroup(self.control_cgroup())
            .ready(Probe::http(format!("http://{}/ready", self.host_port(ports.dns_ready))))
    }
}
