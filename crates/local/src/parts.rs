//! The parts of a cloud in their order, one file each for what needs more than a few lines.

mod containerd;
mod control_plane;
mod database;
mod dns;
mod kubelet;
mod proxy;
mod registry;
mod simulated;

use std::path::PathBuf;

pub use database::ensure_password;
pub use kubelet::{GPU_RESOURCE, LABELS, OURS};

use crate::artifact::Executables;
use crate::cgroup::Cgroups;
use crate::host::Host;
use crate::layout::Layout;
use crate::network::NodeIndex;
use crate::part::Part;
use crate::pki::Pki;
use crate::settings::{Settings, Shape};

/// The name under which pods, nodes and people know the cloud's own registry.
pub const REGISTRY_NAME: &str = "registry.odc.internal";

/// All a part may look at while it is being described.
#[derive(Debug)]
pub struct Blueprint {
    pub settings: Settings,
    pub layout: Layout,
    pub executables: Executables,
    /// Only a cloud with nodes touches the host.
    pub host: Option<Host>,
    postgres_programs: PathBuf,
    /// Set where this machine reaches the world through a proxy; the cloud is not the world.
    no_proxy: Option<String>,
}

impl Blueprint {
    pub fn new(settings: Settings, layout: Layout, executables: Executables) -> anyhow::Result<Self> {
        let host = match settings.shape() {
            Shape::Full => Some(Host::new(&layout, settings.network)?),
            Shape::ControlPlane | Shape::Existing => None,
        };
        let no_proxy = proxy_exceptions(&settings);
        Ok(Self { settings, layout, executables, host, postgres_programs: database::find_programs(), no_proxy })
    }

    /// Every part that should run now.
    pub fn parts(&self) -> Vec<Part> {
        let mut parts = self.plain_parts();
        for (part, exceptions) in parts.iter_mut().zip(self.no_proxy.iter().cycle()) {
            for name in ["NO_PROXY", "no_proxy"] {
                part.environment.push((name.into(), exceptions.clone()));
            }
        }
        parts
    }

    fn plain_parts(&self) -> Vec<Part> {
        match self.settings.shape() {
            Shape::Existing => self.database(),
            Shape::ControlPlane => self.control_plane(),
            Shape::Full => {
                let mut parts = self.database();
                parts.extend(self.control_plane());
                parts.push(self.cluster());
                parts.push(self.registry());
                parts.push(self.images());
                parts.push(self.dns());
                if !self.settings.bare {
                    parts.push(self.odc());
                }
                for node in self.settings.running_nodes() {
                    parts.extend(self.node(node));
                }
                parts.extend(self.simulated());
                parts
            }
        }
    }

    /// In the order of need: a runtime, then the kubelet, then what plugs into them.
    fn node(&self, node: NodeIndex) -> Vec<Part> {
        let mut parts = vec![self.containerd(node), self.kubelet(node), self.proxy(node)];
        if self.settings.gpus > 0 {
            parts.push(self.gpus(node));
        }
        parts
    }

    /// Objects every cluster has: rights of the components, the DNS Service, simulated nodes.
    fn cluster(&self) -> Part {
        let Settings { nodes, simulated_nodes, gpus, .. } = &self.settings;
        // It reads them itself; here they make it another job, so that it is done again.
        let about = format!("{nodes} nodes and {simulated_nodes} simulated ones with {gpus} GPUs");
        self.own_job("cluster").needs("apiserver").environment("ODC_NODES", about)
    }

    /// The images pods start from, put into the registry.
    fn images(&self) -> Part {
        self.own_job("images").needs("registry")
    }

    /// ODC itself, into the cluster.
    fn odc(&self) -> Part {
        self.own_job("odc").needs("cluster").needs("images")
    }

    /// A step of our own, run as a process of its own so that it is supervised like the rest.
    fn own_job(&self, name: &str) -> Part {
        let mut part = Part::new(name)
            .command([self.executables.odc.as_os_str()])
            .command(["local", "job", name, "--dir"])
            .command([self.layout.root().as_os_str()])
            .cgroup(self.control_cgroup());
        // A new executable may do the job another way.
        part.environment.push(("ODC_BUILD".into(), self.executables.build.clone()));
        part
    }

    fn node_part(&self, node: NodeIndex, name: &str) -> Part {
        let mut part = Part::new(format!("{node}/{name}"));
        if let Some(host) = &self.host {
            part = part
                .wrapper(host.enter_node(node))
                .cgroup(host.cgroups().tracking(&self.layout.id().cgroup_of(node).join("daemons")));
        }
        part.node = Some(node);
        part
    }

    fn control_cgroup(&self) -> Option<crate::cgroup::Cgroup> {
        self.host
            .as_ref()
            .map(Host::cgroups)
            .and_then(|cgroups: &Cgroups| cgroups.tracking(&self.layout.id().cgroup().join("control")))
    }

    fn pki(&self) -> Pki {
        Pki::of(&self.layout)
    }

    pub fn api_url(&self) -> String {
        format!("https://{}:{}", self.settings.network.host(), self.settings.ports.api)
    }

    /// `host:port` as seen by every process of the cloud.
    fn at(&self, port: u16) -> String {
        format!("{}:{port}", self.settings.network.host())
    }

    /// Files that belong to a component's configuration.
    fn config(&self, name: &str) -> PathBuf {
        self.layout.config().join(name)
    }
}

fn proxy_exceptions(settings: &Settings) -> Option<String> {
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    ["HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"].into_iter().find_map(set)?;
    let ours = format!("127.0.0.1,localhost,{},.svc,.cluster.local,{REGISTRY_NAME}", settings.network.whole());
    Some(set("NO_PROXY").or_else(|| set("no_proxy")).map_or_else(|| ours.clone(), |others| format!("{others},{ours}")))
}
