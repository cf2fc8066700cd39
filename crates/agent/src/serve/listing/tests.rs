use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::time::Duration;

use odc_control::Listing;
use tempfile::TempDir;

use super::*;

fn home() -> TempDir {
    tempfile::tempdir().unwrap()
}

fn file(home: &TempDir, path: impl AsRef<Path>, size: u64) {
    let path = home.path().join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::File::create(path).unwrap().set_len(size).unwrap();
}

fn list(home: &TempDir) -> (String, bool) {
    let (text, cut) = render::text(&read(home.path(), Instant::now() + Duration::from_secs(60)).unwrap());
    (text.into_string(), cut)
}

#[test]
fn three_levels_are_shown_and_everything_is_counted() {
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
fn odd_names_stay_on_their_line() {
    let home = home();
    file(&home, "a\nb\x1b[2J", 0);
    file(&home, OsStr::from_bytes(b"\xff\xfe"), 0);
    let (text, _) = list(&home);
    assert_eq!(text.lines().count(), 3);
    assert!(text.contains("a\u{fffd}b\u{fffd}[2J") && text.contains("\u{fffd}\u{fffd}\n"), "{text}");
}

#[test]
fn of_a_large_directory_the_rest_is_counted() {
    let home = home();
    for number in 0..MOST_SHOWN + 7 {
        file(&home, format!("many/{number:04}/x"), 1024);
    }
    let (text, cut) = list(&home);
    assert!(text.contains("  207 KiB  many/\n") && text.contains("many/... and 7 more\n"), "{text}");
    assert!(!cut);
}

#[test]
fn a_listing_that_is_too_long_loses_depth() {
    let home = home();
    let name = "n".repeat(250);
    for one in 0..12 {
        for two in 0..100 {
            file(&home, format!("{one}{name}/{two}{name}/file"), 1);
        }
    }
    let (text, cut) = list(&home);
    assert!(cut && text.len() <= Listing::MOST);
    assert_eq!(text.lines().count(), 13);
}

#[test]
fn without_time_there_are_no_sizes_but_an_answer() {
    let home = home();
    file(&home, "a/b/c/d/e", 1000);
    let root = read(home.path(), Instant::now()).unwrap();
    assert!(!root.is_counted());
    let (text, cut) = render::text(&root);
    assert!(cut && text.contains("at least"), "{text}");
}

#[test]
fn a_home_that_is_not_there_is_an_error() {
    assert!(read(Path::new("/no/such/home"), Instant::now()).is_err());
}

#[test]
fn other_file_systems_are_named_and_not_entered() {
    let root = read(Path::new("/"), Instant::now() + Duration::from_secs(1)).unwrap();
    let proc = root.children.iter().find(|node| node.name == "proc").unwrap();
    assert_eq!((proc.kind, proc.children.len()), (Kind::Mount, 0));
}
