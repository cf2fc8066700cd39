//! `odc-agent install` with the real executable.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

const AGENT: &str = env!("CARGO_BIN_EXE_odc-agent");

#[test]
fn copy_is_executable_and_can_replace_itself() {
    let dir = tempfile::tempdir().unwrap();
    let to = dir.path().join("a/b/c");
    let copy = to.join("odc-agent");
    // The second time, the copy replaces itself.
    for agent in [AGENT, copy.to_str().unwrap()] {
        let output = Command::new(agent).arg("install").arg("--to").arg(&to).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        assert_eq!(fs::metadata(&copy).unwrap().permissions().mode() & 0o7777, 0o755);
        assert!(fs::read(&copy).unwrap() == fs::read(AGENT).unwrap(), "the copy differs");
        assert_eq!(fs::read_dir(&to).unwrap().count(), 3);
        for name in ["odc-status", "odc-keep-alive"] {
            let output = Command::new(to.join(name)).arg("--help").output().unwrap();
            let help = String::from_utf8(output.stdout).unwrap();
            assert!(help.contains(&format!("Usage: {name}")) && help.contains("Examples:"), "{help}");
        }
    }
}

#[test]
fn unwritable_directory_is_named() {
    let output = Command::new(AGENT).args(["install", "--to", "/dev/null/x"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("/dev/null/x"), "{error}");
}
