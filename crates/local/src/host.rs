//! What a cloud changes on the host: a bridge, an nft table, forwarding; and per node a network namespace, a mount
//! namespace and a cgroup subtree.
//!
//! Everything is named after the cloud, made if missing and removed if there: running any of it twice is harmless, and
//! what a killed run or a reboot left half made is finished or cleared by the next.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use rustix::process::Signal;
use serde::Deserialize;

use crate::cgroup::Cgroups;
use crate::layout::{CloudId, Layout};
use crate::network::{CANDIDATES, Cidr, MAX_NODES, Network, NodeIndex};
use crate::problem::Problem;
use crate::process::run;
use crate::settings::Settings;

/// One line per running cloud, so that the last one to leave restores what they share.
const CLOUDS: &str = "/run/odc-local";
const FORWARDING: &str = "/proc/sys/net/ipv4/ip_forward";
/// Containers are asked to end before they are made to.
const CONTAINER_GRACE: Duration = Duration::from_secs(10);
/// Killed processes need a moment to be gone, longer on a busy machine.
const KILL_LIMIT: Duration = Duration::from_secs(30);

/// Directories that belong to a node alone: what the kubelet, containerd and CNI plugins write at fixed paths.
const OWN_DIRECTORIES: [(&str, &str); 6] = [
    ("/var/lib/kubelet", "kubelet"),
    ("/var/lib/cni", "cni"),
    ("/var/log/pods", "pods"),
    ("/var/log/containers", "containers"),
    ("/run/containerd", "run/containerd"),
    ("/run/netns", "run/netns"),
];
/// Of these, what a machine loses when it is switched off.
const VOLATILE: &str = "run";

#[derive(Clone, Debug)]
pub struct Host {
    layout: Layout,
    id: CloudId,
    network: Network,
    cgroups: Cgroups,
}

impl Host {
    pub fn new(layout: &Layout, network: Network) -> anyhow::Result<Self> {
        Ok(Self { layout: layout.clone(), id: layout.id(), network, cgroups: Cgroups::of_host()? })
    }

    pub fn cgroups(&self) -> &Cgroups {
        &self.cgroups
    }

    /// The bridge with the cloud's own address. Nothing else can listen there before it exists.
    pub async fn ensure_bridge(&self) -> anyhow::Result<()> {
        let bridge = self.id.bridge();
        if !link_exists(&bridge) {
            run("ip", &["link", "add", &bridge, "type", "bridge"]).await?;
        }
        let address = Cidr(self.network.host(), 24).to_string();
        run("ip", &["address", "replace", &address, "dev", &bridge]).await?;
        run("ip", &["link", "set", &bridge, "up"]).await?;
        Ok(())
    }

    /// Lets pods and nodes reach what the machine reaches. Only what leaves the machine is masqueraded.
    pub async fn ensure_way_out(&self) -> anyhow::Result<()> {
        self.join_clouds()?;
        let (table, whole) = (self.id.nft_table(), self.network.whole());
        // In one transaction: made if missing, emptied, filled.
        let rules = format!(
            "table ip {table}
flush table ip {table}
table ip {table} {{
    chain leaving {{
        type nat hook postrouting priority srcnat;
        ip saddr {whole} ip daddr != {whole} masquerade
    }}
}}
"
        );
        let file = self.layout.config().join("way-out.nft");
        std::fs::create_dir_all(self.layout.config())
            .and_then(|()| std::fs::write(&file, rules))
            .with_context(|| format!("writing {}", file.display()))?;
        run("nft", &["-f", &file.display().to_string()]).await?;
        Ok(())
    }

    /// The node's place: namespaces, addresses, routes, cgroups.
    pub async fn ensure_node(&self, settings: &Settings, node: NodeIndex) -> anyhow::Result<()> {
        self.cgroups.ensure(&self.id.cgroup_of(node))?;
        self.ensure_node_network(settings, node).await.with_context(|| format!("making the network of {node}"))?;
        self.ensure_mount_namespace(node).await.with_context(|| format!("making the mounts of {node}"))
    }

    async fn ensure_node_network(&self, settings: &Settings, node: NodeIndex) -> anyhow::Result<()> {
        let (space, link, bridge) = (self.id.network_namespace(node), self.id.link(node), self.id.bridge());
        ensure_network_namespace(&space).await?;
        if !link_exists(&link) {
            let own = hardware_address(self.network.node(node));
            run(
                "ip",
                &["link", "add", &link, "type", "veth", "peer", "name", "eth0", "address", &own, "netns", &space],
            )
            .await?;
        }
        run("ip", &["link", "set", &link, "master", &bridge, "up"]).await?;
        let address = Cidr(self.network.node(node), 24).to_string();
        let gateway = self.network.host().to_string();
        let inside = |words: &[&str]| {
            let words: Vec<String> = ["-n", &space].iter().chain(words).map(ToString::to_string).collect();
            async move { run("ip", &words.iter().map(String::as_str).collect::<Vec<_>>()).await }
        };
        inside(&["link", "set", "lo", "up"]).await?;
        inside(&["address", "replace", &address, "dev", "eth0"]).await?;
        inside(&["link", "set", "eth0", "up"]).await?;
        inside(&["route", "replace", "default", "via", &gateway]).await?;
        for other in settings.all_nodes().filter(|other| *other != node) {
            inside(&[
                "route",
                "replace",
                &self.network.pods_of(other).to_string(),
                "via",
                &self.network.node(other).to_string(),
            ])
            .await?;
        }
        let enter = format!("--net={}", network_namespace(&space).display());
        run("nsenter", &[&enter, "sh", "-c", &format!("echo 1 > {FORWARDING}")]).await?;
        // The API server calls webhooks and aggregated APIs in pods directly.
        run(
            "ip",
            &["route", "replace", &self.network.pods_of(node).to_string(), "via", &self.network.node(node).to_string()],
        )
        .await?;
        Ok(())
    }

    /// A mount namespace of its own makes the node a machine of its own: the usual paths are its alone, mounts of pods
    /// stay inside, and all of them are gone with it.
    async fn ensure_mount_namespace(&self, node: NodeIndex) -> anyhow::Result<()> {
        let pin = self.layout.mount_namespace(node);
        if is_mount_point(&pin)? {
            return Ok(());
        }
        let place = pin.parent().context("the pin has a directory")?;
        std::fs::create_dir_all(place)?;
        if !is_mount_point(place)? {
            let place = place.display().to_string();
            run("mount", &["--bind", &place, &place]).await?;
            // The kernel pins a mount namespace only on a mount that propagates to nowhere.
            run("mount", &["--make-private", &place]).await?;
        }
        std::fs::write(&pin, "")?;
        let directory = self.layout.node(node);
        if directory.join(VOLATILE).exists() {
            std::fs::remove_dir_all(directory.join(VOLATILE))
                .with_context(|| format!("clearing {}", directory.display()))?;
        }
        let mut script = String::from(
            "set -e
mount --make-rshared /
# Our copy of their pins would hold the network namespaces of other nodes alive.
while read -r _ _ _ _ at _; do
  case $at in /run/netns/* | /var/run/netns/*) umount -l \"$at\" ;; esac
done < /proc/self/mountinfo
",
        );
        for (inside, outside) in OWN_DIRECTORIES {
            let outside = directory.join(outside);
            std::fs::create_dir_all(&outside)?;
            std::fs::create_dir_all(inside).with_context(|| format!("making {inside}"))?;
            script += &format!("mount --bind '{}' {inside}\n", outside.display());
        }
        let pinned = format!("--mount={}", pin.display());
        run("unshare", &[&pinned, "--propagation", "slave", "sh", "-c", &script]).await?;
        Ok(())
    }

    /// What a node's process is started with: the namespaces, entered without a fork.
    pub fn enter_node(&self, node: NodeIndex) -> Vec<String> {
        vec![
            "nsenter".into(),
            format!("--net={}", network_namespace(&self.id.network_namespace(node)).display()),
            format!("--mount={}", self.layout.mount_namespace(node).display()),
            "--".into(),
        ]
    }

    /// Containers get the time to end in order. The kubelet must be gone, or it would start them again.
    pub async fn end_containers(&self, node: NodeIndex) {
        let pods = self.id.cgroup_of(node).join("kubepods");
        self.cgroups.end(&pods, Signal::TERM, CONTAINER_GRACE).await;
    }

    /// Pulls the plug: every process of the node ends now, its link is cut, its mounts are gone. Its disk stays.
    pub async fn remove_node(&self, node: NodeIndex) -> anyhow::Result<()> {
        let cgroup = self.id.cgroup_of(node);
        let gone = self.cgroups.end(&cgroup, Signal::KILL, KILL_LIMIT).await;
        anyhow::ensure!(gone, "processes of {node} cannot be ended: {:?}", self.cgroups.processes(&cgroup));
        self.cgroups.remove(&cgroup)?;
        let pin = self.layout.mount_namespace(node);
        unmount_all(&pin)?;
        if let Some(place) = pin.parent() {
            unmount_all(place)?;
        }
        let space = self.id.network_namespace(node);
        remove_network_namespace(&space)?;
        // Where the network is not known, the route goes with the bridge.
        if self.network != Network::Loopback {
            run("ip", &["route", "flush", "exact", &self.network.pods_of(node).to_string()]).await?;
        }
        // The kernel removes the pair a moment after the namespace; we do not wait for it.
        if link_exists(&self.id.link(node)) {
            let _ = run("ip", &["link", "delete", &self.id.link(node)]).await;
        }
        Ok(())
    }

    /// Nodes there is anything of, of earlier settings too.
    pub fn present_nodes(&self) -> impl Iterator<Item = NodeIndex> {
        NodeIndex::all(MAX_NODES).filter(|node| {
            network_namespace(&self.id.network_namespace(*node)).exists() || self.layout.node(*node).exists()
        })
    }

    /// Deletes the disk of a node that is gone for good.
    pub fn forget_node(&self, node: NodeIndex) -> anyhow::Result<()> {
        let directory = self.layout.node(node);
        std::fs::remove_dir_all(&directory).with_context(|| format!("deleting {}", directory.display()))
    }

    /// Everything that carries this cloud's name.
    pub async fn remove(&self) -> anyhow::Result<()> {
        for node in self.present_nodes() {
            self.remove_node(node).await?;
        }
        let cgroup = self.id.cgroup();
        let gone = self.cgroups.end(&cgroup, Signal::KILL, KILL_LIMIT).await;
        anyhow::ensure!(gone, "processes of this cloud cannot be ended: {:?}", self.cgroups.processes(&cgroup));
        self.cgroups.remove(&cgroup)?;
        if link_exists(&self.id.bridge()) {
            run("ip", &["link", "delete", &self.id.bridge()]).await?;
        }
        let table = self.id.nft_table();
        let tables = run("nft", &["list", "tables", "ip"]).await?;
        if tables.lines().any(|line| line == format!("table ip {table}")) {
            run("nft", &["delete", "table", "ip", &table]).await?;
        }
        self.leave_clouds()
    }

    /// Forwarding is the whole machine's: the first cloud remembers how it was, the last one puts it back.
    fn join_clouds(&self) -> anyhow::Result<()> {
        let _lock = lock_host()?;
        let before = Path::new(CLOUDS).join("forwarding-before");
        if !before.exists() {
            std::fs::write(&before, std::fs::read_to_string(FORWARDING)?)?;
        }
        std::fs::write(Path::new(CLOUDS).join(self.id.to_string()), self.layout.root().as_os_str().as_encoded_bytes())?;
        std::fs::write(FORWARDING, "1").context("switching on forwarding")
    }

    fn leave_clouds(&self) -> anyhow::Result<()> {
        let _lock = lock_host()?;
        let clouds = Path::new(CLOUDS);
        let _ = std::fs::remove_file(clouds.join(self.id.to_string()));
        let before = clouds.join("forwarding-before");
        let others = std::fs::read_dir(clouds)?
            .flatten()
            .any(|entry| !matches!(entry.file_name().to_str(), Some("forwarding-before" | "lock")));
        if !others && before.exists() {
            std::fs::write(FORWARDING, std::fs::read_to_string(&before)?).context("restoring forwarding")?;
            std::fs::remove_file(&before)?;
        }
        Ok(())
    }
}

/// Held while two clouds could get in each other's way.
pub fn lock_host() -> anyhow::Result<std::fs::File> {
    std::fs::create_dir_all(CLOUDS).with_context(|| format!("making {CLOUDS}"))?;
    let file = std::fs::File::create(Path::new(CLOUDS).join("lock"))?;
    file.lock().context("waiting for other clouds")?;
    Ok(file)
}

/// A network nothing on this machine uses. Each cloud starts looking elsewhere, so that one which is down just now most
/// likely finds its own still free.
pub async fn free_network(layout: &Layout) -> anyhow::Result<Network> {
    let used = used_networks().await?;
    let all: Vec<Network> = CANDIDATES.map(Network::Bridge).collect();
    let first = layout.id().spread(all.len());
    let mut in_turn = all.iter().cycle().skip(first).take(all.len());
    let free = in_turn.find(|network| !used.iter().any(|(cidr, _)| network.overlaps(*cidr)));
    free.copied().ok_or_else(|| Problem::NoFreeNetwork.into())
}

/// Refuses a network somebody else uses; our own bridge may be there already.
pub async fn check_network(layout: &Layout, network: Network) -> anyhow::Result<()> {
    let ours = [layout.id().bridge()];
    for (cidr, link) in used_networks().await? {
        if network.overlaps(cidr) && !ours.contains(&link) {
            return Err(
                Problem::NetworkTaken { network: network.to_string(), with: format!("{cidr} on {link}") }.into()
            );
        }
    }
    Ok(())
}

async fn used_networks() -> anyhow::Result<Vec<(Cidr, String)>> {
    #[derive(Deserialize)]
    struct Route {
        dst: String,
        #[serde(default)]
        dev: String,
    }
    let routes: Vec<Route> =
        serde_json::from_str(&run("ip", &["-4", "-json", "route"]).await?).context("reading the routes")?;
    Ok(routes.into_iter().filter_map(|route| Some((route.dst.parse().ok()?, route.dev))).collect())
}

fn link_exists(name: &str) -> bool {
    Path::new("/sys/class/net").join(name).exists()
}

/// Of a link that is made; one that is there keeps its own. The same whenever a node is made anew: its neighbours
/// remember it, and would send what is for it nowhere for half a minute.
fn hardware_address(address: Ipv4Addr) -> String {
    let [one, two, three, four] = address.octets();
    // A first byte for addresses that no manufacturer gave out.
    format!("02:0d:{one:02x}:{two:02x}:{three:02x}:{four:02x}")
}

fn network_namespace(name: &str) -> PathBuf {
    Path::new("/run/netns").join(name)
}

/// Made as `ip netns` would, except that it leaves no mount of `/run/netns` itself behind.
async fn ensure_network_namespace(name: &str) -> anyhow::Result<()> {
    let pin = network_namespace(name);
    if is_mount_point(&pin)? {
        return Ok(());
    }
    std::fs::create_dir_all("/run/netns")
        .and_then(|()| std::fs::write(&pin, ""))
        .with_context(|| format!("making {}", pin.display()))?;
    run("unshare", &[&format!("--net={}", pin.display()), "true"]).await?;
    Ok(())
}

fn remove_network_namespace(name: &str) -> anyhow::Result<()> {
    let pin = network_namespace(name);
    unmount_all(&pin)?;
    match std::fs::remove_file(&pin) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("removing {}", pin.display()))
        }
        _ => Ok(()),
    }
}

fn is_mount_point(path: &Path) -> anyhow::Result<bool> {
    Ok(mount_points()?.iter().any(|at| at == path))
}

/// Undoes every mount exactly at `path`; interrupted runs may have stacked several.
fn unmount_all(path: &Path) -> anyhow::Result<()> {
    while is_mount_point(path)? {
        rustix::mount::unmount(path, rustix::mount::UnmountFlags::DETACH)
            .with_context(|| format!("unmounting {}", path.display()))?;
    }
    Ok(())
}

fn mount_points() -> anyhow::Result<Vec<PathBuf>> {
    let text = std::fs::read_to_string("/proc/self/mountinfo").context("reading the mounts")?;
    // Spaces and the like are written as octal escapes there.
    Ok(text
        .lines()
        .filter_map(|line| line.split(' ').nth(4))
        .map(|at| PathBuf::from(at.replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\")))
        .collect())
}
