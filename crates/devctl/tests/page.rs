//! What is written about the command line, compared with the command line.

#![expect(clippy::unwrap_used, reason = "a page that cannot be read fails the test")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Has the real program write them.
fn generated(what: &str, path: &Path) {
    let status = Command::new(env!("CARGO_BIN_EXE_devctl")).args(["generate", what]).arg(path).status().unwrap();
    assert!(status.success());
}

fn files(directory: &Path) -> BTreeMap<String, String> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let named = |path: PathBuf| {
        (path.file_name().unwrap().to_string_lossy().into_owned(), std::fs::read_to_string(path).unwrap())
    };
    entries.map(named).collect()
}

#[test]
fn the_page_is_the_one_of_this_command_line() {
    let directory = tempfile::tempdir().unwrap();
    let new = directory.path().join("devctl.md");
    generated("markdown", &new);
    let (new, old) =
        (std::fs::read_to_string(new).unwrap(), std::fs::read_to_string(root().join("docs/devctl.md")).unwrap());
    assert!(new == old, "docs/devctl.md differs; write it anew: devctl generate markdown docs/devctl.md");
}

#[test]
fn the_man_pages_are_those_of_this_command_line() {
    let directory = tempfile::tempdir().unwrap();
    generated("man", directory.path());
    let (new, old) = (files(directory.path()), files(&root().join("docs/man")));
    assert_eq!(new.keys().collect::<Vec<_>>(), old.keys().collect::<Vec<_>>());
    for (name, text) in &new {
        assert!(*text == old[name], "docs/man/{name} differs; write them anew: devctl generate man docs/man");
    }
}

#[test]
fn a_link_makes_it_a_plugin_of_kubectl() {
    let directory = tempfile::tempdir().unwrap();
    let link = directory.path().join("kubectl-odc");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_devctl"), &link).unwrap();
    let output = Command::new(&link).args(["list", "--help"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("Usage: kubectl odc list"), "{text}");
    let output = Command::new(&link).arg("lst").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("list"), "a near miss is suggested");
}

#[test]
fn the_version_has_its_commit() {
    let output = Command::new(env!("CARGO_BIN_EXE_devctl")).arg("--version").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("devctl 0.") && text.trim_end().ends_with(')'), "{text}");
}
