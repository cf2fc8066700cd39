//! A real OOM kill, where control groups of version 1 can be made. Elsewhere there is nothing to try.

use std::fs;
use std::path::{Path, PathBuf};

use crate::control::{Operator, plan};
use crate::server::eventually;

const LIMIT: &str = "67108864";

/// A group for this process and all that it starts. Ends with the value; those who are left go back to where they were.
struct Group {
    path: PathBuf,
    before: PathBuf,
}

impl Group {
    fn enter() -> Option<Self> {
        let root = Path::new("/sys/fs/cgroup/memory");
        let own = fs::read_to_string("/proc/self/cgroup").ok()?;
        let own = own.lines().find_map(|line| line.split_once(":memory:").map(|(_, path)| path.to_owned()))?;
        let before =
            Some(root.join(own.trim_start_matches('/'))).filter(|path| path.is_dir()).unwrap_or(root.to_owned());
        let path = before.join(format!("odc-test-{}", std::process::id()));
        fs::create_dir(&path).ok()?;
        let group = Self { path, before };
        fs::write(group.path.join("memory.limit_in_bytes"), LIMIT).ok()?;
        fs::write(group.path.join("cgroup.procs"), std::process::id().to_string()).ok()?;
        Some(group)
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
    let Some(_group) = Group::enter() else { return };
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
