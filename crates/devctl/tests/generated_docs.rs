//! Checks that the generated docs match the command line.

#![expect(clippy::unwrap_used, reason = "an unreadable page fails the test")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Generates docs with the real program.
fn generate(format: &str, path: &Path) {
    let status = Command::new(env!("CARGO_BIN_EXE_devctl")).args(["generate", format]).arg(path).status().unwrap();
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
fn markdown_page_is_current() {
    let directory = tempfile::tempdir().unwrap();
    let new = directory.path().join("devctl.md");
    generate("markdown", &new);
    let (new, old) =
        (std::fs::read_to_string(new).unwrap(), std::fs::read_to_string(root().join("docs/reference/cli.md")).unwrap());
    assert!(new == old, "docs/reference/cli.md is outdated; run `devctl generate markdown docs/reference/cli.md`");
}

#[test]
fn man_pages_are_current() {
    let directory = tempfile::tempdir().unwrap();
    generate("man", directory.path());
    let (new, old) = (files(directory.path()), files(&root().join("docs/man")));
    assert_eq!(new.keys().collect::<Vec<_>>(), old.keys().collect::<Vec<_>>());
    for (name, text) in &new {
        assert!(*text == old[name], "docs/man/{name} is outdated; run `devctl generate man docs/man`");
    }
}

#[test]
fn link_named_kubectl_odc_is_a_plugin() {
    let directory = tempfile::tempdir().unwrap();
    let link = directory.path().join("kubectl-odc");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_devctl"), &link).unwrap();
    let output = Command::new(&link).args(["list", "--help"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("Usage: kubectl odc list"), "{text}");
    let output = Command::new(&link).arg("lst").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("list"), "a similar command is suggested");
}

#[test]
fn version_flag_prints_the_commit() {
    let output = Command::new(env!("CARGO_BIN_EXE_devctl")).arg("--version").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("devctl 0.") && text.trim_end().ends_with(')'), "{text}");
}
