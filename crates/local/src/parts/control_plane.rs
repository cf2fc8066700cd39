//! etcd, API server, controller manager and scheduler.

use serde_json::json;

use super::Blueprint;
use crate::part::{Ending, Part};
use crate::pki::{Authority, kubeconfig, kubeconfig_with_demo};
use crate::probe::Probe;
use crate::settings::Shape;

impl Blueprint {
    pub(crate) fn control_plane(&self) -> Vec<Part> {
        vec![self.etcd(), self.apiserver(), self.controller_manager(), self.scheduler()]
    }

    fn kube(&self, name: &str, component: &str) -> Part {
        Part::new(name).command([self.executables.kube.as_os_str()]).command([component]).cgroup(self.control_cgroup())
    }

    fn etcd(&self) -> Part {
        let (pki, ports) = (self.pki(), &self.settings.ports);
        let (serving, authority) = (pki.pair("etcd"), pki.authority(Authority::Etcd).certificate);
        let client_url = format!("https://{}", self.at(ports.etcd));
        // Nobody peers with a single member, but it insists on an address of its own, and pods could reach that.
        let peer_url = format!("https://{}", self.at(ports.etcd_peer));
        let health_url = format!("http://{}", self.at(ports.etcd_health));
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
            .path_flag("trusted-ca-file", &authority)
            .path_flag("peer-cert-file", &serving.certificate)
            .path_flag("peer-key-file", &serving.key)
            .flag("peer-client-cert-auth", true)
            .path_flag("peer-trusted-ca-file", &authority)
            .flag("auto-compaction-retention", "10m")
            .flag("log-level", "warn")
            .ready(Probe::http(format!("{health_url}/health")))
    }

    fn apiserver(&self) -> Part {
        let (pki, network, ports) = (self.pki(), self.settings.network, &self.settings.ports);
        let (serving, etcd, kubelet, proxy) = (
            pki.pair("apiserver"),
            pki.pair("etcd-client"),
            pki.pair("apiserver-kubelet-client"),
            pki.pair("front-proxy-client"),
        );
        let authority = pki.authority(Authority::Cluster).certificate;
        let admin = if self.settings.shape() == Shape::Full && !self.settings.bare {
            kubeconfig_with_demo(&self.api_url(), &authority, &pki.pair("admin"), &self.layout.demo_token())
        } else {
            kubeconfig(&self.api_url(), &authority, &pki.pair("admin"))
        };
        let mut part = self
            .kube("apiserver", "kube-apiserver")
            .needs("etcd")
            .flag("bind-address", network.host())
            .flag("secure-port", ports.api)
            .flag("advertise-address", network.host())
            .flag("etcd-servers", format!("https://{}", self.at(ports.etcd)))
            .path_flag("etcd-cafile", &pki.authority(Authority::Etcd).certificate)
            .path_flag("etcd-certfile", &etcd.certificate)
            .path_flag("etcd-keyfile", &etcd.key)
            .flag("service-cluster-ip-range", network.services())
            .path_flag("client-ca-file", &authority)
            .path_flag("tls-cert-file", &serving.certificate)
            .path_flag("tls-private-key-file", &serving.key)
            .path_flag("kubelet-certificate-authority", &authority)
            .path_flag("kubelet-client-certificate", &kubelet.certificate)
            .path_flag("kubelet-client-key", &kubelet.key)
            .flag("kubelet-preferred-address-types", "InternalIP")
            .flag("service-account-issuer", "https://kubernetes.default.svc.cluster.local")
            .path_flag("service-account-key-file", &pki.service_account_public())
            .path_flag("service-account-signing-key-file", &pki.service_account_key())
            .flag("authorization-mode", "Node,RBAC")
            .flag("enable-admission-plugins", "NodeRestriction")
            .flag("allow-privileged", true)
            .path_flag("requestheader-client-ca-file", &pki.authority(Authority::FrontProxy).certificate)
            .flag("requestheader-allowed-names", "front-proxy-client")
            .flag("requestheader-extra-headers-prefix", "X-Remote-Extra-")
            .flag("requestheader-group-headers", "X-Remote-Group")
            .flag("requestheader-username-headers", "X-Remote-User")
            .path_flag("proxy-client-cert-file", &proxy.certificate)
            .path_flag("proxy-client-key-file", &proxy.key)
            // There is no kube-proxy beside it: it calls endpoints directly.
            .flag("enable-aggregator-routing", true)
            .path_flag("audit-log-path", &self.layout.audit_log())
            .path_flag("audit-policy-file", &self.config("audit-policy.json"))
            .flag("audit-log-maxsize", 100)
            .flag("audit-log-maxbackup", 2)
            .file(self.config("audit-policy.json"), audit_policy())
            .file(self.layout.kubeconfig(), admin)
            .ending(Ending::Terminate { seconds: 15 })
            .ready(Probe::https(format!("{}/readyz", self.api_url()), authority));
        if let Some(kubeconfig) = part.files.last_mut() {
            kubeconfig.mode = 0o600;
        }
        part
    }

    fn controller_manager(&self) -> Part {
        let (pki, ports) = (self.pki(), &self.settings.ports);
        let authority = pki.authority(Authority::Cluster);
        let part = self
            .client_of_api("controller-manager", "kube-controller-manager", ports.controller_manager)
            .path_flag("service-account-private-key-file", &pki.service_account_key())
            .path_flag("root-ca-file", &authority.certificate)
            .path_flag("cluster-signing-cert-file", &authority.certificate)
            .path_flag("cluster-signing-key-file", &authority.key)
            .flag("use-service-account-credentials", true)
            .flag("cluster-cidr", self.settings.network.pods());
        match self.settings.shape() {
            // Node objects without a kubelet have nobody to renew their leases.
            Shape::ControlPlane => part.flag("node-monitor-grace-period", "24h"),
            Shape::Full | Shape::Existing => part,
        }
    }

    fn scheduler(&self) -> Part {
        self.client_of_api("scheduler", "kube-scheduler", self.settings.ports.scheduler)
    }

    /// What the controller manager and the scheduler have in common. One of each: there is no leader to elect.
    fn client_of_api(&self, name: &str, component: &str, port: u16) -> Part {
        let pki = self.pki();
        let (serving, authority) =
            (pki.pair(&format!("{name}-serving")), pki.authority(Authority::Cluster).certificate);
        let config = self.layout.kubeconfig_of(name);
        self.kube(name, component)
            .needs("apiserver")
            .path_flag("kubeconfig", &config)
            .path_flag("authentication-kubeconfig", &config)
            .path_flag("authorization-kubeconfig", &config)
            .flag("bind-address", self.settings.network.host())
            .flag("secure-port", port)
            .path_flag("tls-cert-file", &serving.certificate)
            .path_flag("tls-private-key-file", &serving.key)
            .flag("leader-elect", false)
            // Their own limits are meant for clusters whose API server is far away; here they would only slow tests down.
            .flag("kube-api-qps", 1000)
            .flag("kube-api-burst", 2000)
            .file(config.clone(), kubeconfig(&self.api_url(), &authority, &pki.pair(name)))
            .ready(Probe::https(format!("https://{}/healthz", self.at(port)), authority))
    }
}

/// Who did what to which object, with the outcome: what tests count. Bodies are left out.
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
