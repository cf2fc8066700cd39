//! OOM kills of the server, from the memory controller of its control group.

use std::fs;
use std::path::{Path, PathBuf};

/// Controller and file of the counter: cgroup v1 first, then v2.
const COUNTER_FILES: [(&str, &str); 2] = [("memory", "memory.oom_control"), ("", "memory.events")];

/// Returns the counter file of the control group of this process, if the kernel has one.
pub fn counter_file() -> Option<PathBuf> {
    let cgroup = fs::read_to_string("/proc/self/cgroup").ok()?;
    find_counter_file(Path::new("/sys/fs/cgroup"), &cgroup)
}

/// `root` is usually `/sys/fs/cgroup`, `cgroup` the content of `/proc/self/cgroup`.
fn find_counter_file(root: &Path, cgroup: &str) -> Option<PathBuf> {
    let group = |controller: &str| {
        cgroup.lines().find_map(|line| {
            let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
            let matches = controllers.split(',').any(|name| name == controller);
            matches.then(|| path.trim_start_matches('/').to_owned())
        })
    };
    for (controller, file) in COUNTER_FILES {
        // In a container the group is usually mounted as the root.
        let group = group(controller).map(|path| root.join(controller).join(path).join(file));
        let found = group.into_iter().chain([root.join(controller).join(file)]).find(|path| read_count(path).is_some());
        if found.is_some() {
            return found;
        }
    }
    None
}

pub fn read_count(file: &Path) -> Option<u64> {
    parse(&fs::read_to_string(file).ok()?)
}

fn parse(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
}

/// Returns the message for users.
pub fn notice(kills: u64) -> String {
    let count = if kills == 1 { "1 OOM kill".to_owned() } else { format!("{kills} OOM kills") };
    format!(
        "Out of memory: the kernel killed a process in this server ({count} since start). \
         Use less memory or a larger flavor."
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
    fn both_cgroup_versions_are_supported() {
        let v1 = "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n";
        let root = group(&[("memory/memory.oom_control", v1)]);
        let found = find_counter_file(root.path(), "4:memory:/kubepods/x\n").unwrap();
        assert_eq!(read_count(&found), Some(3));

        let v2 = "low 0\nhigh 0\nmax 17\noom 2\noom_kill 2\noom_group_kill 0\n";
        let root = group(&[("memory.events", v2)]);
        assert_eq!(read_count(&find_counter_file(root.path(), "0::/\n").unwrap()), Some(2));
    }

    #[test]
    fn own_group_is_found_in_the_full_hierarchy() {
        let root = group(&[
            ("memory/memory.oom_control", "oom_kill 9\n"),
            ("memory/pods/a/memory.oom_control", "oom_kill 1\n"),
        ]);
        let found = find_counter_file(root.path(), "5:cpu,cpuacct:/\n4:memory:/pods/a\n0::/\n").unwrap();
        assert_eq!(read_count(&found), Some(1));
    }

    #[test]
    fn kernel_without_counter_is_not_supported() {
        let root = group(&[("memory/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\n")]);
        assert_eq!(find_counter_file(root.path(), "4:memory:/\n"), None);
    }

    proptest! {
        #[test]
        fn arbitrary_files_do_not_panic(text: String, cgroup: String) {
            let _ = parse(&text);
            let _ = find_counter_file(Path::new("/nowhere"), &cgroup);
        }
    }
}
