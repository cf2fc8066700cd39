//! Keys and certificates of a cluster, issued by three certificate authorities.
//!
//! They are created once in the state directory and never replaced, so certificates of nodes added later are issued by
//! the same authority.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use time::{Duration, OffsetDateTime};

use crate::fs::write_atomic;
use crate::layout::Layout;
use crate::network::{MAX_NODES, NodeIndex};
use crate::settings::Settings;

const VALIDITY: Duration = Duration::days(3650);
/// Certificates are valid from a little in the past, to tolerate clock skew.
const CLOCK_SKEW: Duration = Duration::minutes(5);

/// The certificate authorities are separate, so that a kubelet's certificate is not accepted by etcd.
#[derive(Clone, Copy, Debug)]
pub enum Ca {
    Cluster,
    Etcd,
    FrontProxy,
}

impl Ca {
    fn name(self) -> &'static str {
        match self {
            Self::Cluster => "ca",
            Self::Etcd => "etcd-ca",
            Self::FrontProxy => "front-proxy-ca",
        }
    }
}

/// Paths of a certificate and its key.
#[derive(Clone, Debug)]
pub struct CertPaths {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

impl CertPaths {
    fn new(pki: &Path, name: &str) -> Self {
        Self { certificate: pki.join(format!("{name}.crt")), key: pki.join(format!("{name}.key")) }
    }
}

/// Paths of all keys and certificates.
#[derive(Clone, Debug)]
pub struct Pki {
    directory: PathBuf,
}

impl Pki {
    pub fn new(layout: &Layout) -> Self {
        Self { directory: layout.pki() }
    }

    pub fn ca(&self, ca: Ca) -> CertPaths {
        CertPaths::new(&self.directory, ca.name())
    }

    /// Returns the paths for a component. Nodes have `kubelet-n1` (client) and `kubelet-serving-n1`.
    pub fn cert(&self, name: &str) -> CertPaths {
        CertPaths::new(&self.directory, name)
    }

    pub fn service_account_key(&self) -> PathBuf {
        self.directory.join("service-account.key")
    }

    pub fn service_account_public(&self) -> PathBuf {
        self.directory.join("service-account.pub")
    }

    /// Creates all missing files.
    pub fn ensure_all(&self, settings: &Settings) -> anyhow::Result<()> {
        std::fs::create_dir_all(&self.directory).with_context(|| format!("creating {}", self.directory.display()))?;
        let cluster = self.ensure_ca(Ca::Cluster)?;
        let etcd = self.ensure_ca(Ca::Etcd)?;
        let front_proxy = self.ensure_ca(Ca::FrontProxy)?;
        let host = settings.network.host_ip();

        let api_names = [
            "localhost",
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
            "kubernetes.default.svc.cluster.local",
        ];
        let api_addresses = [host, Ipv4Addr::LOCALHOST, settings.network.kubernetes_service_ip()];
        self.ensure_cert(
            &cluster,
            "apiserver",
            &Subject::server("kube-apiserver").names(&api_names).addresses(&api_addresses),
        )?;
        self.ensure_cert(
            &cluster,
            "controller-manager-serving",
            &Subject::server("kube-controller-manager").addresses(&[host]),
        )?;
        self.ensure_cert(&cluster, "scheduler-serving", &Subject::server("kube-scheduler").addresses(&[host]))?;
        self.ensure_cert(&cluster, "apiserver-kubelet-client", &Subject::client("kube-apiserver-kubelet-client"))?;
        self.ensure_cert(&cluster, "admin", &Subject::client("odc-local-admin").group("system:masters"))?;
        self.ensure_cert(&cluster, "controller-manager", &Subject::client("system:kube-controller-manager"))?;
        self.ensure_cert(&cluster, "scheduler", &Subject::client("system:kube-scheduler"))?;
        self.ensure_cert(&cluster, "kube-proxy", &Subject::client("system:kube-proxy"))?;
        self.ensure_cert(&cluster, "coredns", &Subject::client("system:coredns"))?;
        for node in settings.all_nodes() {
            self.ensure_node(&cluster, settings, node)?;
        }
        // The HTTP API is reached through any node, also one that is added later.
        let api_names = ["localhost", "odc-api", "odc-api.odc-system", "odc-api.odc-system.svc"];
        let api_addresses: Vec<Ipv4Addr> =
            NodeIndex::all(MAX_NODES).map(|node| settings.network.node_ip(node)).chain([Ipv4Addr::LOCALHOST]).collect();
        self.ensure_cert(&cluster, "api", &Subject::server("odc-api").names(&api_names).addresses(&api_addresses))?;
        self.ensure_cert(
            &etcd,
            "etcd",
            &Subject::server("etcd").names(&["localhost"]).addresses(&[host, Ipv4Addr::LOCALHOST]),
        )?;
        self.ensure_cert(&etcd, "etcd-client", &Subject::client("kube-apiserver"))?;
        self.ensure_cert(&front_proxy, "front-proxy-client", &Subject::client("front-proxy-client"))?;

        if !self.service_account_public().exists() {
            let key = KeyPair::generate()?;
            write_atomic(&self.service_account_key(), key.serialize_pem(), 0o600)?;
            write_atomic(&self.service_account_public(), key.public_key_pem(), 0o644)?;
        }
        Ok(())
    }

    fn ensure_node(&self, cluster: &Issuer<'_, KeyPair>, settings: &Settings, node: NodeIndex) -> anyhow::Result<()> {
        let client = Subject::client(format!("system:node:{node}")).group("system:nodes");
        self.ensure_cert(cluster, &format!("kubelet-{node}"), &client)?;
        let serving = Subject::server(format!("system:node:{node}"))
            .names(&[&node.to_string()])
            .addresses(&[settings.network.node_ip(node)]);
        self.ensure_cert(cluster, &format!("kubelet-serving-{node}"), &serving)
    }

    fn ensure_ca(&self, ca: Ca) -> anyhow::Result<Issuer<'static, KeyPair>> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, format!("odc-local-{}", ca.name()));
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages =
            vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
        set_validity(&mut params);
        let paths = self.ca(ca);
        // The certificate is written last, so if it exists, the key does, too.
        if paths.certificate.exists() {
            let pem =
                std::fs::read_to_string(&paths.key).with_context(|| format!("reading {}", paths.key.display()))?;
            let key = KeyPair::from_pem(&pem).with_context(|| format!("reading {}", paths.key.display()))?;
            return Ok(Issuer::new(params, key));
        }
        let key = KeyPair::generate()?;
        let certificate = params.self_signed(&key)?;
        write_atomic(&paths.key, key.serialize_pem(), 0o600)?;
        write_atomic(&paths.certificate, certificate.pem(), 0o644)?;
        Ok(Issuer::new(params, key))
    }

    fn ensure_cert(&self, issuer: &Issuer<'_, KeyPair>, name: &str, subject: &Subject) -> anyhow::Result<()> {
        let paths = self.cert(name);
        if paths.certificate.exists() {
            return Ok(());
        }
        let key = KeyPair::generate()?;
        let certificate = subject.params()?.signed_by(&key, issuer).with_context(|| format!("signing {name}"))?;
        write_atomic(&paths.key, key.serialize_pem(), 0o600)?;
        write_atomic(&paths.certificate, certificate.pem(), 0o644)
    }
}

/// Returns the administrator's kubeconfig with a second context for the demo user, whose token is in a separate file.
pub fn kubeconfig_with_demo(server: &str, ca: &Path, cert: &CertPaths, token: &Path) -> String {
    let admin = kubeconfig(server, ca, cert);
    let (user, context) = (
        format!("- name: demo\n  user:\n    tokenFile: {}\n", token.display()),
        "- name: demo\n  context:\n    cluster: odc-local\n    user: demo\n    namespace: dev-demo\n",
    );
    admin
        .replace("contexts:\n", &format!("{user}contexts:\n"))
        .replace("current-context:", &format!("{context}current-context:"))
}

/// Returns a kubeconfig that refers to the certificate files instead of embedding them.
pub fn kubeconfig(server: &str, ca: &Path, cert: &CertPaths) -> String {
    let (ca, certificate, key) = (ca.display(), cert.certificate.display(), cert.key.display());
    format!(
        "apiVersion: v1
kind: Config
clusters:
- name: odc-local
  cluster:
    server: {server}
    certificate-authority: {ca}
users:
- name: odc-local
  user:
    client-certificate: {certificate}
    client-key: {key}
contexts:
- name: odc-local
  context:
    cluster: odc-local
    user: odc-local
current-context: odc-local
"
    )
}

/// Subject of a certificate.
struct Subject {
    name: String,
    group: Option<&'static str>,
    usage: ExtendedKeyUsagePurpose,
    alt_names: Vec<SubjectAltName>,
}

enum SubjectAltName {
    Name(String),
    Address(IpAddr),
}

impl Subject {
    fn server(name: impl Into<String>) -> Self {
        Self { name: name.into(), group: None, usage: ExtendedKeyUsagePurpose::ServerAuth, alt_names: Vec::new() }
    }

    fn client(name: impl Into<String>) -> Self {
        Self { usage: ExtendedKeyUsagePurpose::ClientAuth, ..Self::server(name) }
    }

    /// Sets the organization, which Kubernetes reads as the group.
    fn group(mut self, group: &'static str) -> Self {
        self.group = Some(group);
        self
    }

    fn names(mut self, names: &[&str]) -> Self {
        self.alt_names.extend(names.iter().map(|name| SubjectAltName::Name((*name).into())));
        self
    }

    fn addresses(mut self, addresses: &[Ipv4Addr]) -> Self {
        self.alt_names.extend(addresses.iter().map(|address| SubjectAltName::Address((*address).into())));
        self
    }

    fn params(&self) -> anyhow::Result<CertificateParams> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, self.name.as_str());
        if let Some(group) = self.group {
            params.distinguished_name.push(DnType::OrganizationName, group);
        }
        params.subject_alt_names = self
            .alt_names
            .iter()
            .map(|alt_name| {
                Ok(match alt_name {
                    SubjectAltName::Name(name) => SanType::DnsName(name.as_str().try_into()?),
                    SubjectAltName::Address(address) => SanType::IpAddress(*address),
                })
            })
            .collect::<Result<_, rcgen::Error>>()?;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![self.usage.clone()];
        // etcd's gRPC gateway connects to its own client port with the serving certificate.
        if self.name == "etcd" {
            params.extended_key_usages.push(ExtendedKeyUsagePurpose::ClientAuth);
        }
        params.use_authority_key_identifier_extension = true;
        set_validity(&mut params);
        Ok(params)
    }
}

fn set_validity(params: &mut CertificateParams) {
    let now = OffsetDateTime::now_utc();
    params.not_before = now - CLOCK_SKEW;
    params.not_after = now + VALIDITY;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::UpOptions;

    #[test]
    fn existing_files_are_kept_and_added_nodes_get_certificates() {
        let directory = tempfile::tempdir().unwrap();
        let layout = Layout::new(directory.path().into());
        let pki = Pki::new(&layout);
        let choose_network = || Ok(crate::network::Network::Bridge(231));
        let one = Settings::merge(None, &UpOptions::default(), choose_network).unwrap();
        pki.ensure_all(&one).unwrap();
        let read = |name: &str| std::fs::read_to_string(pki.cert(name).certificate).unwrap();
        let (ca, admin) = (read("ca"), read("admin"));
        assert!(!pki.cert("kubelet-n2").certificate.exists());

        let two =
            Settings::merge(Some(one), &UpOptions { nodes: Some(2), ..UpOptions::default() }, choose_network).unwrap();
        pki.ensure_all(&two).unwrap();
        assert_eq!((read("ca"), read("admin")), (ca, admin));
        assert!(pki.cert("kubelet-n2").certificate.exists());
    }

    #[test]
    fn private_keys_are_readable_by_the_owner_only() {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = tempfile::tempdir().unwrap();
        let layout = Layout::new(directory.path().into());
        let settings = Settings::merge(None, &UpOptions { nodes: Some(0), ..UpOptions::default() }, || {
            anyhow::bail!("no network needed")
        })
        .unwrap();
        Pki::new(&layout).ensure_all(&settings).unwrap();
        let keys = std::fs::read_dir(layout.pki())
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "key"));
        let mut count = 0;
        for key in keys {
            assert_eq!(key.metadata().unwrap().permissions().mode() & 0o077, 0, "{}", key.display());
            count += 1;
        }
        assert!(count > 10);
    }
}
