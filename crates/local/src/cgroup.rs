//! Cgroups of a cluster: one subtree per cluster and one below it per node, in every hierarchy of the host.
//!
//! Supports cgroup v1, v2 and hybrid setups. The kubelet accounts pods in the subtree of its node, and all started
//! processes, including containers and shims, can be found and killed by subtree.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use rustix::process::{Pid, Signal, kill_process};

const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A mounted hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hierarchy {
    mount: PathBuf,
    kind: HierarchyKind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum HierarchyKind {
    V1 { controllers: Vec<String> },
    V2,
}

/// A cgroup that tracks started processes.
#[derive(Clone, Debug)]
pub struct Cgroup {
    path: PathBuf,
}

impl Cgroup {
    pub fn enter(&self, pid: Pid) -> io::Result<()> {
        std::fs::create_dir_all(&self.path)?;
        std::fs::write(self.path.join("cgroup.procs"), pid.as_raw_nonzero().to_string())
    }
}

#[derive(Clone, Debug)]
pub struct Cgroups {
    hierarchies: Vec<Hierarchy>,
}

impl Cgroups {
    pub fn detect() -> anyhow::Result<Self> {
        let text = std::fs::read_to_string("/proc/self/mountinfo").context("reading the mount table")?;
        let hierarchies = parse(&text);
        anyhow::ensure!(!hierarchies.is_empty(), "no cgroup hierarchy is mounted on this machine; pods require one");
        Ok(Self { hierarchies })
    }

    /// Returns the cgroup in which processes are tracked. On v1 a single hierarchy, preferably `pids`, is enough.
    pub fn tracking(&self, path: &Path) -> Option<Cgroup> {
        let has_pids = |hierarchy: &&Hierarchy| matches!(&hierarchy.kind, HierarchyKind::V1 { controllers } if controllers.iter().any(|name| name == "pids"));
        let hierarchy = self.hierarchies.iter().find(has_pids).or(self.hierarchies.first())?;
        Some(Cgroup { path: hierarchy.mount.join(path) })
    }

    /// Creates `path` and its parents in all hierarchies, with the controllers that pods need.
    pub fn ensure(&self, path: &Path) -> anyhow::Result<()> {
        for hierarchy in &self.hierarchies {
            let mut directory = hierarchy.mount.clone();
            for name in path {
                let parent = directory.clone();
                directory.push(name);
                hierarchy
                    .ensure_child(&parent, &directory)
                    .with_context(|| format!("creating the cgroup {}", directory.display()))?;
            }
        }
        Ok(())
    }

    /// Returns every process in the subtree, of any hierarchy.
    pub fn processes(&self, path: &Path) -> Vec<Pid> {
        let mut found: Vec<Pid> = Vec::new();
        for hierarchy in &self.hierarchies {
            for directory in subtree(&hierarchy.mount.join(path)) {
                let procs = std::fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
                found.extend(procs.lines().filter_map(|line| Pid::from_raw(line.parse().ok()?)));
            }
        }
        found.sort_by_key(|pid| pid.as_raw_nonzero());
        found.dedup();
        found
    }

    /// Sends the signal to every process in the subtree and waits until all have exited. Returns false on timeout.
    pub async fn kill(&self, path: &Path, signal: Signal, timeout: Duration) -> bool {
        let deadline = tokio::time::Instant::now() + timeout;
        let mut signalled: Vec<Pid> = Vec::new();
        loop {
            let alive = self.processes(path);
            if alive.is_empty() {
                return true;
            }
            if tokio::time::Instant::now() >= deadline {
                return false;
            }
            for pid in &alive {
                // Processes forked since the last iteration are signalled, too. Errors mean that the process has exited.
                if signal == Signal::KILL || !signalled.contains(pid) {
                    let _ = kill_process(*pid, signal);
                    signalled.push(*pid);
                }
            }
            // Cgroup v1 has no notification for an empty cgroup.
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Removes the empty subtree from all hierarchies.
    pub fn remove(&self, path: &Path) -> anyhow::Result<()> {
        for hierarchy in &self.hierarchies {
            for directory in subtree(&hierarchy.mount.join(path)).into_iter().rev() {
                match std::fs::remove_dir(&directory) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => {
                        return Err(error).with_context(|| format!("removing the cgroup {}", directory.display()));
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }
}

impl Hierarchy {
    fn ensure_child(&self, parent: &Path, child: &Path) -> io::Result<()> {
        match &self.kind {
            HierarchyKind::V2 => {
                // In a hybrid setup the v2 hierarchy has no controllers to enable.
                let available = std::fs::read_to_string(parent.join("cgroup.controllers"))?;
                for controller in available.split_ascii_whitespace() {
                    std::fs::write(parent.join("cgroup.subtree_control"), format!("+{controller}"))?;
                }
                create_dir(child)
            }
            HierarchyKind::V1 { controllers } => {
                create_dir(child)?;
                if controllers.iter().any(|name| name == "cpuset") {
                    // A new cpuset is empty, and no process can be moved into an empty one.
                    for setting in ["cpuset.cpus", "cpuset.mems"] {
                        if std::fs::read_to_string(child.join(setting))?.trim().is_empty() {
                            std::fs::write(child.join(setting), std::fs::read_to_string(parent.join(setting))?)?;
                        }
                    }
                }
                Ok(())
            }
        }
    }
}

fn create_dir(directory: &Path) -> io::Result<()> {
    match std::fs::create_dir(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// Returns the directory and all its subdirectories, parents first.
fn subtree(root: &Path) -> Vec<PathBuf> {
    if !root.is_dir() {
        return Vec::new();
    }
    let mut found = vec![root.to_path_buf()];
    let mut next = 0;
    while next < found.len() {
        let entries = std::fs::read_dir(&found[next]).into_iter().flatten().flatten();
        found.extend(
            entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path()),
        );
        next += 1;
    }
    found
}

/// Parses `/proc/self/mountinfo`. A hierarchy that is mounted more than once is returned once.
fn parse(mountinfo: &str) -> Vec<Hierarchy> {
    let mut found: Vec<Hierarchy> = Vec::new();
    for line in mountinfo.lines() {
        let Some((before, after)) = line.split_once(" - ") else { continue };
        let Some(mount) = before.split(' ').nth(4) else { continue };
        let mut after = after.split(' ');
        let kind = match after.next() {
            Some("cgroup2") => HierarchyKind::V2,
            Some("cgroup") => {
                let options = after.nth(1).unwrap_or_default();
                let controllers = options
                    .split(',')
                    .filter(|option| !matches!(*option, "rw" | "ro" | "xattr" | "clone_children"))
                    .map(Into::into)
                    .collect();
                HierarchyKind::V1 { controllers }
            }
            _ => continue,
        };
        if !found.iter().any(|known| known.kind == kind) {
            found.push(Hierarchy { mount: mount.into(), kind });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn v1_v2_and_hybrid_hierarchies_are_parsed() {
        let v1 = "36 25 0:31 / /sys/fs/cgroup/cpu rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct\n\
                  37 25 0:32 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids\n";
        let v2 = "30 25 0:27 / /sys/fs/cgroup/unified rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";
        let other = "25 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n";
        let mounts =
            |text: &str| parse(text).into_iter().map(|found| found.mount.display().to_string()).collect::<Vec<_>>();
        assert_eq!(mounts(&format!("{other}{v1}")), ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup/pids"]);
        assert_eq!(mounts(v2), ["/sys/fs/cgroup/unified"]);
        let both = Cgroups { hierarchies: parse(&format!("{v1}{v2}")) };
        assert_eq!(both.tracking(Path::new("odc-x")).unwrap().path, Path::new("/sys/fs/cgroup/pids/odc-x"));
        let only_v2 = Cgroups { hierarchies: parse(v2) };
        assert_eq!(only_v2.tracking(Path::new("odc-x")).unwrap().path, Path::new("/sys/fs/cgroup/unified/odc-x"));
    }

    #[test]
    fn hierarchy_mounted_twice_is_returned_once() {
        let line = |mount: &str| format!("37 25 0:32 / {mount} rw - cgroup cgroup rw,pids\n");
        assert_eq!(parse(&(line("/a") + &line("/b"))).len(), 1);
    }
}
