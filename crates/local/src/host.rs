//! Changes of a cluster to the host: a bridge, an nft table and IP forwarding; per node a network namespace, a mount
//! namespace and a cgroup subtree.
//!
//! All resources carry the cluster ID in their names. All functions are idempotent, so the next run completes or removes
//! what a killed run or a reboot left incomplete.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use odc_api::duration::format_seconds;
use rustix::process::Signal;
use serde::Deserialize;

use crate::cgroup::Cgroups;
use crate::error::Error;
use crate::layout::{ClusterId, Layout};
use crate::network::{CANDIDATE_OCTETS, Cidr, MAX_NODES, Network, NodeIndex};
use crate::process::run;
use crate::settings::Settings;

/// One file per running cluster, so that the last one to stop restores the shared settings.
const CLUSTERS_DIR: &str = "/run/odc-local";
const IP_FORWARD: &str = "/proc/sys/net/ipv4/ip_forward";
/// Time between SIGTERM and SIGKILL for containers.
const CONTAINER_GRACE_PERIOD: Duration = Duration::from_secs(10);
/// Generous, because a busy machine is slow to reap killed processes.
const KILL_TIMEOUT: Duration = Duration::from_secs(30);
/// The kernel writes the data of the pool back before it detaches the loop device.
const POOL_RELEASE_TIMEOUT: Duration = Duration::from_secs(60);
const POOL_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Directories that are private to a node: fixed paths to which the kubelet, containerd and CNI plugins write.
const NODE_DIRECTORIES: [(&str, &str); 6] = [
    ("/var/lib/kubelet", "kubelet"),
    ("/var/lib/cni", "cni"),
    ("/var/log/pods", "pods"),
    ("/var/log/containers", "containers"),
    ("/run/containerd", "run/containerd"),
    ("/run/netns", "run/netns"),
];
/// Directory of the CSI driver. All nodes share one.
const STORAGE_DIRECTORY: &str = "/var/lib/odc-csi";
/// Subdirectory that does not survive a power-off.
const VOLATILE_DIR: &str = "run";

#[derive(Clone, Debug)]
pub struct Host {
    layout: Layout,
    id: ClusterId,
    network: Network,
    cgroups: Cgroups,
}

impl Host {
    pub fn new(layout: &Layout, network: Network) -> anyhow::Result<Self> {
        Ok(Self { layout: layout.clone(), id: layout.id(), network, cgroups: Cgroups::detect()? })
    }

    pub fn cgroups(&self) -> &Cgroups {
        &self.cgroups
    }

    /// Creates the bridge with the host address of the cluster, on which the control plane listens.
    pub async fn ensure_bridge(&self) -> anyhow::Result<()> {
        let bridge = self.id.bridge();
        if !link_exists(&bridge) {
            run("ip", &["link", "add", &bridge, "type", "bridge"]).await?;
        }
        let address = Cidr(self.network.host_ip(), 24).to_string();
        run("ip", &["address", "replace", &address, "dev", &bridge]).await?;
        run("ip", &["link", "set", &bridge, "up"]).await?;
        Ok(())
    }

    /// Masquerades traffic of pods and nodes to destinations outside the cluster network.
    pub async fn ensure_masquerade(&self) -> anyhow::Result<()> {
        self.register_cluster()?;
        let (table, cidr) = (self.id.nft_table(), self.network.cidr());
        // One transaction: create the table if missing, flush it, add the rules.
        let rules = format!(
            "table ip {table}
flush table ip {table}
table ip {table} {{
    chain postrouting {{
        type nat hook postrouting priority srcnat;
        ip saddr {cidr} ip daddr != {cidr} masquerade
    }}
}}
"
        );
        let file = self.layout.config().join("masquerade.nft");
        std::fs::create_dir_all(self.layout.config())
            .and_then(|()| std::fs::write(&file, rules))
            .with_context(|| format!("writing {}", file.display()))?;
        run("nft", &["-f", &file.display().to_string()]).await?;
        Ok(())
    }

    /// Creates the namespaces, addresses, routes and cgroups of a node.
    pub async fn ensure_node(&self, settings: &Settings, node: NodeIndex) -> anyhow::Result<()> {
        self.cgroups.ensure(&self.id.node_cgroup(node))?;
        self.ensure_node_network(settings, node).await.with_context(|| format!("creating the network of {node}"))?;
        self.ensure_mount_namespace(node).await.with_context(|| format!("creating the mounts of {node}"))
    }

    async fn ensure_node_network(&self, settings: &Settings, node: NodeIndex) -> anyhow::Result<()> {
        let (namespace, link, bridge) = (self.id.network_namespace(node), self.id.link(node), self.id.bridge());
        ensure_network_namespace(&namespace).await?;
        if !link_exists(&link) {
            let mac = mac_address(self.network.node_ip(node));
            run(
                "ip",
                &["link", "add", &link, "type", "veth", "peer", "name", "eth0", "address", &mac, "netns", &namespace],
            )
            .await?;
        }
        run("ip", &["link", "set", &link, "master", &bridge, "up"]).await?;
        let address = Cidr(self.network.node_ip(node), 24).to_string();
        let gateway = self.network.host_ip().to_string();
        let ip_in_namespace = |arguments: &[&str]| {
            let arguments: Vec<String> = ["-n", &namespace].iter().chain(arguments).map(ToString::to_string).collect();
            async move { run("ip", &arguments.iter().map(String::as_str).collect::<Vec<_>>()).await }
        };
        ip_in_namespace(&["link", "set", "lo", "up"]).await?;
        ip_in_namespace(&["address", "replace", &address, "dev", "eth0"]).await?;
        ip_in_namespace(&["link", "set", "eth0", "up"]).await?;
        ip_in_namespace(&["route", "replace", "default", "via", &gateway]).await?;
        for other in settings.all_nodes().filter(|other| *other != node) {
            ip_in_namespace(&[
                "route",
                "replace",
                &self.network.node_pod_cidr(other).to_string(),
                "via",
                &self.network.node_ip(other).to_string(),
            ])
            .await?;
        }
        let enter = format!("--net={}", network_namespace_path(&namespace).display());
        run("nsenter", &[&enter, "sh", "-c", &format!("echo 1 > {IP_FORWARD}")]).await?;
        // The API server connects to webhooks and aggregated APIs in pods directly.
        run(
            "ip",
            &[
                "route",
                "replace",
                &self.network.node_pod_cidr(node).to_string(),
                "via",
                &self.network.node_ip(node).to_string(),
            ],
        )
        .await?;
        Ok(())
    }

    /// Creates the mount namespace of a node, in which the standard paths are bind-mounted from the node's directory. The
    /// mounts of its pods stay in the namespace and are removed with it.
    async fn ensure_mount_namespace(&self, node: NodeIndex) -> anyhow::Result<()> {
        let pin = self.layout.mount_namespace(node);
        if is_mount_point(&pin)? {
            return Ok(());
        }
        let pin_dir = pin.parent().context("the pin has a parent directory")?;
        std::fs::create_dir_all(pin_dir)?;
        if !is_mount_point(pin_dir)? {
            let pin_dir = pin_dir.display().to_string();
            run("mount", &["--bind", &pin_dir, &pin_dir]).await?;
            // The kernel pins a mount namespace only on a private mount.
            run("mount", &["--make-private", &pin_dir]).await?;
        }
        std::fs::write(&pin, "")?;
        let directory = self.layout.node(node);
        if directory.join(VOLATILE_DIR).exists() {
            std::fs::remove_dir_all(directory.join(VOLATILE_DIR))
                .with_context(|| format!("deleting {}", directory.display()))?;
        }
        let mut script = String::from(
            "set -e
mount --make-rshared /
# Inherited bind mounts would keep the network namespaces of other nodes alive.
while read -r _ _ _ _ target _; do
  case $target in /run/netns/* | /var/run/netns/*) umount -l \"$target\" ;; esac
done < /proc/self/mountinfo
",
        );
        let private = NODE_DIRECTORIES.map(|(target, source)| (target, directory.join(source)));
        for (target, source) in private.into_iter().chain([(STORAGE_DIRECTORY, self.layout.storage())]) {
            std::fs::create_dir_all(&source)?;
            std::fs::create_dir_all(target).with_context(|| format!("creating {target}"))?;
            script += &format!("mount --bind '{}' {target}\n", source.display());
        }
        let mount = format!("--mount={}", pin.display());
        run("unshare", &[&mount, "--propagation", "slave", "sh", "-c", &script]).await?;
        Ok(())
    }

    /// Returns the command prefix that enters the namespaces of a node without a fork.
    pub fn nsenter_command(&self, node: NodeIndex) -> Vec<String> {
        vec![
            "nsenter".into(),
            format!("--net={}", network_namespace_path(&self.id.network_namespace(node)).display()),
            format!("--mount={}", self.layout.mount_namespace(node).display()),
            "--".into(),
        ]
    }

    /// Terminates the containers of a node. The kubelet must be stopped first, or it would restart them.
    pub async fn stop_containers(&self, node: NodeIndex) {
        let pods = self.id.node_cgroup(node).join("kubepods");
        self.cgroups.kill(&pods, Signal::TERM, CONTAINER_GRACE_PERIOD).await;
    }

    /// Powers off a node: kills its processes and removes its link and its mounts. Its disk is kept.
    pub async fn remove_node(&self, node: NodeIndex) -> anyhow::Result<()> {
        let cgroup = self.id.node_cgroup(node);
        let exited = self.cgroups.kill(&cgroup, Signal::KILL, KILL_TIMEOUT).await;
        anyhow::ensure!(exited, "could not kill the processes of {node}: {:?}", self.cgroups.processes(&cgroup));
        self.cgroups.remove(&cgroup)?;
        let pin = self.layout.mount_namespace(node);
        unmount_all(&pin)?;
        if let Some(pin_dir) = pin.parent() {
            unmount_all(pin_dir)?;
        }
        let namespace = self.id.network_namespace(node);
        remove_network_namespace(&namespace)?;
        // If the network is unknown, the route is removed with the bridge.
        if self.network != Network::Loopback {
            run("ip", &["route", "flush", "exact", &self.network.node_pod_cidr(node).to_string()]).await?;
        }
        // The kernel also removes the veth pair, shortly after its namespace, so this may fail.
        if link_exists(&self.id.link(node)) {
            let _ = run("ip", &["link", "delete", &self.id.link(node)]).await;
        }
        Ok(())
    }

    /// Returns the nodes with a namespace or a directory, including those of earlier settings.
    pub fn present_nodes(&self) -> impl Iterator<Item = NodeIndex> {
        NodeIndex::all(MAX_NODES).filter(|node| {
            network_namespace_path(&self.id.network_namespace(*node)).exists() || self.layout.node(*node).exists()
        })
    }

    /// Deletes the disk of a removed node.
    pub fn delete_node_disk(&self, node: NodeIndex) -> anyhow::Result<()> {
        let directory = self.layout.node(node);
        std::fs::remove_dir_all(&directory).with_context(|| format!("deleting {}", directory.display()))
    }

    /// Removes all host resources of the cluster.
    pub async fn remove(&self) -> anyhow::Result<()> {
        for node in self.present_nodes() {
            self.remove_node(node).await?;
        }
        let cgroup = self.id.cgroup();
        let exited = self.cgroups.kill(&cgroup, Signal::KILL, KILL_TIMEOUT).await;
        anyhow::ensure!(exited, "could not kill the processes of the cluster: {:?}", self.cgroups.processes(&cgroup));
        self.cgroups.remove(&cgroup)?;
        self.wait_pools_released().await?;
        if link_exists(&self.id.bridge()) {
            run("ip", &["link", "delete", &self.id.bridge()]).await?;
        }
        let table = self.id.nft_table();
        let tables = run("nft", &["list", "tables", "ip"]).await?;
        if tables.lines().any(|line| line == format!("table ip {table}")) {
            run("nft", &["delete", "table", "ip", &table]).await?;
        }
        self.unregister_cluster()
    }

    /// Waits until no loop device uses a pool file. The mounts are removed with the mount namespaces of the nodes, and the
    /// kernel detaches a loop device after the last of them.
    async fn wait_pools_released(&self) -> anyhow::Result<()> {
        let deadline = Instant::now() + POOL_RELEASE_TIMEOUT;
        for file in pool_files(&self.layout.storage())? {
            wait_pool_released(&file, deadline).await?;
        }
        Ok(())
    }

    /// Enables IP forwarding, which is global: the first cluster saves the previous value, the last one restores it.
    fn register_cluster(&self) -> anyhow::Result<()> {
        let _lock = lock_host()?;
        let saved = Path::new(CLUSTERS_DIR).join("forwarding-before");
        if !saved.exists() {
            std::fs::write(&saved, std::fs::read_to_string(IP_FORWARD)?)?;
        }
        std::fs::write(
            Path::new(CLUSTERS_DIR).join(self.id.to_string()),
            self.layout.root().as_os_str().as_encoded_bytes(),
        )?;
        std::fs::write(IP_FORWARD, "1").context("enabling IP forwarding")
    }

    fn unregister_cluster(&self) -> anyhow::Result<()> {
        let _lock = lock_host()?;
        let clusters = Path::new(CLUSTERS_DIR);
        let _ = std::fs::remove_file(clusters.join(self.id.to_string()));
        let saved = clusters.join("forwarding-before");
        let others = std::fs::read_dir(clusters)?
            .flatten()
            .any(|entry| !matches!(entry.file_name().to_str(), Some("forwarding-before" | "lock")));
        if !others && saved.exists() {
            std::fs::write(IP_FORWARD, std::fs::read_to_string(&saved)?).context("restoring IP forwarding")?;
            std::fs::remove_file(&saved)?;
        }
        Ok(())
    }
}

/// Returns the files of pools. A driver with other arguments, such as a pool per node, has others than the default one.
fn pool_files(storage: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries = match std::fs::read_dir(storage) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(vec![]),
        entries => entries.with_context(|| format!("reading {}", storage.display()))?,
    };
    let is_file = |entry: &std::fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_file());
    Ok(entries.flatten().filter(is_file).map(|entry| entry.path()).collect())
}

async fn wait_pool_released(file: &Path, deadline: Instant) -> anyhow::Result<()> {
    let path = file.display().to_string();
    loop {
        // By inode: the path of the file is another one in the container that attached it.
        let devices = run("losetup", &["--noheadings", "--output", "NAME", "--associated", &path]).await?;
        if devices.trim().is_empty() {
            return Ok(());
        }
        anyhow::ensure!(
            Instant::now() < deadline,
            "the pool of persistent volumes {path} is still mounted from {} after {}\nhint: end the processes that use it, then run the same command again",
            devices.trim(),
            format_seconds(POOL_RELEASE_TIMEOUT.as_secs())
        );
        tokio::time::sleep(POOL_POLL_INTERVAL).await;
    }
}

/// Serializes changes to resources that clusters share.
pub fn lock_host() -> anyhow::Result<std::fs::File> {
    std::fs::create_dir_all(CLUSTERS_DIR).with_context(|| format!("creating {CLUSTERS_DIR}"))?;
    let file = std::fs::File::create(Path::new(CLUSTERS_DIR).join("lock"))?;
    file.lock().context("waiting for the host lock")?;
    Ok(file)
}

/// Returns a network that no route of this machine overlaps. The search starts at an index derived from the cluster ID, so
/// that a stopped cluster most likely finds its previous network still free.
pub async fn find_free_network(layout: &Layout) -> anyhow::Result<Network> {
    let used = used_networks().await?;
    let candidates: Vec<Network> = CANDIDATE_OCTETS.map(Network::Bridge).collect();
    let first = layout.id().hash_index(candidates.len());
    let mut rotated = candidates.iter().cycle().skip(first).take(candidates.len());
    let free = rotated.find(|network| !used.iter().any(|(cidr, _)| network.overlaps(*cidr)));
    free.copied().ok_or_else(|| Error::NoFreeNetwork.into())
}

/// Fails if a route other than that of the cluster's own bridge overlaps with the network.
pub async fn check_network(layout: &Layout, network: Network) -> anyhow::Result<()> {
    let bridge = layout.id().bridge();
    for (cidr, link) in used_networks().await? {
        if network.overlaps(cidr) && link != bridge {
            return Err(Error::NetworkInUse { network: network.to_string(), route: format!("{cidr} on {link}") }.into());
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
        serde_json::from_str(&run("ip", &["-4", "-json", "route"]).await?).context("parsing the routes")?;
    Ok(routes.into_iter().filter_map(|route| Some((route.dst.parse().ok()?, route.dev))).collect())
}

/// Reports whether the kernel can mount the pool of persistent volumes: btrfs on a loop device.
pub fn supports_storage() -> anyhow::Result<bool> {
    let filesystems = std::fs::read_to_string("/proc/filesystems").context("reading the file systems of the kernel")?;
    Ok(lists_btrfs(&filesystems) && Path::new("/dev/loop-control").exists())
}

/// Loads the kernel modules for [`supports_storage`], where they are modules. A failure shows in its result.
pub async fn load_storage_modules() {
    for module in ["btrfs", "loop"] {
        let _ = run("modprobe", &["--quiet", module]).await;
    }
}

fn lists_btrfs(filesystems: &str) -> bool {
    filesystems.lines().any(|line| line.split_ascii_whitespace().next_back() == Some("btrfs"))
}

fn link_exists(name: &str) -> bool {
    Path::new("/sys/class/net").join(name).exists()
}

/// Derives the MAC address of a new link from its IP address, so that a recreated node has the same one: neighbours would
/// otherwise use a stale ARP entry for half a minute.
fn mac_address(address: Ipv4Addr) -> String {
    let [a, b, c, d] = address.octets();
    // The first octet marks a locally administered address.
    format!("02:0d:{a:02x}:{b:02x}:{c:02x}:{d:02x}")
}

fn network_namespace_path(name: &str) -> PathBuf {
    Path::new("/run/netns").join(name)
}

/// Creates a namespace like `ip netns add`, but does not leave a mount at `/run/netns` itself.
async fn ensure_network_namespace(name: &str) -> anyhow::Result<()> {
    let pin = network_namespace_path(name);
    if is_mount_point(&pin)? {
        return Ok(());
    }
    std::fs::create_dir_all("/run/netns")
        .and_then(|()| std::fs::write(&pin, ""))
        .with_context(|| format!("creating {}", pin.display()))?;
    run("unshare", &[&format!("--net={}", pin.display()), "true"]).await?;
    Ok(())
}

fn remove_network_namespace(name: &str) -> anyhow::Result<()> {
    let pin = network_namespace_path(name);
    unmount_all(&pin)?;
    match std::fs::remove_file(&pin) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("removing {}", pin.display()))
        }
        _ => Ok(()),
    }
}

fn is_mount_point(path: &Path) -> anyhow::Result<bool> {
    Ok(mount_points()?.iter().any(|mount| mount == path))
}

/// Unmounts everything mounted at `path`; interrupted runs may have left several mounts.
fn unmount_all(path: &Path) -> anyhow::Result<()> {
    while is_mount_point(path)? {
        rustix::mount::unmount(path, rustix::mount::UnmountFlags::DETACH)
            .with_context(|| format!("unmounting {}", path.display()))?;
    }
    Ok(())
}

fn mount_points() -> anyhow::Result<Vec<PathBuf>> {
    let text = std::fs::read_to_string("/proc/self/mountinfo").context("reading the mount table")?;
    // Special characters are octal escapes.
    Ok(text
        .lines()
        .filter_map(|line| line.split(' ').nth(4))
        .map(|mount| PathBuf::from(mount.replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\")))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_files_in_the_storage_directory_are_pools() {
        let directory = tempfile::tempdir().unwrap();
        let storage = directory.path().join("storage");
        assert!(pool_files(&storage).unwrap().is_empty());
        std::fs::create_dir_all(storage.join("pool")).unwrap();
        let mut expected = ["pool.img", "pool-n1.img", "pool-n2.img"].map(|name| storage.join(name));
        for file in &expected {
            std::fs::write(file, "").unwrap();
        }
        let mut found = pool_files(&storage).unwrap();
        found.sort();
        expected.sort();
        assert_eq!(found, expected);
    }

    #[test]
    fn btrfs_is_found_in_the_list_of_file_systems() {
        assert!(lists_btrfs("nodev\tsysfs\n\text4\n\tbtrfs\n"));
        assert!(!lists_btrfs("nodev\tsysfs\n\text4\n"));
    }
}
