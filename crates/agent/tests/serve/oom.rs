//! An OOM kill in a cgroup v1 or v2 with a memory limit.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::control::{Operator, builder};
use crate::server::wait_until;

const MEMORY_LIMIT: &str = "67108864";
const ROOT: &str = "/sys/fs/cgroup";

/// A control group for this process and its children. When dropped, remaining processes are moved back.
struct ControlGroup {
    path: PathBuf,
    previous: PathBuf,
}

impl ControlGroup {
    fn enter() -> io::Result<Self> {
        let cgroup = fs::read_to_string("/proc/self/cgroup")?;
        let path_of = |controller: &str| {
            let mut groups = cgroup.lines().filter_map(|line| line.split_once(':')?.1.split_once(':'));
            let (_, path) = groups.find(|(controllers, _)| controllers.split(',').any(|name| name == controller))?;
            Some(path.trim_start_matches('/').to_owned())
        };
        let first = Path::new(ROOT).join("memory");
        let (previous, parent, limits) = if first.is_dir() {
            let previous = Some(first.join(path_of("memory").unwrap_or_default())).filter(|path| path.is_dir());
            let previous = previous.unwrap_or(first);
            (previous.clone(), previous, ["memory.limit_in_bytes", "memory.memsw.limit_in_bytes"])
        } else {
            let previous = Path::new(ROOT).join(path_of("").unwrap_or_default());
            // In cgroup v2, the parent must enable the memory controller for its children.
            let limits_children = |group: &&Path| {
                fs::read_to_string(group.join("cgroup.subtree_control")).is_ok_and(|all| all.contains("memory"))
            };
            let parent = previous.ancestors().take_while(|group| group.starts_with(ROOT)).find(limits_children);
            let parent = parent.ok_or_else(|| io::Error::other("no parent group enables the memory controller"))?;
            (previous.clone(), parent.to_owned(), ["memory.max", "memory.swap.max"])
        };
        let path = parent.join(format!("odc-test-{}", std::process::id()));
        fs::create_dir(&path)?;
        let group = Self { path, previous };
        let [memory, with_swap] = limits.map(|name| group.path.join(name));
        fs::write(memory, MEMORY_LIMIT)?;
        // Absent in kernels without swap accounting.
        if with_swap.exists() {
            fs::write(with_swap, MEMORY_LIMIT)?;
        }
        fs::write(group.path.join("cgroup.procs"), std::process::id().to_string())?;
        Ok(group)
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        wait_until("all processes have left", || {
            for pid in fs::read_to_string(self.path.join("cgroup.procs")).unwrap_or_default().lines() {
                let _ = fs::write(self.previous.join("cgroup.procs"), pid);
            }
            fs::remove_dir(&self.path).is_ok().then_some(())
        });
    }
}

#[test]
#[ignore = "requires root, to create a control group"]
fn oom_kill_is_counted_and_announced() {
    let _group = ControlGroup::enter().expect("a memory control group can be created");
    let server = builder().start();
    let mut operator = Operator::connect(&server);
    assert_eq!(operator.signals().oom_kills, 0);
    let screen = fs::File::create(server.path("screen")).unwrap();
    let _terminal = crate::server::Running::start(server.ssh(&["-tt"]).arg("echo here; sleep 1000").stdout(screen));
    server.wait_for_text("screen", "here");
    let previous = operator.signals().agent_boot_id;
    // Buffers one endless line in memory.
    let output = server.run("tail /dev/zero");
    assert_eq!(output.status.code(), Some(137), "{output:?}");
    wait_until("it is counted", || (operator.signals().oom_kills == 1).then_some(()));
    server.wait_for_text("screen", "Out of memory");
    server.wait_for_text("home/OOM_DETECTED.txt", "1 OOM kill since start");
    assert_eq!(operator.signals().agent_boot_id, previous, "the agent was not killed");
}
