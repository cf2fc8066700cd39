//! etcd, API server, controller manager and scheduler.

use serde_json::json;

use super::Blueprint;
use crate::component::{Component, StopSignal};
use crate::pki::{Ca, kubeconfig, kubeconfig_with_demo};
use crate::probe::Probe;
use crate::settings::Mode;

impl Blueprint {
    pub(crate) fn control_plane(&self) -> Vec<Component> {
        vec![self.etcd(), self.apiserver(), self.controller_manager(), self.scheduler()]
    }

    fn kube(&self, name: &str, component: &str) -> Component {
        Component::new(name)
            .command([self.executables.kube.as_os_str()])
            .command([component])
            .cgroup(self.control_cgroup())
    }

    fn etcd(&self) -> Component {
        let (pki, ports) = (self.pki(), &self.settings.ports);
        let (serving, ca) = (pki.cert("etcd"), pki.ca(Ca::Etcd).certificate);
        let client_url = format!("https://{}", self.host_port(ports.etcd));
        // A single member has no peers, but etcd requires a peer URL, and pods can reach it: it is authenticated like the
        // client URL.
        let peer_url = format!("https://{}", self.host_port(ports.etcd_peer));
        let health_url = format!("http://{}", self.host_port(ports.etcd_health));
        self.kube("etcd", "etcd")
            .flag("name", "local")
            .path_flag("data-dir", &self.layout.etcd())
            .flag("listen-client-urls", &client_url)
            .flag("advertise-client-urls", &client_url)
            .flag("listen-peer-urls", &peer_url)
            .flag("initial-advertise-peer-urls", &peer_url)
            .flag("initial-cluster", format!("local={peer_url}"))
            .flag("listen-metrics-urls", &health_url)
            .path_flag("cert-file", &serving.certificate)
            .path_flag("key-file", &serving.key)
            .flag("client-cert-auth", true)
            .path_flag("trusted-ca-file", &ca)
            .path_flag("peer-cert-file", &serving.certificate)
            .path_flag("peer-key-file", &serving.key)
            .flag("peer-client-cert-auth", true)
            .path_flag("peer-trusted-ca-file", &ca)
            .flag("auto-compaction-retention", "10m")
            .flag("log-level", "warn")
            .ready(Probe::http(format!("{health_url}/health")))
    }

    fn apiserver(&self) -> Component {
        let (pki, network, ports) = (self.pki(), self.settings.network, &self.settings.ports);
        let (serving, etcd, kubelet, proxy) = (
            pki.cert("apiserver"),
            pki.cert("etcd-client"),
            pki.cert("apiserver-kubelet-client"),
            pki.cert("front-proxy-client"),
        );
        let ca = pki.ca(Ca::Cluster).certificate;
        let admin = if self.settings.mode() == Mode::Full && !self.settings.bare {
            kubeconfig_with_demo(&self.api_url(), &ca, &pki.cert("admin"), &self.layout.demo_token())
        } else {
            kubeconfig(&self.api_url(), &ca, &pki.cert("admin"))
        };
        let audit_log_megabytes = match self.settings.mode() {
            // Tests read the log from an offset, so it must not be rotated.
            Mode::ControlPlane => 10_000,
            Mode::Full | Mode::External => 100,
        };
        let mut component = self
            .kube("apiserver", "kube-apiserver")
            .depends_on("etcd")
            .flag("bind-address", network.host_ip())
            .flag("secure-port", ports.api)
            .flag("advertise-address", network.host_ip())
            .flag("etcd-servers", format!("https://{}", self.host_port(ports.etcd)))
            .path_flag("etcd-cafile", &pki.ca(Ca::Etcd).certificate)
            .path_flag("etcd-certfile", &etcd.certificate)
            .path_flag("etcd-keyfile", &etcd.key)
            .flag("service-cluster-ip-range", network.service_cidr())
            .path_flag("client-ca-file", &ca)
            .path_flag("tls-cert-file", &serving.certificate)
            .path_flag("tls-private-key-file", &serving.key)
            .path_flag("kubelet-certificate-authority", &ca)
            .path_flag("kubelet-client-certificate", &kubelet.certificate)
            .path_flag("kubelet-client-key", &kubelet.key)
            .flag("kubelet-preferred-address-types", "InternalIP")
            .flag("service-account-issuer", "https://kubernetes.default.svc.cluster.local")
            .path_flag("service-account-key-file", &pki.service_account_public())
            .path_flag("service-account-signing-key-file", &pki.service_account_key())
            .flag("authorization-mode", "Node,RBAC")
            .flag("enable-admission-plugins", "NodeRestriction")
            .flag("allow-privileged", true)
            .path_flag("requestheader-client-ca-file", &pki.ca(Ca::FrontProxy).certificate)
            .flag("requestheader-allowed-names", "front-proxy-client")
            .flag("requestheader-extra-headers-prefix", "X-Remote-Extra-")
            .flag("requestheader-group-headers", "X-Remote-Group")
            .flag("requestheader-username-headers", "X-Remote-User")
            .path_flag("proxy-client-cert-file", &proxy.certificate)
            .path_flag("proxy-client-key-file", &proxy.key)
            // No kube-proxy runs on the host, so Services are resolved to endpoints.
            .flag("enable-aggregator-routing", true)
            .path_flag("audit-log-path", &self.layout.audit_log())
            .path_flag("audit-policy-file", &self.config_path("audit-policy.json"))
            .flag("audit-log-maxsize", audit_log_megabytes)
            .flag("audit-log-maxbackup", 2)
            .file(self.config_path("audit-policy.json"), audit_policy())
            .file(self.layout.kubeconfig(), admin)
            .stop_signal(StopSignal::Terminate { seconds: 15 })
            .ready(Probe::https(format!("{}/readyz", self.api_url()), ca));
        if let Some(kubeconfig) = component.files.last_mut() {
            kubeconfig.mode = 0o600;
        }
        component
    }

    fn controller_manager(&self) -> Component {
        let (pki, ports) = (self.pki(), &self.settings.ports);
        let ca = pki.ca(Ca::Cluster);
        let component = self
            .api_client("controller-manager", "kube-controller-manager", ports.controller_manager)
            .path_flag("service-account-private-key-file", &pki.service_account_key())
            .path_flag("root-ca-file", &ca.certificate)
            .path_flag("cluster-signing-cert-file", &ca.certificate)
            .path_flag("cluster-signing-key-file", &ca.key)
            .flag("use-service-account-credentials", true)
            // A kind that was discovered after a quota was written is counted at the next resync, by default after 5 minutes.
            .flag("resource-quota-sync-period", "10s")
            .flag("cluster-cidr", self.settings.network.pod_cidr());
        match self.settings.mode() {
            // Nodes without a kubelet do not renew their leases and must not become NotReady.
            Mode::ControlPlane => component.flag("node-monitor-grace-period", "24h"),
            Mode::Full | Mode::External => component,
        }
    }

    fn scheduler(&self) -> Component {
        self.api_client("scheduler", "kube-scheduler", self.settings.ports.scheduler)
    }

    /// Returns what the controller manager and the scheduler have in common. There is one of each, so leader election is off.
    fn api_client(&self, name: &str, component: &str, port: u16) -> Component {
        let pki = self.pki();
        let (serving, ca) = (pki.cert(&format!("{name}-serving")), pki.ca(Ca::Cluster).certificate);
        let config = self.layout.component_kubeconfig(name);
        self.kube(name, component)
            .depends_on("apiserver")
            .path_flag("kubeconfig", &config)
            .path_flag("authentication-kubeconfig", &config)
            .path_flag("authorization-kubeconfig", &config)
            .flag("bind-address", self.settings.network.host_ip())
            .flag("secure-port", port)
            .path_flag("tls-cert-file", &serving.certificate)
            .path_flag("tls-private-key-file", &serving.key)
            .flag("leader-elect", false)
            // The default client-side rate limits would slow tests down.
            .flag("kube-api-qps", 1000)
            .flag("kube-api-burst", 2000)
            .file(config.clone(), kubeconfig(&self.api_url(), &ca, &pki.cert(name)))
            .ready(Probe::https(format!("https://{}/healthz", self.host_port(port)), ca))
    }
}

/// Logs the metadata of every request, which tests count, without request bodies.
fn audit_policy() -> String {
    json!({
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "omitManagedFields": true,
        "rules": [
            {"level": "None", "nonResourceURLs": ["/healthz*", "/livez*", "/readyz*", "/version", "/openapi/*"]},
            {"level": "Metadata"},
        ],
    })
    .to_string()
}
