//! How often the kernel ended a process of the server for want of memory, as its control group counts.

use std::fs;
use std::path::{Path, PathBuf};

/// Where the count is: version 1 of control groups in the first form, version 2 in the second.
const FILES: [(&str, &str); 2] = [("memory", "memory.oom_control"), ("", "memory.events")];

/// The file of the group that this process is in. Absent, where nobody counts.
pub fn own_file() -> Option<PathBuf> {
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    file(Path::new("/sys/fs/cgroup"), &own)
}

/// The file of our own group under `root`, usually `/sys/fs/cgroup`. `own` is what `/proc/self/cgroup` says.
fn file(root: &Path, own: &str) -> Option<PathBuf> {
    let group = |controller: &str| {
        own.lines().find_map(|line| {
            let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
            let is_it = controllers.split(',').any(|name| name == controller);
            is_it.then(|| path.trim_start_matches('/').to_owned())
        })
    };
    for (controller, file) in FILES {
        // In a container the group is usually its own root, whatever the path says.
        let group = group(controller).map(|path| root.join(controller).join(path).join(file));
        let found = group.into_iter().chain([root.join(controller).join(file)]).find(|path| count(path).is_some());
        if found.is_some() {
            return found;
        }
    }
    None
}

pub fn count(file: &Path) -> Option<u64> {
    parse(&fs::read_to_string(file).ok()?)
}

fn parse(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
}

/// What people are told of it.
pub fn notice(kills: u64) -> String {
    let times = if kills == 1 { "once".to_owned() } else { format!("{kills} times") };
    format!(
        "This server ran out of memory, and the kernel ended one of its processes ({times} since it was started). \
         Look which of your programs is gone, and use less memory or a larger flavor."
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn group(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn both_versions_are_read() {
        let one = "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n";
        let root = group(&[("memory/memory.oom_control", one)]);
        let found = file(root.path(), "4:memory:/kubepods/x\n").unwrap();
        assert_eq!(count(&found), Some(3));

        let two = "low 0\nhigh 0\nmax 17\noom 2\noom_kill 2\noom_group_kill 0\n";
        let root = group(&[("memory.events", two)]);
        assert_eq!(count(&file(root.path(), "0::/\n").unwrap()), Some(2));
    }

    #[test]
    fn the_own_group_is_found_where_all_can_be_seen() {
        let root = group(&[
            ("memory/memory.oom_control", "oom_kill 9\n"),
            ("memory/pods/a/memory.oom_control", "oom_kill 1\n"),
        ]);
        let found = file(root.path(), "5:cpu,cpuacct:/\n4:memory:/pods/a\n0::/\n").unwrap();
        assert_eq!(count(&found), Some(1));
    }

    #[test]
    fn an_old_kernel_counts_nothing() {
        let root = group(&[("memory/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\n")]);
        assert_eq!(file(root.path(), "4:memory:/\n"), None);
    }

    proptest! {
        #[test]
        fn nothing_in_such_a_file_is_too_odd(text: String, own: String) {
            let _ = parse(&text);
            let _ = file(Path::new("/nowhere"), &own);
        }
    }
}
