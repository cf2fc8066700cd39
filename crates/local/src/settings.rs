//! What a cloud is made of: what the person asked for, remembered in `cloud.json`.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use crate::layout::Layout;
use crate::network::{MAX_NODES, Network, NodeIndex};
use crate::problem::Problem;

/// Raised when a new version cannot take over an older state directory.
const FORMAT: u32 = 1;

/// The release `local/kubernetes` builds.
pub const KUBERNETES: &str = "v1.36.3";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Settings {
    format: u32,
    kubernetes: String,
    pub network: Network,
    pub nodes: u8,
    pub gpus: u8,
    pub simulated_nodes: u16,
    /// Kubernetes alone, without ODC in it.
    #[serde(default)]
    pub bare: bool,
    pub ports: Ports,
    /// Somebody else's cluster: only what is missing there is started.
    pub existing: Option<PathBuf>,
    /// Nodes taken away with `odc local node stop`.
    pub stopped: BTreeSet<String>,
}

/// What one `up` asked for; what it left open stays as it was, or takes the default.
#[derive(Clone, Debug, Default)]
pub struct Ask {
    pub nodes: Option<u8>,
    pub gpus: Option<u8>,
    pub simulated_nodes: Option<u16>,
    pub bare: bool,
    pub network: Option<Network>,
    pub existing: Option<PathBuf>,
}

/// The three things a cloud can be. Derived, so that settings cannot contradict themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Nodes, DNS, registry, PostgreSQL.
    Full,
    /// No node: etcd, API server, controller manager, scheduler.
    ControlPlane,
    /// PostgreSQL beside a cluster that is not ours.
    Existing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ports {
    pub etcd: u16,
    pub etcd_peer: u16,
    pub etcd_health: u16,
    pub api: u16,
    pub controller_manager: u16,
    pub scheduler: u16,
    pub dns: u16,
    pub dns_health: u16,
    pub dns_ready: u16,
    pub registry: u16,
    pub postgres: u16,
    pub kwok: u16,
}

impl Ask {
    /// What a new cloud would be.
    pub fn shape(&self) -> Shape {
        match (&self.existing, self.nodes) {
            (Some(_), _) => Shape::Existing,
            (None, Some(0)) => Shape::ControlPlane,
            (None, _) => Shape::Full,
        }
    }
}

impl Settings {
    /// The stored settings with this request laid over them.
    pub fn merge(
        stored: Option<Self>,
        ask: &Ask,
        choose: impl FnOnce() -> anyhow::Result<Network>,
    ) -> anyhow::Result<Self> {
        if let Some(nodes) = ask.nodes.filter(|nodes| *nodes > MAX_NODES) {
            return Err(Problem::TooManyNodes { nodes, most: MAX_NODES }.into());
        }
        if ask.nodes == Some(0) && (ask.network.is_some() || ask.simulated_nodes.is_some_and(|nodes| nodes > 0)) {
            return Err(Problem::NoNodes.into());
        }
        let mut settings = match stored {
            Some(stored) => stored,
            None => Self::fresh(ask, choose)?,
        };
        settings.nodes = ask.nodes.unwrap_or(settings.nodes);
        settings.gpus = ask.gpus.unwrap_or(settings.gpus);
        settings.simulated_nodes = ask.simulated_nodes.unwrap_or(settings.simulated_nodes);
        let network = ask.network.unwrap_or(settings.network);
        let loopback = settings.nodes == 0 || settings.existing.is_some();
        if network != settings.network
            || loopback != (network == Network::Loopback)
            || (ask.existing.is_some() && ask.existing != settings.existing)
        {
            return Err(Problem::OtherCloud { was: settings.describe() }.into());
        }
        Ok(settings)
    }

    fn fresh(ask: &Ask, choose: impl FnOnce() -> anyhow::Result<Network>) -> anyhow::Result<Self> {
        let nodes = if ask.existing.is_some() { 0 } else { ask.nodes.unwrap_or(1) };
        let (network, ports) = if nodes == 0 {
            (Network::Loopback, Ports::free()?)
        } else {
            (ask.network.map_or_else(choose, Ok)?, Ports::WELL_KNOWN)
        };
        Ok(Self {
            format: FORMAT,
            kubernetes: KUBERNETES.into(),
            network,
            nodes,
            gpus: 8,
            simulated_nodes: 0,
            bare: ask.bare,
            ports,
            existing: ask.existing.clone(),
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
        struct Made {
            format: u32,
            kubernetes: String,
        }
        let foreign = |made: String| Problem::OtherVersion {
            directory: root.into(),
            made,
            ours: format!("format {FORMAT}, {KUBERNETES}"),
        };
        let made: Made = serde_json::from_str(text).map_err(|_| foreign("unreadable".into()))?;
        if made.format != FORMAT || made.kubernetes != KUBERNETES {
            return Err(foreign(format!("format {}, {}", made.format, made.kubernetes)).into());
        }
        serde_json::from_str(text).map_err(|_| foreign("of this version, but damaged".into()).into())
    }

    pub fn store(&self, layout: &Layout) -> anyhow::Result<()> {
        crate::file::write(
            &layout.settings(),
            serde_json::to_string_pretty(self)?
                + "
",
            0o644,
        )
    }

    pub fn shape(&self) -> Shape {
        match (&self.existing, self.nodes) {
            (Some(_), _) => Shape::Existing,
            (None, 0) => Shape::ControlPlane,
            (None, _) => Shape::Full,
        }
    }

    pub fn all_nodes(&self) -> impl Iterator<Item = NodeIndex> + use<> {
        NodeIndex::all(self.nodes)
    }

    /// The nodes that should be there now.
    pub fn running_nodes(&self) -> impl Iterator<Item = NodeIndex> {
        self.all_nodes().filter(|node| !self.stopped.contains(&node.to_string()))
    }

    pub fn find_node(&self, name: &str) -> Result<NodeIndex, Problem> {
        self.all_nodes().find(|node| node.to_string() == name).ok_or_else(|| Problem::NoSuchNode {
            name: name.into(),
            known: self.all_nodes().map(|node| node.to_string()).collect::<Vec<_>>().join(", "),
        })
    }

    pub fn describe(&self) -> String {
        match self.shape() {
            Shape::Full if self.nodes == 1 => format!("1 node on {}", self.network),
            Shape::Full => format!("{} nodes on {}", self.nodes, self.network),
            Shape::ControlPlane => "a control plane without nodes".into(),
            Shape::Existing => "an existing cluster".into(),
        }
    }
}

impl Ports {
    /// On a bridge of its own every cloud has its own address, so the usual ports are free.
    pub const WELL_KNOWN: Self = Self {
        etcd: 2379,
        etcd_peer: 2380,
        etcd_health: 2381,
        api: 6443,
        controller_manager: 10257,
        scheduler: 10259,
        dns: 53,
        dns_health: 8081,
        dns_ready: 8181,
        registry: 5000,
        postgres: 5432,
        kwok: 10247,
    };

    fn free() -> anyhow::Result<Self> {
        // All are held until the last one is known, so that no two are the same.
        let held: Vec<TcpListener> = (0..12)
            .map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))
            .collect::<Result<_, _>>()
            .context("looking for free ports on loopback")?;
        let ports: Vec<u16> = held.iter().map(|held| Ok(held.local_addr()?.port())).collect::<std::io::Result<_>>()?;
        let [
            etcd,
            etcd_peer,
            etcd_health,
            api,
            controller_manager,
            scheduler,
            dns,
            dns_health,
            dns_ready,
            registry,
            postgres,
            kwok,
        ] = ports[..]
        else {
            anyhow::bail!("looking for free ports on loopback");
        };
        Ok(Self {
            etcd,
            etcd_peer,
            etcd_health,
            api,
            controller_manager,
            scheduler,
            dns,
            dns_health,
            dns_ready,
            registry,
            postgres,
            kwok,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merge(stored: Option<Settings>, ask: &Ask) -> anyhow::Result<Settings> {
        Settings::merge(stored, ask, || Ok(Network::Bridge(231)))
    }

    fn problem(result: anyhow::Result<Settings>) -> Problem {
        result.unwrap_err().downcast().unwrap()
    }

    #[test]
    fn a_first_up_gives_one_node_with_eight_gpus() {
        let settings = merge(None, &Ask::default()).unwrap();
        assert_eq!((settings.nodes, settings.gpus, settings.shape()), (1, 8, Shape::Full));
    }

    #[test]
    fn a_second_up_keeps_what_it_does_not_name() {
        let first = merge(None, &Ask { nodes: Some(2), gpus: Some(4), ..Ask::default() }).unwrap();
        assert_eq!(merge(Some(first.clone()), &Ask::default()).unwrap(), first);
        let grown = merge(Some(first), &Ask { nodes: Some(3), ..Ask::default() }).unwrap();
        assert_eq!((grown.nodes, grown.gpus), (3, 4));
    }

    #[test]
    fn a_cloud_does_not_turn_into_another() {
        let first = merge(None, &Ask::default()).unwrap();
        for ask in [
            Ask { nodes: Some(0), ..Ask::default() },
            Ask { network: Some(Network::Bridge(240)), ..Ask::default() },
            Ask { existing: Some("/kubeconfig".into()), ..Ask::default() },
        ] {
            assert!(matches!(problem(merge(Some(first.clone()), &ask)), Problem::OtherCloud { .. }), "{ask:?}");
        }
    }

    #[test]
    fn an_existing_cluster_is_remembered() {
        let ask = Ask { existing: Some("/kubeconfig".into()), ..Ask::default() };
        let first = merge(None, &ask).unwrap();
        assert_eq!(merge(Some(first.clone()), &Ask::default()).unwrap(), first);
        assert_eq!(merge(Some(first.clone()), &ask).unwrap(), first);
        let other = Ask { existing: Some("/another".into()), ..Ask::default() };
        assert!(matches!(problem(merge(Some(first), &other)), Problem::OtherCloud { .. }));
    }

    #[test]
    fn a_control_plane_alone_has_no_network() {
        for ask in [
            Ask { nodes: Some(0), network: Some(Network::Bridge(240)), ..Ask::default() },
            Ask { nodes: Some(0), simulated_nodes: Some(5), ..Ask::default() },
        ] {
            assert!(matches!(problem(merge(None, &ask)), Problem::NoNodes), "{ask:?}");
        }
    }

    #[test]
    fn too_many_nodes_are_refused() {
        assert!(matches!(
            problem(merge(None, &Ask { nodes: Some(33), ..Ask::default() })),
            Problem::TooManyNodes { nodes: 33, most: 32 }
        ));
    }

    #[test]
    fn another_versions_directory_is_left_alone() {
        for text in [
            r#"{"format": 1, "kubernetes": "v1.36.3"}"#,
            r#"{"format": 7, "kubernetes": "v1.36.3", "new": true}"#,
            r#"{"format": 1, "kubernetes": "v1.30.0"}"#,
            "garbage",
        ] {
            assert!(matches!(problem(Settings::parse(text, Path::new("/x"))), Problem::OtherVersion { .. }), "{text}");
        }
    }

    #[test]
    fn settings_read_back_as_stored() {
        let directory = tempfile::tempdir().unwrap();
        let layout = Layout::new(directory.path().into());
        let settings = merge(None, &Ask { nodes: Some(0), ..Ask::default() }).unwrap();
        settings.store(&layout).unwrap();
        assert_eq!(Settings::load(&layout).unwrap(), Some(settings));
    }

    #[test]
    fn a_stopped_node_still_belongs_to_the_cloud() {
        let mut settings = merge(None, &Ask { nodes: Some(2), ..Ask::default() }).unwrap();
        settings.stopped.insert("n2".into());
        assert_eq!(settings.running_nodes().map(|node| node.to_string()).collect::<Vec<_>>(), ["n1"]);
        assert!(settings.find_node("n2").is_ok());
        assert!(settings.find_node("n3").unwrap_err().to_string().contains("n1, n2"));
    }
}
