//! CoreDNS, beside the API server and behind the Service `kube-dns`.
//!
//! It runs on the host and not in a pod, so that names resolve before the first pod runs and after a node is lost, and
//! the host's own resolvers are asked from where they can be reached.

use super::{Blueprint, REGISTRY_NAME};
use crate::part::Part;
use crate::pki::{Authority, kubeconfig};
use crate::probe::Probe;

impl Blueprint {
    pub(super) fn dns(&self) -> Part {
        let (network, ports) = (self.settings.network, &self.settings.ports);
        let config = self.layout.kubeconfig_of("coredns");
        let host = network.host();
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
            health = self.at(ports.dns_health),
            ready = self.at(ports.dns_ready),
            kubeconfig = config.display(),
        );
        let authority = self.pki().authority(Authority::Cluster).certificate;
        let file = self.config("Corefile");
        Part::new("dns")
            .needs("cluster")
            .command([self.executables.coredns.as_os_str()])
            .command(["-conf"])
            .command([file.as_os_str()])
            .file(file.clone(), corefile)
            .file(config, kubeconfig(&self.api_url(), &authority, &self.pki().pair("coredns")))
            .cgroup(self.control_cgroup())
            .ready(Probe::http(format!("http://{}/ready", self.at(ports.dns_ready))))
    }
}
