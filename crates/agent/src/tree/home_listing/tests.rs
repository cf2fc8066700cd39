use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::time::Duration;

use odc_control::CompressedListing;
use rustix::fs::{CWD, mkdirat};
use tempfile::TempDir;

use super::*;

fn home() -> TempDir {
    tempfile::tempdir().unwrap()
}

fn file(home: &TempDir, path: impl AsRef<Path>, size: usize) {
    let path = home.path().join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, vec![7; size]).unwrap();
}

fn list(home: &Path) -> Listing {
    let content = read(home, Instant::now() + Duration::from_secs(60)).unwrap();
    assert!(content.listing.as_bytes().len() <= CompressedListing::MAX_BYTES);
    let listing = content.listing.decompress().unwrap();
    assert_eq!((content.used_bytes, content.files), (listing.used_bytes, listing.files));
    listing
}

fn list_until(home: &Path, deadline: Instant) -> Listing {
    read(home, deadline).unwrap().listing.decompress().unwrap()
}

fn paths(listing: &Listing) -> Vec<&str> {
    listing.entries.iter().map(|entry| entry.path.as_str()).collect()
}

fn blocks(path: &Path) -> u64 {
    fs::symlink_metadata(path).unwrap().blocks() * 512
}

#[test]
fn three_levels_are_listed_and_everything_is_counted() {
    let home = home();
    file(&home, "b/c/d/e/f", 50_000);
    file(&home, "b/c/g", 100);
    file(&home, "a", 1);
    fs::create_dir(home.path().join("empty")).unwrap();
    let listing = list(home.path());
    assert_eq!(paths(&listing), ["a", "b/", "b/c/", "b/c/d/", "b/c/g", "empty/"]);
    let at = |path: &str| blocks(&home.path().join(path));
    let deepest = at("b/c/d") + at("b/c/d/e") + at("b/c/d/e/f");
    let usage = |path: &str| {
        let entry = listing.entries.iter().find(|entry| entry.path == path).unwrap();
        (entry.bytes, entry.files)
    };
    assert_eq!(usage("b/c/d/"), (deepest, 1));
    assert_eq!(usage("b/c/"), (deepest + at("b/c/g") + at("b/c"), 2));
    assert_eq!(usage("empty/"), (at("empty"), 0));
    let total = usage("b/").0 + at("a") + at("empty") + blocks(home.path());
    assert_eq!((listing.used_bytes, listing.files), (total, 3));
    assert!(!listing.incomplete && listing.omitted == 0);
}

#[test]
fn links_are_neither_followed_nor_counted_twice() {
    let home = home();
    file(&home, "dir/data", 100_000);
    fs::hard_link(home.path().join("dir/data"), home.path().join("link")).unwrap();
    symlink("/", home.path().join("root")).unwrap();
    symlink("loop", home.path().join("loop")).unwrap();
    symlink("..", home.path().join("dir/up")).unwrap();
    let listing = list(home.path());
    assert_eq!(paths(&listing), ["dir/", "dir/data", "dir/up", "link", "loop", "root"]);
    assert_eq!(listing.files, 5);
    let once = blocks(&home.path().join("dir/data"));
    assert!((once..2 * once).contains(&listing.used_bytes), "{listing:?}");
    assert!(!listing.incomplete);
}

#[test]
fn hostile_names_are_escaped() {
    let home = home();
    file(&home, "a\nb\x1b[2J", 0);
    file(&home, OsStr::from_bytes(b"\xff\xfe"), 0);
    file(&home, "\"quoted\"", 0);
    assert_eq!(paths(&list(home.path())), ["\"quoted\"", "\\xff\\xfe", "a\\nb\\u{1b}[2J"]);
}

#[test]
fn directories_beyond_the_depth_are_not_counted() {
    let home = home();
    // Deeper than the longest path that the kernel accepts.
    let mut directory = open(home.path(), OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
    let name = "n".repeat(200);
    for _ in 0..MAX_DEPTH + 20 {
        mkdirat(&directory, name.as_str(), Mode::RWXU).unwrap();
        directory = open_directory(&directory, name.as_str()).unwrap();
    }
    let listing = list(home.path());
    assert_eq!((listing.entries.len(), listing.files, listing.incomplete), (3, 0, true));
}

#[test]
fn large_home_has_a_small_listing_with_its_first_level() {
    let home = home();
    file(&home, "notes.txt", 1);
    let name = "n".repeat(100);
    for number in 0..3000_u64 {
        let random = (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        file(&home, format!("{}/{random:016x}{name}", number % 10), 10);
    }
    let listing = list(home.path());
    assert_eq!(listing.files, 3001);
    assert!(!listing.incomplete && listing.omitted > 0, "{}", listing.omitted);
    assert_eq!(listing.entries.len() as u64 + listing.omitted, 3011);
    assert!(paths(&listing).contains(&"notes.txt"));
}

#[test]
fn walk_after_the_deadline_is_incomplete() {
    let home = home();
    file(&home, "a/b", 1000);
    let listing = list_until(home.path(), Instant::now());
    assert!(listing.incomplete && listing.entries.is_empty());
}

#[test]
fn unreadable_home_is_an_error() {
    let home = home();
    file(&home, "file", 1);
    assert!(read(Path::new("/no/such/home"), Instant::now()).is_err());
    assert!(read(&home.path().join("file"), Instant::now()).is_err());
}

#[test]
fn other_file_systems_are_not_entered() {
    let listing = list_until(Path::new("/"), Instant::now() + Duration::from_secs(1));
    let proc = listing.entries.iter().find(|entry| entry.path == "proc/").unwrap();
    assert_eq!((proc.bytes, proc.files), (0, 0));
    assert!(!paths(&listing).iter().any(|path| path.starts_with("proc/1")));
}

#[test]
fn home_that_changes_meanwhile_is_listed() {
    let home = home();
    let path = home.path().to_owned();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                mkdirat(CWD, path.join("d"), Mode::RWXU).unwrap();
                fs::write(path.join("d/f"), "x").unwrap();
                fs::remove_dir_all(path.join("d")).unwrap();
            }
        });
        for _ in 0..200 {
            assert!(!list(&path).incomplete);
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}
