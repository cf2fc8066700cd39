//! The settings of a cluster: what `up` was asked for, stored in `cluster.json`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::free_port;
use crate::layout::Layout;
use crate::network::{MAX_NODES, Network, NodeIndex};

/// Incremented when a new version cannot use the state directory of an older one.
const FORMAT: u32 = 2;

/// The release that `local/kubernetes` builds.
pub const KUBERNETES_VERSION: &str = "v1.36.3";

const DEFAULT_NODES: u8 = 1;
const DEFAULT_GPUS: u8 = 8;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Settings {
    format: u32,
    kubernetes: String,
    pub network: Network,
    pub nodes: u8,
    pub gpus: u8,
    pub simulated_nodes: u16,
    /// Do not install ODC.
    #[serde(default)]
    pub bare: bool,
    /// Do not install the service layer.
    #[serde(default)]
    pub no_service: bool,
    pub ports: Ports,
    /// Use this cluster and start only PostgreSQL.
    pub external_kubeconfig: Option<PathBuf>,
    /// Nodes powered off with `odc local node stop`.
    pub stopped: BTreeSet<String>,
}

/// The options of one `up`. An option that is not given keeps its stored value, or takes the default.
#[derive(Clone, Debug, Default)]
pub struct UpOptions {
    pub nodes: Option<u8>,
    pub gpus: Option<u8>,
    pub simulated_nodes: Option<u16>,
    pub bare: bool,
    pub no_service: bool,
    pub network: Option<Network>,
    pub external_kubeconfig: Option<PathBuf>,
}

/// The kind of a cluster, derived from the other settings so that they cannot contradict it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Nodes, DNS, registry, PostgreSQL.
    Full,
    /// etcd, API server, controller manager and scheduler, without nodes.
    ControlPlane,
    /// PostgreSQL for an existing cluster.
    External,
}

impl UpOptions {
    /// Returns the mode of a new cluster with these options.
    pub fn mode(&self) -> Mode {
        match (&self.external_kubeconfig, self.nodes) {
            (Some(_), _) => Mode::External,
            (None, Some(0)) => Mode::ControlPlane,
            (None, _) => Mode::Full,
        }
    }
}

impl Settings {
    /// Returns the stored settings with the options applied. `choose_network` is called for a new cluster without
    /// `--network`.
    pub fn merge(
        stored: Option<Self>,
        options: &UpOptions,
        choose_network: impl FnOnce() -> anyhow::Result<Network>,
    ) -> anyhow::Result<Self> {
        if let Some(nodes) = options.nodes.filter(|nodes| *nodes > MAX_NODES) {
            return Err(Error::TooManyNodes { nodes, max: MAX_NODES }.into());
        }
        let has_simulated_nodes = options.simulated_nodes.is_some_and(|nodes| nodes > 0);
        if options.nodes == Some(0) && (options.network.is_some() || has_simulated_nodes) {
            return Err(Error::NoNodes.into());
        }
        let mut settings = match stored {
            Some(stored) => stored,
            None => Self::new(options, choose_network)?,
        };
        settings.nodes = options.nodes.unwrap_or(settings.nodes);
        settings.gpus = options.gpus.unwrap_or(settings.gpus);
        settings.simulated_nodes = options.simulated_nodes.unwrap_or(settings.simulated_nodes);
        let network = options.network.unwrap_or(settings.network);
        let loopback = settings.nodes == 0 || settings.external_kubeconfig.is_some();
        if network != settings.network
            || loopback != (network == Network::Loopback)
            || (options.external_kubeconfig.is_some() && options.external_kubeconfig != settings.external_kubeconfig)
        {
            return Err(Error::ModeConflict { existing: settings.describe() }.into());
        }
        Ok(settings)
    }

    fn new(options: &UpOptions, choose_network: impl FnOnce() -> anyhow::Result<Network>) -> anyhow::Result<Self> {
        let nodes = if options.external_kubeconfig.is_some() { 0 } else { options.nodes.unwrap_or(DEFAULT_NODES) };
        let (network, ports) = if nodes == 0 {
            (Network::Loopback, Ports::allocate().context("allocating ports on loopback")?)
        } else {
            (options.network.map_or_else(choose_network, Ok)?, Ports::WELL_KNOWN)
        };
        Ok(Self {
            format: FORMAT,
            kubernetes: KUBERNETES_VERSION.into(),
            network,
            nodes,
            gpus: DEFAULT_GPUS,
            simulated_nodes: 0,
            bare: options.bare,
            no_service: options.no_service,
            ports,
            external_kubeconfig: options.external_kubeconfig.clone(),
            stopped: BTreeSet::new(),
        })
    }

    pub fn load(layout: &Layout) -> anyhow::Result<Option<Self>> {
        let path = layout.settings();
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(|| format!("reading {}", path.display())),
        };
        Self::parse(&text, layout.root()).map(Some)
    }

    fn parse(text: &str, root: &Path) -> anyhow::Result<Self> {
        #[derive(Deserialize)]
        struct Version {
            format: u32,
            kubernetes: String,
        }
        let mismatch = |found: String| Error::VersionMismatch {
            directory: root.into(),
            found,
            expected: format!("format {FORMAT}, {KUBERNETES_VERSION}"),
        };
        let version: Version = serde_json::from_str(text).map_err(|_| mismatch("unreadable".into()))?;
        if version.format != FORMAT || version.kubernetes != KUBERNETES_VERSION {
            return Err(mismatch(format!("format {}, {}", version.format, version.kubernetes)).into());
        }
        serde_json::from_str(text).map_err(|_| mismatch("the same version, but corrupt".into()).into())
    }

    pub fn store(&self, layout: &Layout) -> anyhow::Result<()> {
        let text = serde_json::to_string_pretty(self)? + "\n";
        crate::fs::write_atomic(&layout.settings(), text, 0o644)
    }

    pub fn mode(&self) -> Mode {
        match (&self.external_kubeconfig, self.nodes) {
            (Some(_), _) => Mode::External,
            (None, 0) => Mode::ControlPlane,
            (None, _) => Mode::Full,
        }
    }

    pub fn all_nodes(&self) -> impl Iterator<Item = NodeIndex> + use<> {
        NodeIndex::all(self.nodes)
    }

    /// Returns the nodes that are not powered off.
    pub fn running_nodes(&self) -> impl Iterator<Item = NodeIndex> {
        self.all_nodes().filter(|node| !self.stopped.contains(&node.to_string()))
    }

    pub fn find_node(&self, name: &str) -> Result<NodeIndex, Error> {
        self.all_nodes().find(|node| node.to_string() == name).ok_or_else(|| Error::NoSuchNode {
            name: name.into(),
            known: self.all_nodes().map(|node| node.to_string()).collect::<Vec<_>>().join(", "),
        })
    }

    pub fn describe(&self) -> String {
        match self.mode() {
            Mode::Full if self.nodes == 1 => format!("1 node on {}", self.network),
            Mode::Full => format!("{} nodes on {}", self.nodes, self.network),
            Mode::ControlPlane => "a control plane without nodes".into(),
            Mode::External => "an existing cluster".into(),
        }
    }
}

macro_rules! ports {
    ($($name:ident = $well_known:literal),+ $(,)?) => {
        /// The ports of the control plane.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(rename_all = "camelCase")]
        pub struct Ports {
            $(pub $name: u16),+
        }

        impl Ports {
            /// The ports of a cluster with a bridge, which has an IP address of its own.
            pub const WELL_KNOWN: Self = Self { $($name: $well_known),+ };

            /// Allocates free ports on loopback. All listeners stay open until the last port is known, so that no port
            /// is returned twice.
            fn allocate() -> std::io::Result<Self> {
                $(let $name = free_port::reserve()?;)+
                Ok(Self { $($name: $name.local_addr()?.port()),+ })
            }
        }
    };
}

ports! {
    etcd = 2379,
    etcd_peer = 2380,
    etcd_health = 2381,
    api = 6443,
    controller_manager = 10257,
    scheduler = 10259,
    dns = 53,
    dns_health = 8081,
    dns_ready = 8181,
    registry = 5000,
    postgres = 5432,
    kwok = 10247,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merge(stored: Option<Settings>, options: &UpOptions) -> anyhow::Result<Settings> {
        Settings::merge(stored, options, || Ok(Network::Bridge(231)))
    }

    fn error(result: anyhow::Result<Settings>) -> Error {
        result.unwrap_err().downcast().unwrap()
    }

    #[test]
    fn new_cluster_has_one_node_with_eight_gpus() {
        let settings = merge(None, &UpOptions::default()).unwrap();
        assert_eq!((settings.nodes, settings.gpus, settings.mode()), (1, 8, Mode::Full));
    }

    #[test]
    fn omitted_options_keep_their_stored_values() {
        let first = merge(None, &UpOptions { nodes: Some(2), gpus: Some(4), ..UpOptions::default() }).unwrap();
        assert_eq!(merge(Some(first.clone()), &UpOptions::default()).unwrap(), first);
        let grown = merge(Some(first), &UpOptions { nodes: Some(3), ..UpOptions::default() }).unwrap();
        assert_eq!((grown.nodes, grown.gpus), (3, 4));
    }

    #[test]
    fn mode_and_network_of_a_cluster_cannot_change() {
        let first = merge(None, &UpOptions::default()).unwrap();
        for options in [
            UpOptions { nodes: Some(0), ..UpOptions::default() },
            UpOptions { network: Some(Network::Bridge(240)), ..UpOptions::default() },
            UpOptions { external_kubeconfig: Some("/kubeconfig".into()), ..UpOptions::default() },
        ] {
            assert!(matches!(error(merge(Some(first.clone()), &options)), Error::ModeConflict { .. }), "{options:?}");
        }
    }

    #[test]
    fn external_kubeconfig_is_stored() {
        let options = UpOptions { external_kubeconfig: Some("/kubeconfig".into()), ..UpOptions::default() };
        let first = merge(None, &options).unwrap();
        assert_eq!(merge(Some(first.clone()), &UpOptions::default()).unwrap(), first);
        assert_eq!(merge(Some(first.clone()), &options).unwrap(), first);
        let other = UpOptions { external_kubeconfig: Some("/another".into()), ..UpOptions::default() };
        assert!(matches!(error(merge(Some(first), &other)), Error::ModeConflict { .. }));
    }

    #[test]
    fn control_plane_without_nodes_rejects_network_and_simulated_nodes() {
        for options in [
            UpOptions { nodes: Some(0), network: Some(Network::Bridge(240)), ..UpOptions::default() },
            UpOptions { nodes: Some(0), simulated_nodes: Some(5), ..UpOptions::default() },
        ] {
            assert!(matches!(error(merge(None, &options)), Error::NoNodes), "{options:?}");
        }
    }

    #[test]
    fn too_many_nodes_are_rejected() {
        assert!(matches!(
            error(merge(None, &UpOptions { nodes: Some(33), ..UpOptions::default() })),
            Error::TooManyNodes { nodes: 33, max: 32 }
        ));
    }

    #[test]
    fn state_of_another_version_is_rejected() {
        for text in [
            r#"{"format": 1, "kubernetes": "v1.36.3"}"#,
            r#"{"format": 7, "kubernetes": "v1.36.3", "new": true}"#,
            r#"{"format": 1, "kubernetes": "v1.30.0"}"#,
            "garbage",
        ] {
            assert!(matches!(error(Settings::parse(text, Path::new("/x"))), Error::VersionMismatch { .. }), "{text}");
        }
    }

    #[test]
    fn stored_settings_are_loaded_unchanged() {
        let directory = tempfile::tempdir().unwrap();
        let layout = Layout::new(directory.path().into());
        let settings = merge(None, &UpOptions { nodes: Some(0), ..UpOptions::default() }).unwrap();
        settings.store(&layout).unwrap();
        assert_eq!(Settings::load(&layout).unwrap(), Some(settings));
    }

    #[test]
    fn stopped_node_is_found_but_not_running() {
        let mut settings = merge(None, &UpOptions { nodes: Some(2), ..UpOptions::default() }).unwrap();
        settings.stopped.insert("n2".into());
        assert_eq!(settings.running_nodes().map(|node| node.to_string()).collect::<Vec<_>>(), ["n1"]);
        assert!(settings.find_node("n2").is_ok());
        assert!(settings.find_node("n3").unwrap_err().to_string().contains("n1, n2"));
    }
}
