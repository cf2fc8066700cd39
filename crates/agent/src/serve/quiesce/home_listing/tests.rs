use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::time::Duration;

use odc_control::Listing;
use tempfile::TempDir;

use super::*;
use crate::serve::quiesce::render_listing;

fn home() -> TempDir {
    tempfile::tempdir().unwrap()
}

fn file(home: &TempDir, path: impl AsRef<Path>, size: u64) {
    let path = home.path().join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::File::create(path).unwrap().set_len(size).unwrap();
}

fn list(home: &TempDir) -> (String, bool) {
    let (text, is_truncated) =
        render_listing::render(&read(home.path(), Instant::now() + Duration::from_secs(60)).unwrap());
    (text.into_string(), is_truncated)
}

#[test]
fn three_levels_are_listed_and_all_files_counted() {
    let home = home();
    file(&home, "b/c/d/e/f", 5000);
    file(&home, "b/c/g", 100);
    file(&home, "a", 1);
    fs::create_dir(home.path().join("empty")).unwrap();
    symlink("/", home.path().join("root")).unwrap();
    symlink("loop", home.path().join("loop")).unwrap();
    let expect = [
        "  4.9 KiB  ./",
        "      1 B  a",
        "  4.9 KiB  b/",
        "  4.9 KiB  b/c/",
        "  4.8 KiB  b/c/d/",
        "    100 B  b/c/g",
        "      0 B  empty/",
        "        -  loop (link)",
        "        -  root (link)",
    ];
    assert_eq!(list(&home), (expect.join("\n") + "\n", false));
}

#[test]
fn control_characters_in_names_are_replaced() {
    let home = home();
    file(&home, "a\nb\x1b[2J", 0);
    file(&home, OsStr::from_bytes(b"\xff\xfe"), 0);
    let (text, _) = list(&home);
    assert_eq!(text.lines().count(), 3);
    assert!(text.contains("a\u{fffd}b\u{fffd}[2J") && text.contains("\u{fffd}\u{fffd}\n"), "{text}");
}

#[test]
fn entries_beyond_the_limit_are_counted() {
    let home = home();
    for number in 0..MAX_ENTRIES_PER_DIRECTORY + 7 {
        file(&home, format!("many/{number:04}/x"), 1024);
    }
    let (text, is_truncated) = list(&home);
    assert!(text.contains("  207 KiB  many/\n") && text.contains("many/... and 7 more\n"), "{text}");
    assert!(!is_truncated);
}

#[test]
fn long_listing_has_fewer_levels() {
    let home = home();
    let name = "n".repeat(250);
    for one in 0..12 {
        for two in 0..100 {
            file(&home, format!("{one}{name}/{two}{name}/file"), 1);
        }
    }
    let (text, is_truncated) = list(&home);
    assert!(is_truncated && text.len() <= Listing::MAX_BYTES);
    assert_eq!(text.lines().count(), 13);
}

#[test]
fn walk_after_the_deadline_is_incomplete() {
    let home = home();
    file(&home, "a/b/c/d/e", 1000);
    let root = read(home.path(), Instant::now()).unwrap();
    assert!(!root.is_complete());
    let (text, is_truncated) = render_listing::render(&root);
    assert!(is_truncated && text.contains("(incomplete)"), "{text}");
}

#[test]
fn missing_home_is_an_error() {
    assert!(read(Path::new("/no/such/home"), Instant::now()).is_err());
}

#[test]
fn other_file_systems_are_not_entered() {
    let root = read(Path::new("/"), Instant::now() + Duration::from_secs(1)).unwrap();
    let proc = root.children.iter().find(|entry| entry.name == "proc").unwrap();
    assert_eq!((proc.kind, proc.children.len()), (Kind::Mount, 0));
}
