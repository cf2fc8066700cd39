//! Keys and certificates of one cloud: three authorities and whom they vouch for.
//!
//! Made once and kept in the state directory; `reset` makes new ones. Existing files are never rewritten, so a node
//! added later is signed by the same authority.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use time::{Duration, OffsetDateTime};

use crate::file::write;
use crate::layout::Layout;
use crate::network::NodeIndex;
use crate::settings::Settings;

/// Longer than any local cloud lives.
const VALIDITY: Duration = Duration::days(3650);
/// Certificates are back-dated, so that clocks may differ a little.
const BACKDATE: Duration = Duration::minutes(5);

/// An authority has a purpose of its own: a kubelet's certificate must not open etcd.
#[derive(Clone, Copy, Debug)]
pub enum Authority {
    Cluster,
    Etcd,
    FrontProxy,
}

impl Authority {
    fn name(self) -> &'static str {
        match self {
            Self::Cluster => "ca",
            Self::Etcd => "etcd-ca",
            Self::FrontProxy => "front-proxy-ca",
        }
    }
}

/// A certificate and its key, by path.
#[derive(Clone, Debug)]
pub struct Pair {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

impl Pair {
    fn new(pki: &Path, name: &str) -> Self {
        Self { certificate: pki.join(format!("{name}.crt")), key: pki.join(format!("{name}.key")) }
    }
}

/// The paths, whether or not the files have been made.
#[derive(Clone, Debug)]
pub struct Pki {
    directory: PathBuf,
}

impl Pki {
    pub fn of(layout: &Layout) -> Self {
        Self { directory: layout.pki() }
    }

    pub fn authority(&self, authority: Authority) -> Pair {
        Pair::new(&self.directory, authority.name())
    }

    /// A component, or a node's `kubelet-n1` (as client) and `kubelet-serving-n1`.
    pub fn pair(&self, name: &str) -> Pair {
        Pair::new(&self.directory, name)
    }

    pub fn service_account_key(&self) -> PathBuf {
        self.directory.join("service-account.key")
    }

    pub fn service_account_public(&self) -> PathBuf {
        self.directory.join("service-account.pub")
    }

    /// Makes what is missing.
    pub fn ensure(&self, settings: &Settings) -> anyhow::Result<()> {
        std::fs::create_dir_all(&self.directory).with_context(|| format!("making {}", self.directory.display()))?;
        let cluster = self.ensure_authority(Authority::Cluster)?;
        let etcd = self.ensure_authority(Authority::Etcd)?;
        let front_proxy = self.ensure_authority(Authority::FrontProxy)?;
        let host = settings.network.host();

        let api_names = [
            "localhost",
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
            "kubernetes.default.svc.cluster.local",
        ];
        let api_addresses = [host, Ipv4Addr::LOCALHOST, settings.network.kubernetes_service()];
        self.ensure_pair(
            &cluster,
            "apiserver",
            &Subject::server("kube-apiserver").names(&api_names).addresses(&api_addresses),
        )?;
        self.ensure_pair(
            &cluster,
            "controller-manager-serving",
            &Subject::server("kube-controller-manager").addresses(&[host]),
        )?;
        self.ensure_pair(&cluster, "scheduler-serving", &Subject::server("kube-scheduler").addresses(&[host]))?;
        self.ensure_pair(&cluster, "apiserver-kubelet-client", &Subject::client("kube-apiserver-kubelet-client"))?;
        self.ensure_pair(&cluster, "admin", &Subject::client("odc-local-admin").group("system:masters"))?;
        self.ensure_pair(&cluster, "controller-manager", &Subject::client("system:kube-controller-manager"))?;
        self.ensure_pair(&cluster, "scheduler", &Subject::client("system:kube-scheduler"))?;
        self.ensure_pair(&cluster, "kube-proxy", &Subject::client("system:kube-proxy"))?;
        self.ensure_pair(&cluster, "coredns", &Subject::client("system:coredns"))?;
        for node in settings.all_nodes() {
            self.ensure_node(&cluster, settings, node)?;
        }
        self.ensure_pair(
            &etcd,
            "etcd",
            &Subject::server("etcd").names(&["localhost"]).addresses(&[host, Ipv4Addr::LOCALHOST]),
        )?;
        self.ensure_pair(&etcd, "etcd-client", &Subject::client("kube-apiserver"))?;
        self.ensure_pair(&front_proxy, "front-proxy-client", &Subject::client("front-proxy-client"))?;

        if !self.service_account_public().exists() {
            let key = KeyPair::generate()?;
            write(&self.service_account_key(), key.serialize_pem(), 0o600)?;
            write(&self.service_account_public(), key.public_key_pem(), 0o644)?;
        }
        Ok(())
    }

    fn ensure_node(&self, cluster: &Issuer<'_, KeyPair>, settings: &Settings, node: NodeIndex) -> anyhow::Result<()> {
        let client = Subject::client(format!("system:node:{node}")).group("system:nodes");
        self.ensure_pair(cluster, &format!("kubelet-{node}"), &client)?;
        let serving = Subject::server(format!("system:node:{node}"))
            .names(&[&node.to_string()])
            .addresses(&[settings.network.node(node)]);
        self.ensure_pair(cluster, &format!("kubelet-serving-{node}"), &serving)
    }

    fn ensure_authority(&self, authority: Authority) -> anyhow::Result<Issuer<'static, KeyPair>> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, format!("odc-local-{}", authority.name()));
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages =
            vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
        validity(&mut params);
        let pair = self.authority(authority);
        // The certificate is written last: where it stands, the key stands too.
        if pair.certificate.exists() {
            let pem = std::fs::read_to_string(&pair.key).with_context(|| format!("reading {}", pair.key.display()))?;
            let key = KeyPair::from_pem(&pem).with_context(|| format!("reading {}", pair.key.display()))?;
            return Ok(Issuer::new(params, key));
        }
        let key = KeyPair::generate()?;
        let certificate = params.self_signed(&key)?;
        write(&pair.key, key.serialize_pem(), 0o600)?;
        write(&pair.certificate, certificate.pem(), 0o644)?;
        Ok(Issuer::new(params, key))
    }

    fn ensure_pair(&self, issuer: &Issuer<'_, KeyPair>, name: &str, subject: &Subject) -> anyhow::Result<()> {
        let pair = self.pair(name);
        if pair.certificate.exists() {
            return Ok(());
        }
        let key = KeyPair::generate()?;
        let certificate = subject.params()?.signed_by(&key, issuer).with_context(|| format!("signing {name}"))?;
        write(&pair.key, key.serialize_pem(), 0o600)?;
        write(&pair.certificate, certificate.pem(), 0o644)
    }
}

/// The administrator's kubeconfig with a second context for the demo user, whose token is in a file of its own.
pub fn kubeconfig_with_demo(server: &str, authority: &Path, pair: &Pair, token: &Path) -> String {
    let plain = kubeconfig(server, authority, pair);
    let (user, context) = (
        format!("- name: demo\n  user:\n    tokenFile: {}\n", token.display()),
        "- name: demo\n  context:\n    cluster: odc-local\n    user: demo\n    namespace: dev-demo\n",
    );
    plain
        .replace("contexts:\n", &format!("{user}contexts:\n"))
        .replace("current-context:", &format!("{context}current-context:"))
}

/// A kubeconfig that names its files, so that it stays small and the key stays in one place.
pub fn kubeconfig(server: &str, authority: &Path, pair: &Pair) -> String {
    let (authority, certificate, key) = (authority.display(), pair.certificate.display(), pair.key.display());
    format!(
        "apiVersion: v1
kind: Config
clusters:
- name: odc-local
  cluster:
    server: {server}
    certificate-authority: {authority}
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

/// Whom a certificate is for.
struct Subject {
    name: String,
    group: Option<&'static str>,
    usage: ExtendedKeyUsagePurpose,
    alternatives: Vec<Alternative>,
}

enum Alternative {
    Name(String),
    Address(IpAddr),
}

impl Subject {
    fn server(name: impl Into<String>) -> Self {
        Self { name: name.into(), group: None, usage: ExtendedKeyUsagePurpose::ServerAuth, alternatives: Vec::new() }
    }

    fn client(name: impl Into<String>) -> Self {
        Self { usage: ExtendedKeyUsagePurpose::ClientAuth, ..Self::server(name) }
    }

    /// Kubernetes reads the organisation as the group.
    fn group(mut self, group: &'static str) -> Self {
        self.group = Some(group);
        self
    }

    fn names(mut self, names: &[&str]) -> Self {
        self.alternatives.extend(names.iter().map(|name| Alternative::Name((*name).into())));
        self
    }

    fn addresses(mut self, addresses: &[Ipv4Addr]) -> Self {
        self.alternatives.extend(addresses.iter().map(|address| Alternative::Address((*address).into())));
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
            .alternatives
            .iter()
            .map(|alternative| {
                Ok(match alternative {
                    Alternative::Name(name) => SanType::DnsName(name.as_str().try_into()?),
                    Alternative::Address(address) => SanType::IpAddress(*address),
                })
            })
            .collect::<Result<_, rcgen::Error>>()?;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![self.usage.clone()];
        // etcd's gateway dials its own server port with the serving certificate.
        if self.name == "etcd" {
            params.extended_key_usages.push(ExtendedKeyUsagePurpose::ClientAuth);
        }
        params.use_authority_key_identifier_extension = true;
        validity(&mut params);
        Ok(params)
    }
}

fn validity(params: &mut CertificateParams) {
    let now = OffsetDateTime::now_utc();
    params.not_before = now - BACKDATE;
    params.not_after = now + VALIDITY;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Ask;

    #[test]
    fn files_once_made_are_kept_and_added_nodes_get_theirs() {
        let directory = tempfile::tempdir().unwrap();
        let layout = Layout::new(directory.path().into());
        let pki = Pki::of(&layout);
        let choose = || Ok(crate::network::Network::Bridge(231));
        let one = Settings::merge(None, &Ask::default(), choose).unwrap();
        pki.ensure(&one).unwrap();
        let read = |name: &str| std::fs::read_to_string(pki.pair(name).certificate).unwrap();
        let (authority, admin) = (read("ca"), read("admin"));
        assert!(!pki.pair("kubelet-n2").certificate.exists());

        let two = Settings::merge(Some(one), &Ask { nodes: Some(2), ..Ask::default() }, choose).unwrap();
        pki.ensure(&two).unwrap();
        assert_eq!((read("ca"), read("admin")), (authority, admin));
        assert!(pki.pair("kubelet-n2").certificate.exists());
    }

    #[test]
    fn private_keys_are_private() {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = tempfile::tempdir().unwrap();
        let layout = Layout::new(directory.path().into());
        let settings =
            Settings::merge(None, &Ask { nodes: Some(0), ..Ask::default() }, || anyhow::bail!("no network needed"))
                .unwrap();
        Pki::of(&layout).ensure(&settings).unwrap();
        let keys = std::fs::read_dir(layout.pki())
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|ending| ending == "key"));
        let mut seen = 0;
        for key in keys {
            assert_eq!(key.metadata().unwrap().permissions().mode() & 0o077, 0, "{}", key.display());
            seen += 1;
        }
        assert!(seen > 10);
    }
}
