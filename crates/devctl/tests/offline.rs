//! devctl without a cluster: version, help, settings and the check of OpenSSH.

#![expect(clippy::unwrap_used, reason = "a failed setup fails the test")]

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};

/// Runs devctl with a kubeconfig and with `bin` of the home first in PATH.
fn devctl(home: &Path, arguments: &[&str]) -> Output {
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "work",
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "ada", "user": {"token": "x"}}],
        "contexts": [{"name": "work", "context": {"cluster": "c", "user": "ada", "namespace": "dev-ada"}}],
    });
    let file = home.join("kubeconfig");
    std::fs::write(&file, kubeconfig.to_string()).unwrap();
    let path = format!("{}:{}", home.join("bin").display(), std::env::var("PATH").unwrap_or_default());
    let mut command = Command::new(env!("CARGO_BIN_EXE_devctl"));
    command.env_clear().env("PATH", path).env("HOME", home).env("KUBECONFIG", file).current_dir(home);
    command.args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn install_program(home: &Path, name: &str, script: &str) {
    let path = home.join("bin").join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn version_reports_number_and_api() {
    let home = tempfile::tempdir().unwrap();
    let version: Value = serde_json::from_slice(&devctl(home.path(), &["version", "-o", "json"]).stdout).unwrap();
    assert_eq!(version["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(version["api"], "odc.dev/v1alpha1");
    let line = text(&devctl(home.path(), &["version"]).stdout);
    assert!(line.starts_with(concat!("devctl ", env!("CARGO_PKG_VERSION"))), "{line}");
}

#[test]
fn help_subcommand_equals_help_flag() {
    let home = tempfile::tempdir().unwrap();
    let (by_word, by_flag) = (devctl(home.path(), &["help", "create"]), devctl(home.path(), &["create", "--help"]));
    assert_eq!((by_word.status.code(), text(&by_word.stdout)), (Some(0), text(&by_flag.stdout)));
    assert!(text(&by_word.stdout).contains("--home-claim"));
    assert_eq!(devctl(home.path(), &["help", "nonsense"]).status.code(), Some(2));
}

#[test]
fn settings_and_contexts_have_json_output() {
    let home = tempfile::tempdir().unwrap();
    assert!(devctl(home.path(), &["config", "set", "create.flavor", "cpu"]).status.success());
    let view: Value = serde_json::from_slice(&devctl(home.path(), &["config", "view", "-o", "json"]).stdout).unwrap();
    let row = view.as_array().unwrap().iter().find(|row| row["key"] == "create.flavor").unwrap();
    assert_eq!(row["value"], "cpu");
    assert!(row["source"].as_str().unwrap().ends_with("devctl/config.yaml"), "{row}");
    let output = devctl(home.path(), &["config", "contexts", "-o", "json"]);
    let contexts: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        contexts,
        json!([{"name": "work", "current": true, "source": "kubeconfig", "backend": "kube", "namespace": null}])
    );
}

/// One version is too old, another passes unchecked host names to the shell.
#[test]
fn unsuitable_openssh_is_rejected() {
    let home = tempfile::tempdir().unwrap();
    install_program(home.path(), "ssh", "echo 'OpenSSH_7.9p1 Debian-10, OpenSSL 1.1.1' >&2");
    let output = devctl(home.path(), &["config-ssh", "--yes"]);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("OpenSSH 7.9 is too old; 8.1 is required"), "{stderr}");
    install_program(home.path(), "ssh", "echo 'OpenSSH_9.0p1' >&2");
    let stderr = text(&devctl(home.path(), &["config-ssh", "--yes"]).stderr);
    assert!(stderr.contains("update OpenSSH to 9.6"), "{stderr}");
    assert!(!home.path().join(".ssh/config").exists());
    install_program(home.path(), "ssh", "echo 'OpenSSH_9.0p1' >&2; [ \"$1\" = -V ] || exit 255");
    let output = devctl(home.path(), &["config-ssh", "--yes"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(home.path().join(".ssh/config").exists());
    assert!(devctl(home.path(), &["config-ssh", "--remove", "--yes"]).status.success());
    // After a removal, `create` does not offer it again.
    let view = text(&devctl(home.path(), &["config", "view", "-o", "json"]).stdout);
    assert!(view.contains(r#"{"key":"ssh.include","value":"false""#), "{view}");
}
