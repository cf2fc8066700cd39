//! The components of a local cluster, in start order.

mod containerd;
mod control_plane;
mod database;
mod dns;
mod kubelet;
mod proxy;
mod registry;
mod simulated_nodes;

use std::path::PathBuf;

pub use database::{DatabaseRole, ensure_passwords};
pub use kubelet::{GPU_RESOURCE, LOCAL_NODE_LABEL, NODE_LABELS};

use crate::artifact::Executables;
use crate::cgroup::{Cgroup, Cgroups};
use crate::component::Component;
use crate::host::Host;
use crate::layout::Layout;
use crate::network::NodeIndex;
use crate::pki::Pki;
use crate::settings::{Mode, Settings};

/// Host name of the cluster's registry, for pods, nodes and users.
pub const REGISTRY_NAME: &str = "registry.odc.internal";

/// Everything the component definitions are derived from.
#[derive(Debug)]
pub struct Blueprint {
    pub settings: Settings,
    pub layout: Layout,
    pub executables: Executables,
    /// Present only if the cluster has nodes, which need changes to the host.
    pub host: Option<Host>,
    postgres_bin: PathBuf,
    /// Whether the kernel can mount the pool of persistent volumes.
    kernel_supports_storage: bool,
    /// Value of `NO_PROXY`, if this machine uses an HTTP proxy: cluster addresses bypass it.
    no_proxy: Option<String>,
}

impl Blueprint {
    pub fn new(settings: Settings, layout: Layout, executables: Executables) -> anyhow::Result<Self> {
        let host = match settings.mode() {
            Mode::Full => Some(Host::new(&layout, settings.network)?),
            Mode::ControlPlane | Mode::External => None,
        };
        let no_proxy = no_proxy(&settings);
        Ok(Self {
            settings,
            layout,
            executables,
            host,
            postgres_bin: database::find_postgres_bin(),
            kernel_supports_storage: crate::host::supports_storage()?,
            no_proxy,
        })
    }

    /// Reports whether the service layer is installed.
    pub fn has_service(&self) -> bool {
        self.settings.mode() == Mode::Full && !self.settings.bare && !self.settings.no_service
    }

    /// Reports whether persistent volumes are installed.
    pub fn has_storage(&self) -> bool {
        self.wants_storage() && self.kernel_supports_storage
    }

    /// Reports whether persistent volumes are missing because of the kernel.
    pub fn lacks_storage(&self) -> bool {
        self.wants_storage() && !self.kernel_supports_storage
    }

    fn wants_storage(&self) -> bool {
        self.settings.mode() == Mode::Full && !self.settings.bare
    }

    /// Returns every component that should be running.
    pub fn components(&self) -> Vec<Component> {
        let mut components = self.components_without_proxy();
        for (component, no_proxy) in components.iter_mut().zip(self.no_proxy.iter().cycle()) {
            for name in ["NO_PROXY", "no_proxy"] {
                component.environment.push((name.into(), no_proxy.clone()));
            }
        }
        components
    }

    fn components_without_proxy(&self) -> Vec<Component> {
        match self.settings.mode() {
            Mode::External => self.database(),
            Mode::ControlPlane => self.control_plane(),
            Mode::Full => {
                let mut components = self.database();
                components.extend(self.control_plane());
                components.push(self.cluster());
                components.push(self.registry());
                components.push(self.images());
                components.push(self.dns());
                if !self.settings.bare {
                    components.push(self.odc());
                }
                if self.has_service() {
                    components.push(self.service());
                }
                if self.has_storage() {
                    components.push(self.storage());
                }
                for node in self.settings.running_nodes() {
                    components.extend(self.node(node));
                }
                components.extend(self.simulated_nodes());
                components
            }
        }
    }

    fn node(&self, node: NodeIndex) -> Vec<Component> {
        let mut components = vec![self.containerd(node), self.kubelet(node), self.proxy(node)];
        if self.settings.gpus > 0 {
            components.push(self.gpus(node));
        }
        components
    }

    /// Applies the objects every cluster has: RBAC of the components, the DNS Service, simulated nodes.
    fn cluster(&self) -> Component {
        let Settings { nodes, simulated_nodes, gpus, .. } = &self.settings;
        // The job reads the settings itself. The variable only changes the fingerprint, so that the job runs again when
        // they change.
        let fingerprint = format!("{nodes} nodes and {simulated_nodes} simulated ones with {gpus} GPUs");
        self.job("cluster").depends_on("apiserver").environment("ODC_NODES", fingerprint)
    }

    /// Pushes the base images into the registry.
    fn images(&self) -> Component {
        self.job("images").depends_on("registry")
    }

    /// Installs ODC into the cluster.
    fn odc(&self) -> Component {
        self.job("odc").depends_on("cluster").depends_on("images")
    }

    /// Installs the service layer into the cluster, into the namespace of ODC.
    fn service(&self) -> Component {
        self.job("service").depends_on("odc").depends_on("database")
    }

    /// Installs persistent volumes into the cluster, after ODC, whose pods are needed first.
    fn storage(&self) -> Component {
        self.job("storage").depends_on("odc")
    }

    /// Runs `odc local job NAME` as a component, so that the supervisor retries it like any other.
    fn job(&self, name: &str) -> Component {
        let mut component = Component::new(name)
            .command([self.executables.odc.as_os_str()])
            .command(["local", "job", name, "--dir"])
            .command([self.layout.root().as_os_str()])
            .cgroup(self.control_cgroup());
        // Runs the job again after an upgrade.
        component.environment.push(("ODC_BUILD".into(), self.executables.build_id.clone()));
        component
    }

    fn node_component(&self, node: NodeIndex, name: &str) -> Component {
        let mut component = Component::new(format!("{node}/{name}"));
        if let Some(host) = &self.host {
            component = component
                .wrapper(host.nsenter_command(node))
                .cgroup(host.cgroups().tracking(&self.layout.id().node_cgroup(node).join("daemons")));
        }
        component.node = Some(node);
        component
    }

    fn control_cgroup(&self) -> Option<Cgroup> {
        self.host
            .as_ref()
            .map(Host::cgroups)
            .and_then(|cgroups: &Cgroups| cgroups.tracking(&self.layout.id().cgroup().join("control")))
    }

    fn pki(&self) -> Pki {
        Pki::new(&self.layout)
    }

    pub fn api_url(&self) -> String {
        format!("https://{}:{}", self.settings.network.host_ip(), self.settings.ports.api)
    }

    /// Returns `host:port` of a control plane port, reachable from every process of the cluster.
    fn host_port(&self, port: u16) -> String {
        format!("{}:{port}", self.settings.network.host_ip())
    }

    fn config_path(&self, name: &str) -> PathBuf {
        self.layout.config().join(name)
    }
}

fn no_proxy(settings: &Settings) -> Option<String> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    ["HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"].into_iter().find_map(variable)?;
    let cluster = format!("127.0.0.1,localhost,{},.svc,.cluster.local,{REGISTRY_NAME}", settings.network.cidr());
    let inherited = variable("NO_PROXY").or_else(|| variable("no_proxy"));
    Some(inherited.map_or_else(|| cluster.clone(), |inherited| format!("{inherited},{cluster}")))
}
