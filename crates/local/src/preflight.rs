//! Checks of permissions, disk space and ports before `up` changes anything.

use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context as _;

use crate::components::Blueprint;
use crate::error::Error;
use crate::layout::Layout;
use crate::process::{Process, Record};
use crate::settings::Mode;

const GIB: u64 = 1 << 30;
/// State of a new cluster with one node, with a margin.
const MIN_STATE_BYTES: u64 = 3 * GIB;
/// Go's module and build caches, and the built executables.
const MIN_CACHE_BYTES: u64 = 6 * GIB;
/// How long the kernel may keep a port in use after its process was killed.
const PORT_RELEASE_TIMEOUT: Duration = Duration::from_secs(5);
const PORT_POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Keeps the longest socket path below the kernel's limit of 108 bytes.
const MAX_STATE_DIR_LEN: usize = 50;

pub fn check_root(mode: Mode) -> Result<(), Error> {
    if mode == Mode::Full && !rustix::process::geteuid().is_root() {
        return Err(Error::NotRoot);
    }
    Ok(())
}

pub fn check_directory(layout: &Layout) -> anyhow::Result<()> {
    let length = layout.root().as_os_str().len();
    anyhow::ensure!(
        length <= MAX_STATE_DIR_LEN,
        "the path of the state directory {} is too long for sockets: {length} characters, at most {MAX_STATE_DIR_LEN}\nhint: use a shorter one with `ODC_LOCAL_DIR=DIR ./dev up`",
        layout.root().display()
    );
    // Scripts and configuration files of components contain the path unquoted or in single quotes.
    let allowed = |byte: &u8| byte.is_ascii_alphanumeric() || b"/._+@-".contains(byte);
    anyhow::ensure!(
        layout.root().as_os_str().as_encoded_bytes().iter().all(allowed),
        "the path of the state directory {} contains unsupported characters\nhint: use one of plain letters and digits with `ODC_LOCAL_DIR=DIR ./dev up`",
        layout.root().display()
    );
    std::fs::create_dir_all(layout.root()).with_context(|| format!("creating {}", layout.root().display()))
}

/// The cache is checked only if executables still have to be built.
pub fn check_space(layout: &Layout, cache: &Path, built: bool) -> anyhow::Result<()> {
    check_free_space(layout.root(), MIN_STATE_BYTES)?;
    if !built {
        std::fs::create_dir_all(cache).with_context(|| format!("creating {}", cache.display()))?;
        check_free_space(cache, MIN_CACHE_BYTES)?;
    }
    Ok(())
}

fn check_free_space(directory: &Path, required: u64) -> anyhow::Result<()> {
    let stat =
        rustix::fs::statvfs(directory).with_context(|| format!("reading free space of {}", directory.display()))?;
    let free = stat.f_bavail.saturating_mul(stat.f_frsize);
    if free < required {
        return Err(Error::NoSpace {
            directory: directory.into(),
            free: format_gib(free),
            required: format_gib(required),
        }
        .into());
    }
    Ok(())
}

fn format_gib(bytes: u64) -> String {
    let tenths = bytes / (GIB / 10);
    format!("{}.{} GiB", tenths / 10, tenths % 10)
}

/// Checks that the ports of components that are not running are free.
pub async fn check_ports(blueprint: &Blueprint) -> Result<(), Error> {
    let (host, settings) = (blueprint.settings.network.host_ip(), &blueprint.settings.ports);
    let ports = [
        ("etcd", settings.etcd),
        ("apiserver", settings.api),
        ("controller-manager", settings.controller_manager),
        ("scheduler", settings.scheduler),
        ("dns", settings.dns),
        ("registry", settings.registry),
        ("postgres", settings.postgres),
    ];
    let components = blueprint.components();
    for (name, port) in ports.into_iter().filter(|(name, _)| components.iter().any(|component| component.name == *name))
    {
        let running =
            Record::load(&blueprint.layout.run(), name).is_some_and(|record| Process::adopt(&record).is_some());
        if !running {
            check_port(name, host, port).await?;
        }
    }
    Ok(())
}

async fn check_port(component: &str, host: Ipv4Addr, port: u16) -> Result<(), Error> {
    let deadline = Instant::now() + PORT_RELEASE_TIMEOUT;
    while TcpListener::bind((host, port)).is_err_and(|error| error.kind() == std::io::ErrorKind::AddrInUse) {
        let owner = find_listener(host, port);
        if owner.is_some() || Instant::now() > deadline {
            let owner = owner.unwrap_or_else(|| "another program".into());
            return Err(Error::PortInUse { component: component.into(), address: host.to_string(), port, owner });
        }
        // No process listens any more; wait until the kernel has released the port.
        tokio::time::sleep(PORT_POLL_INTERVAL).await;
    }
    Ok(())
}

/// Returns the process that listens on a port, found by the socket's inode in the open files of all processes.
fn find_listener(address: Ipv4Addr, port: u16) -> Option<String> {
    let local = |ip: Ipv4Addr| format!("{:08X}:{port:04X}", u32::from_le_bytes(ip.octets()));
    let (own, any) = (local(address), local(Ipv4Addr::UNSPECIFIED));
    let mut inodes = Vec::new();
    for (table, any) in [("/proc/net/tcp", any), ("/proc/net/tcp6", format!("{:032X}:{port:04X}", 0))] {
        let text = std::fs::read_to_string(table).unwrap_or_default();
        inodes.extend(text.lines().skip(1).filter_map(|line| {
            let fields: Vec<&str> = line.split_ascii_whitespace().collect();
            let is_listener =
                fields.get(3) == Some(&"0A") && fields.get(1).is_some_and(|local| *local == own || *local == any);
            is_listener.then(|| fields.get(9).map(|inode| format!("socket:[{inode}]"))).flatten()
        }));
    }
    for entry in std::fs::read_dir("/proc").ok()?.flatten() {
        let Some(pid) =
            entry.file_name().to_str().filter(|name| name.bytes().all(|byte| byte.is_ascii_digit())).map(str::to_owned)
        else {
            continue;
        };
        let files = std::fs::read_dir(entry.path().join("fd")).into_iter().flatten().flatten();
        let owns_socket = files
            .filter_map(|file| std::fs::read_link(file.path()).ok())
            .any(|target| inodes.iter().any(|inode| target.as_os_str() == inode.as_str()));
        if owns_socket {
            let name = std::fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
            return Some(format!("{} (process {pid})", name.trim()));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listener_is_found_by_port() {
        let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let owner = find_listener(Ipv4Addr::LOCALHOST, socket.local_addr().unwrap().port()).unwrap();
        assert!(owner.ends_with(&format!("(process {})", std::process::id())), "{owner}");
    }

    #[test]
    fn sizes_are_formatted_in_gib() {
        assert_eq!(format_gib(3 * GIB + GIB / 2), "3.5 GiB");
    }

    #[test]
    fn sockets_in_the_longest_directory_fit_the_kernel_limit() {
        let layout = Layout::new(format!("/{}", "x".repeat(MAX_STATE_DIR_LEN - 1)).into());
        let node = crate::network::NodeIndex::all(crate::network::MAX_NODES).last().unwrap();
        for socket in [layout.socket(), layout.gpu_socket(node), layout.containerd_socket(node)] {
            assert!(socket.as_os_str().len() <= 107, "{}", socket.display());
        }
    }

    #[test]
    fn directories_with_special_characters_are_rejected() {
        for path in ["/tmp/with space", "/tmp/with,comma", "/tmp/with:colon", "/tmp/quo\"te", "/tmp/ünder"] {
            assert!(
                check_directory(&Layout::new(path.into())).unwrap_err().to_string().contains("plain letters"),
                "{path}"
            );
        }
    }

    #[test]
    fn directories_too_long_for_sockets_are_rejected() {
        let layout = Layout::new(format!("/tmp/{}", "x".repeat(80)).into());
        assert!(check_directory(&layout).unwrap_err().to_string().contains("ODC_LOCAL_DIR"));
        assert!(!layout.root().exists());
    }
}
