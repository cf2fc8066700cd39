//! Resources of the host that a cluster could leave behind.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use odc_local::layout::Layout;

/// The resources of one cluster. Other tests change the host at the same time, so resources of other clusters and
/// mounts of other tests do not count.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct HostResources {
    mounts: BTreeSet<String>,
    links: BTreeSet<String>,
    namespaces: BTreeSet<String>,
    tables: BTreeSet<String>,
    cgroups: BTreeSet<String>,
    routes: BTreeSet<String>,
}

impl HostResources {
    /// Returns the resources that are named after the directory of the cluster or after its ID.
    pub(crate) fn of_cluster(directory: &Path) -> anyhow::Result<Self> {
        let id = Layout::new(directory.into()).id().to_string();
        let directory = directory.display().to_string();
        let of_cluster = |names: BTreeSet<String>| -> BTreeSet<String> {
            names.into_iter().filter(|name| name.contains(&id) || name.contains(&directory)).collect()
        };
        let mountinfo = std::fs::read_to_string("/proc/self/mountinfo")?;
        let mut cgroups = BTreeSet::new();
        for hierarchy in
            mountinfo.lines().filter(|line| line.contains(" - cgroup")).filter_map(|line| line.split(' ').nth(4))
        {
            cgroups.extend(names(hierarchy)?.into_iter().map(|name| format!("{hierarchy}/{name}")));
        }
        Ok(Self {
            mounts: of_cluster(mountinfo.lines().filter_map(|line| line.split(' ').nth(4)).map(Into::into).collect()),
            links: of_cluster(names("/sys/class/net")?),
            namespaces: of_cluster(names("/run/netns").unwrap_or_default()),
            tables: of_cluster(lines("nft", &["list", "tables"])?),
            cgroups: of_cluster(cgroups),
            routes: of_cluster(lines("ip", &["-4", "route"])?),
        })
    }
}

/// Returns the loop devices of a file.
pub(crate) fn loop_devices(file: &Path) -> anyhow::Result<BTreeSet<String>> {
    lines("losetup", &["--noheadings", "--output", "NAME", "--associated", &file.display().to_string()])
}

/// Returns the command lines that contain this directory. A zombie has none.
pub(crate) fn processes_of(directory: &Path) -> anyhow::Result<Vec<String>> {
    let wanted = directory.display().to_string();
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc")?.flatten() {
        let command = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let command = String::from_utf8_lossy(&command).replace('\0', " ");
        if command.contains(&wanted) {
            found.push(command);
        }
    }
    Ok(found)
}

fn names(directory: &str) -> anyhow::Result<BTreeSet<String>> {
    Ok(std::fs::read_dir(directory)?.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect())
}

fn lines(program: &str, arguments: &[&str]) -> anyhow::Result<BTreeSet<String>> {
    let output = Command::new(program).args(arguments).output()?;
    anyhow::ensure!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout).lines().map(Into::into).collect())
}
