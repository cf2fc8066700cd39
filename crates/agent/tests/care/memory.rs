//! A real OOM kill, in a control group of version 1 or 2 with little memory.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::process::geteuid;

use crate::control::{Operator, plan};
use crate::server::eventually;

const LIMIT: &str = "67108864";
const ROOT: &str = "/sys/fs/cgroup";

/// A group for this process and all that it starts. Ends with the value; those who are left go back to where they were.
struct Group {
    path: PathBuf,
    before: PathBuf,
}

impl Group {
    fn enter() -> io::Result<Self> {
        let own = fs::read_to_string("/proc/self/cgroup")?;
        let of = |controller: &str| {
            let mut groups = own.lines().filter_map(|line| line.split_once(':')?.1.split_once(':'));
            let (_, path) = groups.find(|(controllers, _)| controllers.split(',').any(|name| name == controller))?;
            Some(path.trim_start_matches('/').to_owned())
        };
        let first = Path::new(ROOT).join("memory");
        let (before, parent, limits) = if first.is_dir() {
            let before = Some(first.join(of("memory").unwrap_or_default())).filter(|path| path.is_dir());
            let before = before.unwrap_or(first);
            (before.clone(), before, ["memory.limit_in_bytes", "memory.memsw.limit_in_bytes"])
        } else {
            let before = Path::new(ROOT).join(of("").unwrap_or_default());
            // Of version 2, only a group whose children are limited can have one that is.
            let limits_children = |group: &&Path| {
                fs::read_to_string(group.join("cgroup.subtree_control")).is_ok_and(|all| all.contains("memory"))
            };
            let parent = before.ancestors().take_while(|group| group.starts_with(ROOT)).find(limits_children);
            let parent = parent.ok_or_else(|| io::Error::other("no group here limits the memory of its children"))?;
            (before.clone(), parent.to_owned(), ["memory.max", "memory.swap.max"])
        };
        let path = parent.join(format!("odc-test-{}", std::process::id()));
        fs::create_dir(&path)?;
        let group = Self { path, before };
        let [memory, with_swap] = limits.map(|name| group.path.join(name));
        fs::write(memory, LIMIT)?;
        // Kernels without swap do not have it.
        if with_swap.exists() {
            fs::write(with_swap, LIMIT)?;
        }
        fs::write(group.path.join("cgroup.procs"), std::process::id().to_string())?;
        Ok(group)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        eventually("everybody has left", || {
            for pid in fs::read_to_string(self.path.join("cgroup.procs")).unwrap_or_default().lines() {
                let _ = fs::write(self.before.join("cgroup.procs"), pid);
            }
            fs::remove_dir(&self.path).is_ok().then_some(())
        });
    }
}

#[test]
fn who_takes_all_memory_is_killed_and_everybody_is_told() {
    let _group = match Group::enter() {
        Ok(group) => group,
        Err(error) => {
            // Who is not root may make no group, and no kernel kills anybody for them.
            assert!(!geteuid().is_root(), "no control group for memory can be made under {ROOT}: {error}");
            eprintln!("not shown, because only root can make a control group: {error}");
            return;
        }
    };
    let server = plan().start();
    let mut operator = Operator::dial(&server);
    assert_eq!(operator.signals().oom_kills, 0);
    let screen = fs::File::create(server.path("screen")).unwrap();
    let _terminal = crate::server::Running::start(server.ssh(&["-tt"]).arg("echo here; sleep 1000").stdout(screen));
    server.wait_for_text("screen", "here");
    let before = operator.signals().agent_boot;
    // It keeps one line without end in memory.
    let output = server.run("tail /dev/zero");
    assert_eq!(output.status.code(), Some(137), "{output:?}");
    eventually("it is counted", || (operator.signals().oom_kills == 1).then_some(()));
    server.wait_for_text("screen", "ran out of memory");
    server.wait_for_text("home/OOM_DETECTED.txt", "once since it was started");
    assert_eq!(operator.signals().agent_boot, before, "the agent lives on");
}
