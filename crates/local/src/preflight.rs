//! Looks before anything is changed: is there the right, the room and the port?

use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context as _;

use crate::layout::Layout;
use crate::parts::Blueprint;
use crate::problem::Problem;
use crate::process::{Process, Record};
use crate::settings::Shape;

const GIB: u64 = 1 << 30;
/// State of a fresh cloud with one node, with some air.
const STATE_NEEDS: u64 = 3 * GIB;
/// Go's module and build caches, and what comes out of them.
const CACHE_NEEDS: u64 = 6 * GIB;
/// How long a port without an owner may still be taken.
const DYING: Duration = Duration::from_secs(5);
/// The longest socket below the state directory must fit the kernel's 108 bytes.
const LONGEST_DIRECTORY: usize = 50;

pub fn check_root(shape: Shape) -> Result<(), Problem> {
    if shape == Shape::Full && !rustix::process::geteuid().is_root() {
        return Err(Problem::NotRoot);
    }
    Ok(())
}

pub fn check_directory(layout: &Layout) -> anyhow::Result<()> {
    let length = layout.root().as_os_str().len();
    anyhow::ensure!(
        length <= LONGEST_DIRECTORY,
        "the state directory {} has {length} characters, and sockets in it may not have a path that long.\nUse a shorter one, of {LONGEST_DIRECTORY} at most: ODC_LOCAL_DIR=… ./dev up",
        layout.root().display()
    );
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/._+@-".contains(byte);
    anyhow::ensure!(
        layout.root().as_os_str().as_encoded_bytes().iter().all(plain),
        "the state directory {} has characters in its name that configuration files cannot hold.\nUse one of plain letters and digits: ODC_LOCAL_DIR=… ./dev up",
        layout.root().display()
    );
    std::fs::create_dir_all(layout.root()).with_context(|| format!("making {}", layout.root().display()))
}

/// `built` tells whether the executables are there already.
pub fn check_space(layout: &Layout, cache: &Path, built: bool) -> anyhow::Result<()> {
    check_free(layout.root(), STATE_NEEDS)?;
    if !built {
        std::fs::create_dir_all(cache).with_context(|| format!("making {}", cache.display()))?;
        check_free(cache, CACHE_NEEDS)?;
    }
    Ok(())
}

fn check_free(directory: &Path, needed: u64) -> anyhow::Result<()> {
    let facts = rustix::fs::statvfs(directory).with_context(|| format!("looking at {}", directory.display()))?;
    let free = facts.f_bavail.saturating_mul(facts.f_frsize);
    if free < needed {
        return Err(
            Problem::NoSpace { directory: directory.into(), free: gibibytes(free), needed: gibibytes(needed) }.into()
        );
    }
    Ok(())
}

fn gibibytes(bytes: u64) -> String {
    let tenths = bytes / (GIB / 10);
    format!("{}.{} GiB", tenths / 10, tenths % 10)
}

/// Ports of parts that do not run yet must be free.
pub async fn check_ports(blueprint: &Blueprint) -> Result<(), Problem> {
    let (host, ports) = (blueprint.settings.network.host(), &blueprint.settings.ports);
    let wanted = [
        ("etcd", ports.etcd),
        ("apiserver", ports.api),
        ("controller-manager", ports.controller_manager),
        ("scheduler", ports.scheduler),
        ("dns", ports.dns),
        ("registry", ports.registry),
        ("postgres", ports.postgres),
    ];
    let planned = blueprint.parts();
    for (part, port) in wanted.into_iter().filter(|(name, _)| planned.iter().any(|part| part.name == *name)) {
        let runs = Record::load(&blueprint.layout.run(), part).is_some_and(|record| Process::adopt(&record).is_some());
        if !runs {
            check_port(part, host, port).await?;
        }
    }
    Ok(())
}

async fn check_port(user: &str, host: Ipv4Addr, port: u16) -> Result<(), Problem> {
    let deadline = Instant::now() + DYING;
    while TcpListener::bind((host, port)).is_err_and(|error| error.kind() == std::io::ErrorKind::AddrInUse) {
        let by = listener(host, port);
        if by.is_some() || Instant::now() > deadline {
            let by = by.unwrap_or_else(|| "another program".into());
            return Err(Problem::PortTaken { part: user.into(), address: host.to_string(), port, by });
        }
        // Nobody has it any more: a process that was killed takes a moment to let go.
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

/// Who listens there: found by the socket's inode among all processes' open files.
fn listener(address: Ipv4Addr, port: u16) -> Option<String> {
    let local = |ip: Ipv4Addr| format!("{:08X}:{port:04X}", u32::from_le_bytes(ip.octets()));
    let (here, anywhere) = (local(address), local(Ipv4Addr::UNSPECIFIED));
    let mut inodes = Vec::new();
    for (table, anywhere) in [("/proc/net/tcp", anywhere), ("/proc/net/tcp6", format!("{:032X}:{port:04X}", 0))] {
        let text = std::fs::read_to_string(table).unwrap_or_default();
        inodes.extend(text.lines().skip(1).filter_map(|line| {
            let fields: Vec<&str> = line.split_ascii_whitespace().collect();
            let listens =
                fields.get(3) == Some(&"0A") && fields.get(1).is_some_and(|at| *at == here || *at == anywhere);
            listens.then(|| fields.get(9).map(|inode| format!("socket:[{inode}]"))).flatten()
        }));
    }
    for entry in std::fs::read_dir("/proc").ok()?.flatten() {
        let Some(pid) =
            entry.file_name().to_str().filter(|name| name.bytes().all(|byte| byte.is_ascii_digit())).map(str::to_owned)
        else {
            continue;
        };
        let files = std::fs::read_dir(entry.path().join("fd")).into_iter().flatten().flatten();
        let holds = files
            .filter_map(|file| std::fs::read_link(file.path()).ok())
            .any(|target| inodes.iter().any(|inode| target.as_os_str() == inode.as_str()));
        if holds {
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
    fn the_program_on_a_taken_port_is_named() {
        let held = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let by = listener(Ipv4Addr::LOCALHOST, held.local_addr().unwrap().port()).unwrap();
        assert!(by.ends_with(&format!("(process {})", std::process::id())), "{by}");
    }

    #[test]
    fn sizes_are_readable() {
        assert_eq!(gibibytes(3 * GIB + GIB / 2), "3.5 GiB");
    }

    #[test]
    fn sockets_fit_in_the_longest_directory() {
        let layout = Layout::new(format!("/{}", "x".repeat(LONGEST_DIRECTORY - 1)).into());
        let node = crate::network::NodeIndex::all(crate::network::MAX_NODES).last().unwrap();
        for socket in [layout.socket(), layout.gpu_socket(node), layout.containerd_socket(node)] {
            assert!(socket.as_os_str().len() <= 107, "{}", socket.display());
        }
    }

    #[test]
    fn odd_names_are_refused() {
        for odd in ["/tmp/with space", "/tmp/with,comma", "/tmp/with:colon", "/tmp/quo\"te", "/tmp/ünder"] {
            assert!(
                check_directory(&Layout::new(odd.into())).unwrap_err().to_string().contains("plain letters"),
                "{odd}"
            );
        }
    }

    #[test]
    fn a_directory_too_long_for_sockets_is_refused() {
        let layout = Layout::new(format!("/tmp/{}", "x".repeat(80)).into());
        assert!(check_directory(&layout).unwrap_err().to_string().contains("ODC_LOCAL_DIR"));
        assert!(!layout.root().exists());
    }
}
