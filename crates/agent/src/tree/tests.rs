use std::fs::{self, Permissions};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::PathBuf;

use odc_control::TreeDiff;
use rustix::fs::mkfifoat;

use super::*;
use crate::args;

struct Trees {
    directory: tempfile::TempDir,
}

impl Trees {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("from")).unwrap();
        fs::create_dir(directory.path().join("to")).unwrap();
        Self { directory }
    }

    fn from(&self, name: &str) -> PathBuf {
        self.directory.path().join("from").join(name)
    }

    fn to(&self, name: &str) -> PathBuf {
        self.directory.path().join("to").join(name)
    }

    /// Compares `from` as the earlier tree with `to`.
    fn compare(&self) -> TreeDiff {
        let result = self.directory.path().join("result");
        let args = args::CompareTrees { earlier: self.from(""), later: self.to(""), result: result.clone() };
        compare::run(&args).unwrap();
        TreeDiff::from_message(&fs::read_to_string(result).unwrap()).unwrap()
    }

    fn copy(&self, paths: &[&str]) -> Result<(), String> {
        let args = args::CopyPaths {
            from: self.from(""),
            to: self.to(""),
            id: "uid-1".parse().unwrap(),
            paths: paths.iter().map(PathBuf::from).collect(),
        };
        copy::run(&args).map_err(|error| format!("{error:#}"))
    }

    /// Writes a file with the same time in both trees.
    fn write_both(&self, name: &str, content: &str) {
        fs::write(self.from(name), content).unwrap();
        fs::write(self.to(name), content).unwrap();
        set_time(&self.from(name), 1000);
        set_time(&self.to(name), 1000);
    }
}

fn set_time(path: &Path, second: u64) {
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(second);
    File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
}

#[test]
fn equal_trees_have_no_difference() {
    let trees = Trees::new();
    trees.write_both("same", "text");
    // The time alone does not count.
    trees.write_both("touched", "text");
    set_time(&trees.to("touched"), 2000);
    for root in [trees.from(""), trees.to("")] {
        fs::create_dir(root.join("empty")).unwrap();
        symlink("/etc/passwd", root.join("link")).unwrap();
        mkfifoat(CWD, root.join("fifo"), Mode::RUSR | Mode::WUSR).unwrap();
    }
    assert_eq!(trees.compare(), TreeDiff::default());
}

#[test]
fn each_kind_of_change_is_reported() {
    let trees = Trees::new();
    for name in ["content", "mode", "size", "time-restored", "type"] {
        trees.write_both(name, "text");
    }
    fs::write(trees.to("content"), "TEXT").unwrap();
    let change_time =
        |path: &Path| fs::metadata(path).map(|metadata| (metadata.ctime(), metadata.ctime_nsec())).unwrap();
    // The clock of a file system has a resolution of some milliseconds.
    while change_time(&trees.to("time-restored")) == change_time(&trees.from("time-restored")) {
        fs::write(trees.to("time-restored"), "TEXT").unwrap();
        set_time(&trees.to("time-restored"), 1000);
    }
    fs::write(trees.to("time-restored"), "TEXT").unwrap();
    set_time(&trees.to("time-restored"), 1000);
    fs::write(trees.to("size"), "longer text").unwrap();
    fs::set_permissions(trees.to("mode"), Permissions::from_mode(0o4755)).unwrap();
    fs::remove_file(trees.to("type")).unwrap();
    fs::create_dir(trees.to("type")).unwrap();
    symlink("old", trees.from("link")).unwrap();
    symlink("new", trees.to("link")).unwrap();
    fs::create_dir_all(trees.from("removed/a/b")).unwrap();
    fs::write(trees.from("removed/a/file"), "").unwrap();
    fs::write(trees.to("added"), "").unwrap();
    let diff = trees.compare();
    assert_eq!(
        diff.paths,
        ["A added", "M content", "M link", "M mode", "D removed/", "M size", "M time-restored", "M type/"]
    );
    assert_eq!((diff.added, diff.removed, diff.modified, diff.truncated), (1, 4, 6, false));
}

#[test]
fn links_are_not_followed_and_names_are_escaped() {
    let trees = Trees::new();
    // A loop, and a link out of the tree.
    symlink(".", trees.to("loop")).unwrap();
    symlink("/", trees.to("root")).unwrap();
    fs::write(trees.directory.path().join("to").join(std::ffi::OsStr::from_bytes(b"a\n\x1b\xff")), "").unwrap();
    let diff = trees.compare();
    assert_eq!(diff.paths, ["A a\\n\\u{1b}\\xff", "A loop", "A root"]);
}

#[test]
fn many_changes_are_counted_and_truncated() {
    let trees = Trees::new();
    for number in 0..2000 {
        fs::write(trees.to(&format!("file-with-a-long-name-{number:04}")), "").unwrap();
    }
    let diff = trees.compare();
    assert_eq!((diff.added, diff.truncated), (2000, true));
    assert!(diff.paths.len() > 50 && diff.paths[0].ends_with("0000"));
}

/// Creates a tree that is deeper than the limit, without long paths.
fn create_deep(root: &Path) {
    let mut directory = open_root(root).unwrap();
    for _ in 0..=MAX_DEPTH {
        mkdirat(&directory, "d", Mode::RWXU).unwrap();
        directory = open_directory(&directory, "d").unwrap();
    }
}

#[test]
fn tree_that_is_too_deep_is_an_error() {
    let trees = Trees::new();
    create_deep(&trees.from(""));
    let args =
        args::CompareTrees { earlier: trees.from(""), later: trees.to(""), result: trees.directory.path().join("r") };
    let error = compare::run(&args).unwrap_err().to_string();
    assert!(error.ends_with("more than 256 directories below each other"), "{error}");
    assert!(trees.copy(&["d"]).is_err());
}

#[test]
fn copied_files_keep_their_attributes() {
    let trees = Trees::new();
    fs::create_dir_all(trees.from("a/b/c")).unwrap();
    fs::write(trees.from("a/b/file"), "old").unwrap();
    fs::set_permissions(trees.from("a/b/file"), Permissions::from_mode(0o2750)).unwrap();
    set_time(&trees.from("a/b/file"), 1000);
    symlink("/nowhere", trees.from("a/b/link")).unwrap();
    mkfifoat(CWD, trees.from("a/b/fifo"), Mode::RUSR).unwrap();
    fs::set_permissions(trees.from("a/b"), Permissions::from_mode(0o1555)).unwrap();
    fs::create_dir_all(trees.to("a/b")).unwrap();
    fs::write(trees.to("a/b/file"), "new content").unwrap();
    fs::write(trees.to("a/b/own"), "kept").unwrap();
    trees.copy(&["a/b"]).unwrap();
    assert_eq!(fs::read_to_string(trees.to("a/b/file")).unwrap(), "old");
    assert_eq!(fs::read_to_string(trees.to("a/b/own")).unwrap(), "kept");
    let file = fs::metadata(trees.to("a/b/file")).unwrap();
    assert_eq!((file.mode() & 0o7777, file.mtime()), (0o2750, 1000));
    assert_eq!(fs::metadata(trees.to("a/b")).unwrap().mode() & 0o7777, 0o1555);
    assert_eq!(fs::read_link(trees.to("a/b/link")).unwrap(), Path::new("/nowhere"));
    let names = sorted_names(open_root(&trees.to("a/b")).unwrap()).unwrap();
    assert_eq!(names, [c"c", c"file", c"link", c"own"].map(CStr::to_owned));
    fs::set_permissions(trees.from("a/b"), Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(trees.to("a/b"), Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn missing_directories_above_a_file_are_created() {
    let trees = Trees::new();
    fs::create_dir_all(trees.from("a/b")).unwrap();
    fs::set_permissions(trees.from("a"), Permissions::from_mode(0o700)).unwrap();
    fs::write(trees.from("a/b/file"), "text").unwrap();
    fs::write(trees.from("a/other"), "text").unwrap();
    trees.copy(&["./a//b/file"]).unwrap();
    assert_eq!(fs::read_to_string(trees.to("a/b/file")).unwrap(), "text");
    assert_eq!(fs::metadata(trees.to("a")).unwrap().mode() & 0o7777, 0o700);
    assert!(!trees.to("a/other").exists());
}

#[test]
fn nothing_is_changed_if_a_path_is_invalid() {
    let trees = Trees::new();
    fs::write(trees.from("file"), "old").unwrap();
    fs::write(trees.to("file"), "new").unwrap();
    fs::create_dir(trees.from("dir")).unwrap();
    fs::write(trees.from("dir/file"), "").unwrap();
    symlink("..", trees.to("dir")).unwrap();
    fs::write(trees.from("plain"), "").unwrap();
    fs::create_dir(trees.to("plain")).unwrap();
    symlink("/etc", trees.from("link")).unwrap();
    for (path, message) in [
        ("missing", "missing: not found in the restore point"),
        ("missing/file", "missing: not found in the restore point"),
        ("link/passwd", "link: not a directory in the restore point"),
        ("dir/file", "dir: not a directory on the disk"),
        ("plain", "plain: is a directory on the disk; move it away first"),
        ("../file", "../file: not a path below the root of the disk"),
        ("/etc/passwd", "/etc/passwd: not a path below the root of the disk"),
        (".", ".: not a path below the root of the disk"),
    ] {
        assert_eq!(trees.copy(&["file", path]).unwrap_err(), message);
        assert_eq!(fs::read_to_string(trees.to("file")).unwrap(), "new");
    }
}

#[test]
fn link_on_the_disk_is_replaced_and_not_followed() {
    let trees = Trees::new();
    let outside = trees.directory.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("file"), "safe").unwrap();
    fs::create_dir(trees.from("dir")).unwrap();
    fs::write(trees.from("dir/file"), "old").unwrap();
    fs::write(trees.from("file"), "old").unwrap();
    symlink(&outside, trees.to("dir")).unwrap();
    symlink(outside.join("file"), trees.to("file")).unwrap();
    trees.copy(&["dir", "file"]).unwrap();
    assert_eq!(fs::read_to_string(outside.join("file")).unwrap(), "safe");
    assert!(!fs::symlink_metadata(trees.to("dir")).unwrap().is_symlink());
    assert!(!fs::symlink_metadata(trees.to("file")).unwrap().is_symlink());
    assert_eq!(fs::read_to_string(trees.to("dir/file")).unwrap(), "old");
}

#[test]
fn copy_can_be_repeated_after_it_was_killed() {
    let trees = Trees::new();
    fs::write(trees.from("file"), "old").unwrap();
    // Left by the killed copy.
    fs::write(trees.to(".odc-restore-uid-1"), "ol").unwrap();
    trees.copy(&["file"]).unwrap();
    trees.copy(&["file"]).unwrap();
    assert_eq!(fs::read_dir(trees.to("")).unwrap().count(), 1);
}
