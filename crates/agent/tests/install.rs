//! `odc-agent install` by the real executable, and that the copy runs.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

const AGENT: &str = env!("CARGO_BIN_EXE_odc-agent");

#[test]
fn the_copy_is_whole_executable_and_replaced_while_it_runs() {
    let place = tempfile::tempdir().unwrap();
    let to = place.path().join("made/for/it");
    let copy = to.join("odc-agent");
    // The second time it is the copy that replaces itself.
    for agent in [AGENT, copy.to_str().unwrap()] {
        let output = Command::new(agent).arg("install").arg("--to").arg(&to).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        assert_eq!(fs::metadata(&copy).unwrap().permissions().mode() & 0o7777, 0o755);
        assert!(fs::read(&copy).unwrap() == fs::read(AGENT).unwrap(), "the copy differs");
        assert_eq!(fs::read_dir(&to).unwrap().count(), 3);
        for helper in ["odc-status", "odc-keep-alive"] {
            let output = Command::new(to.join(helper)).arg("--help").output().unwrap();
            let said = String::from_utf8(output.stdout).unwrap();
            assert!(said.contains(&format!("Usage: {helper}")) && said.contains("Examples:"), "{said}");
        }
    }
}

#[test]
fn a_place_that_takes_no_files_is_named() {
    let output = Command::new(AGENT).args(["install", "--to", "/dev/null/x"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("/dev/null/x"), "{said}");
}
