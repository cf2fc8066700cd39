//! Resources of the host that a cluster could leave behind.

use std::collections::BTreeSet;
use std::process::Command;

/// Parts of the paths of mounts that concurrent tests of the CSI driver and of disks make in temporary directories.
const OF_OTHER_TESTS: [&str; 2] = ["/tmp/.tmp", "/tmp/odc-csi-"];

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Host {
    mounts: BTreeSet<String>,
    links: BTreeSet<String>,
    namespaces: BTreeSet<String>,
    tables: BTreeSet<String>,
    cgroups: BTreeSet<String>,
    routes: BTreeSet<String>,
    forwarding: String,
}

impl Host {
    pub(crate) fn snapshot() -> anyhow::Result<Self> {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo")?;
        let mut cgroups = BTreeSet::new();
        for hierarchy in
            mounts.lines().filter(|line| line.contains(" - cgroup")).filter_map(|line| line.split(' ').nth(4))
        {
            cgroups.extend(
                names(hierarchy)?
                    .into_iter()
                    .filter(|name| name.starts_with("odc-"))
                    .map(|name| format!("{hierarchy}/{name}")),
            );
        }
        Ok(Self {
            mounts: mounts
                .lines()
                .filter_map(|line| line.split(' ').nth(4))
                .filter(|path| !OF_OTHER_TESTS.iter().any(|part| path.contains(part)))
                .map(Into::into)
                .collect(),
            links: names("/sys/class/net")?,
            namespaces: names("/run/netns").unwrap_or_default(),
            tables: lines("nft", &["list", "tables"])?,
            cgroups,
            routes: lines("ip", &["-4", "route"])?,
            forwarding: std::fs::read_to_string("/proc/sys/net/ipv4/ip_forward")?,
        })
    }
}

/// Returns the loop devices of a file.
pub(crate) fn loop_devices(file: &std::path::Path) -> anyhow::Result<BTreeSet<String>> {
    lines("losetup", &["--noheadings", "--output", "NAME", "--associated", &file.display().to_string()])
}

/// Returns the command lines that contain this directory. A zombie has none.
pub(crate) fn processes_of(directory: &std::path::Path) -> anyhow::Result<Vec<String>> {
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
