//! Homes before and after the start of a server.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use rustix::fs::mknodat;
use tempfile::TempDir;

use super::*;

const BACKUP: &str = ".startup-files-backup-20261118-093000";

/// A home and an image.
struct Fixture {
    directory: TempDir,
    log: RefCell<Vec<String>>,
}

/// Paths with the content of files, and the targets of links.
type Tree = BTreeMap<String, String>;

impl Fixture {
    fn new(home: &[(&str, &str)], skel: &[(&str, &str)]) -> Self {
        let fixture = Self { directory: tempfile::tempdir().unwrap(), log: RefCell::default() };
        for (root, files) in [("home", home), ("skel", skel), ("outside", &[])] {
            fs::create_dir(fixture.path(root)).unwrap();
            for (name, content) in files {
                let path = fixture.path(root).join(name);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, content).unwrap();
            }
        }
        fixture
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn start_at(&self, time: &str, server: &str, recreate: bool, max_changes: usize) -> anyhow::Result<()> {
        let changes = Cell::new(0);
        let before_change = || {
            changes.set(changes.get() + 1);
            if changes.get() > max_changes { Err(io::Error::other("interrupted")) } else { Ok(()) }
        };
        let log = |line| self.log.borrow_mut().push(line);
        let files = StartupFiles { skel: &self.path("skel"), log: &log, before_change: &before_change };
        files.create(&self.path("home"), &server.parse().unwrap(), recreate, time.parse().unwrap())
    }

    fn start(&self, server: &str, recreate: bool) {
        self.start_at("2026-11-18T09:30:00Z", server, recreate, usize::MAX).unwrap();
    }

    fn home(&self) -> Tree {
        tree(&self.path("home"))
    }

    /// Returns the home without the record.
    fn files(&self) -> Tree {
        let mut files = self.home();
        files.retain(|name, _| !name.starts_with(record::OWN_FILE_PREFIX));
        files
    }

    fn logged(&self, text: &str) -> bool {
        self.log.borrow().iter().any(|line| line.contains(text))
    }
}

fn tree(root: &Path) -> Tree {
    let mut all = Tree::new();
    for entry in fs::read_dir(root).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            all.extend(tree(&entry.path()).into_iter().map(|(path, content)| (format!("{name}/{path}"), content)));
        } else if kind.is_symlink() {
            all.insert(name, format!("-> {}", fs::read_link(entry.path()).unwrap().display()));
        } else {
            all.insert(name, fs::read_to_string(entry.path()).unwrap());
        }
    }
    all
}

fn expect(files: &[(&str, &str)]) -> Tree {
    files.iter().map(|(name, content)| ((*name).to_owned(), (*content).to_owned())).collect()
}

const SKEL: [(&str, &str); 3] = [(".bashrc", "image"), (".config/app/rc", "image"), (".profile", "image")];
const OLD: [(&str, &str); 4] =
    [(".bashrc", "mine"), (".config/app/rc", "mine"), (".zshrc", "mine"), ("work/.profile", "kept")];

#[test]
fn new_home_gets_the_files_of_the_image() {
    let fixture = Fixture::new(&[], &SKEL);
    fs::set_permissions(fixture.path("skel/.profile"), fs::Permissions::from_mode(0o4600)).unwrap();
    symlink(".bashrc", fixture.path("skel/.link")).unwrap();
    fs::create_dir_all(fixture.path("home/lost+found/#1")).unwrap();
    fs::create_dir_all(fixture.path("home/mounts/data")).unwrap();
    fixture.start("uid-1", false);
    let mut all = expect(&SKEL);
    all.insert(".link".into(), "-> .bashrc".into());
    assert_eq!(fixture.home(), all);
    assert_eq!(fs::metadata(fixture.path("home/.profile")).unwrap().permissions().mode() & 0o7777, 0o600);
    assert!(fixture.logged("created 4 startup files"));

    fs::remove_file(fixture.path("home/.bashrc")).unwrap();
    all.remove(".bashrc");
    fixture.start("uid-1", false);
    assert_eq!(fixture.home(), all);
}

#[test]
fn old_home_is_not_changed_without_request() {
    for files in [&OLD[..], &[("deep/down/note", "mine")], &[(".bash_history", "mine")]] {
        let fixture = Fixture::new(files, &SKEL);
        fixture.start("uid-1", false);
        assert_eq!(fixture.home(), expect(files));
    }
}

#[test]
fn image_without_skel_leaves_a_new_home_empty() {
    let fixture = Fixture::new(&[], &[]);
    fs::remove_dir(fixture.path("skel")).unwrap();
    fixture.start("uid-1", false);
    assert_eq!(fixture.home(), Tree::new());
}

/// The files after the startup files in [`OLD`] were replaced.
fn recreated() -> Tree {
    expect(&[
        (".bashrc", "image"),
        (".config/app/rc", "mine"),
        (".profile", "image"),
        (&format!("{BACKUP}/.bashrc"), "mine"),
        (&format!("{BACKUP}/.zshrc"), "mine"),
        ("work/.profile", "kept"),
    ])
}

#[test]
fn recreate_keeps_the_old_files_in_a_backup() {
    let fixture = Fixture::new(&OLD, &SKEL);
    fixture.start("uid-1", true);
    assert_eq!(fixture.files(), recreated());
    assert_eq!(fs::metadata(fixture.path("home").join(BACKUP)).unwrap().permissions().mode() & 0o777, 0o700);
    assert!(fixture.logged(&format!("moved 2 startup files to {BACKUP}")));
}

#[test]
fn recreate_happens_once_per_server() {
    let fixture = Fixture::new(&OLD, &SKEL);
    fixture.start("uid-1", true);
    fs::write(fixture.path("home/.bashrc"), "edited").unwrap();
    let edited = fixture.home();
    fixture.start("uid-1", true);
    fixture.start("uid-2", false);
    assert_eq!(fixture.home(), edited);

    // Another server in the same second, and the first one afterwards.
    fixture.start("uid-2", true);
    let second = fixture.home();
    assert_eq!((second[".bashrc"].as_str(), second[&format!("{BACKUP}-2/.bashrc")].as_str()), ("image", "edited"));
    fixture.start("uid-1", true);
    assert_eq!(fixture.home(), second);
}

#[test]
fn recreate_without_old_files_makes_no_backup() {
    let fixture = Fixture::new(&[("work", "mine")], &SKEL);
    fixture.start("uid-1", true);
    assert_eq!(fixture.files(), expect(&[&SKEL[..], &[("work", "mine")]].concat()));
}

#[test]
fn interrupted_start_is_continued_by_the_next_one() {
    for next_server in ["uid-1", "uid-2"] {
        for changes in 0.. {
            let fixture = Fixture::new(&OLD, &SKEL);
            let interrupted = fixture.start_at("2026-11-18T09:30:00Z", "uid-1", true, changes).is_err();
            let contents: Vec<String> = fixture.home().into_values().collect();
            assert_eq!(contents.iter().filter(|content| *content == "mine").count(), 3, "after {changes} changes");

            fixture.start(next_server, next_server == "uid-1");
            let is_recorded = changes >= 2;
            if next_server == "uid-1" || is_recorded {
                assert_eq!(fixture.files(), recreated(), "after {changes} changes");
            } else {
                assert_eq!(fixture.files(), expect(&OLD), "after {changes} changes");
            }
            if !interrupted {
                assert!(changes > 8);
                break;
            }
        }
    }
}

#[test]
fn interrupted_copy_into_a_new_home_is_continued_by_the_next_start() {
    for changes in 0.. {
        let fixture = Fixture::new(&[], &SKEL);
        let interrupted = fixture.start_at("2026-11-18T09:30:00Z", "uid-1", false, changes).is_err();
        for (name, content) in fixture.files() {
            assert_eq!(content, "image", "{name} after {changes} changes");
        }
        fixture.start("uid-1", false);
        assert_eq!(fixture.home(), expect(&SKEL), "after {changes} changes");
        if !interrupted {
            break;
        }
    }
}

#[test]
fn link_is_moved_and_its_target_kept() {
    let fixture = Fixture::new(&[], &SKEL);
    fs::write(fixture.path("outside/bashrc"), "mine").unwrap();
    symlink("../outside/bashrc", fixture.path("home/.bashrc")).unwrap();
    symlink("missing", fixture.path("home/.profile")).unwrap();
    fixture.start("uid-1", true);
    let files = fixture.files();
    assert_eq!((files[".bashrc"].as_str(), files[".profile"].as_str()), ("image", "image"));
    assert_eq!(files[&format!("{BACKUP}/.bashrc")], "-> ../outside/bashrc");
    assert_eq!(tree(&fixture.path("outside")), expect(&[("bashrc", "mine")]));
}

#[test]
fn links_to_directories_are_not_followed() {
    let fixture = Fixture::new(&[("work", "mine")], &SKEL);
    fs::write(fixture.path("outside/secret"), "other").unwrap();
    symlink("../outside", fixture.path("home/.config")).unwrap();
    symlink("../outside", fixture.path("skel/.ssh")).unwrap();
    fixture.start("uid-1", true);
    let files = fixture.files();
    assert_eq!((files[".config"].as_str(), files[".ssh"].as_str()), ("-> ../outside", "-> ../outside"));
    assert_eq!(tree(&fixture.path("outside")), expect(&[("secret", "other")]));
    assert!(fixture.logged("skipped .config of /etc/skel: the home has another entry of this name"));
}

#[test]
fn skel_itself_may_be_a_link() {
    let fixture = Fixture::new(&[], &SKEL);
    fs::rename(fixture.path("skel"), fixture.path("image")).unwrap();
    symlink("image", fixture.path("skel")).unwrap();
    fixture.start("uid-1", false);
    assert_eq!(fixture.home(), expect(&SKEL));
}

#[test]
fn backup_directory_that_is_a_link_is_not_followed() {
    let fixture = Fixture::new(&OLD, &SKEL);
    let record = format!(r#"{{"pending":{{"server":"uid-1","step":{{"move":{{"backup":"{BACKUP}"}}}}}}}}"#);
    fs::write(fixture.path("home/.odc-startup-files.json"), record).unwrap();
    symlink("../outside", fixture.path("home").join(BACKUP)).unwrap();
    let before = fixture.home();
    fixture.start_at("2026-11-18T09:30:00Z", "uid-1", true, usize::MAX).unwrap_err();
    assert_eq!((fixture.home(), tree(&fixture.path("outside"))), (before, Tree::new()));
}

#[test]
fn home_with_an_invalid_record_is_not_changed() {
    for record in ["", "{", r#"{"pending":{"step":{"move":{"backup":"../outside"}}}}"#] {
        let fixture = Fixture::new(&OLD, &SKEL);
        fs::write(fixture.path("home/.odc-startup-files.json"), record).unwrap();
        let before = fixture.home();
        let error = fixture.start_at("2026-11-18T09:30:00Z", "uid-1", true, usize::MAX).unwrap_err();
        assert_eq!((fixture.home(), error.to_string().contains("move it away")), (before, true), "{error}");
    }
}

#[test]
fn entries_beyond_the_limits_are_skipped() {
    let fixture = Fixture::new(&[], &[("a/b/c/file", "deep"), ("a/b/c/d/file", "deeper"), ("small", "x")]);
    fs::write(fixture.path("skel/large"), vec![b'x'; 1 << 20]).unwrap();
    mknodat(CWD, fixture.path("skel/pipe"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    fixture.start("uid-1", false);
    assert_eq!(fixture.home(), expect(&[("a/b/c/file", "deep"), ("small", "x")]));
    for line in ["a/b/c/d of /etc/skel: more than 4 levels", "large of", "pipe of /etc/skel: not a file"] {
        assert!(fixture.logged(line), "{line}: {:?}", fixture.log);
    }

    let fixture = Fixture::new(&[], &[]);
    for number in 0..300 {
        fs::write(fixture.path("skel").join(format!("{number:03}")), "x").unwrap();
    }
    fixture.start("uid-1", false);
    assert_eq!(fixture.home().len(), MAX_ENTRIES);
    assert!(fixture.logged("skipped 256 of /etc/skel: more than 256 entries"));
}

#[test]
fn directory_with_the_name_of_a_startup_file_is_kept() {
    let fixture = Fixture::new(&[(".bashrc/mine", "mine")], &SKEL);
    fixture.start("uid-1", true);
    assert_eq!(fixture.files()[".bashrc/mine"], "mine");
}
