//! The program without a cluster: what it says about itself, its settings and the ssh it finds.

#![expect(clippy::unwrap_used, reason = "what cannot be set up fails the test")]

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};

/// devctl of somebody who has a kubeconfig, and these programs before all others.
fn devctl(home: &Path, words: &[&str]) -> Output {
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
    command.args(words).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn program(home: &Path, name: &str, script: &str) {
    let path = home.join("bin").join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn it_says_which_one_it_is() {
    let home = tempfile::tempdir().unwrap();
    let said: Value = serde_json::from_slice(&devctl(home.path(), &["version", "-o", "json"]).stdout).unwrap();
    assert_eq!(said["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(said["api"], "odc.dev/v1alpha1");
    let said = text(&devctl(home.path(), &["version"]).stdout);
    assert!(said.starts_with(concat!("devctl ", env!("CARGO_PKG_VERSION"))), "{said}");
}

#[test]
fn help_is_also_a_command() {
    let home = tempfile::tempdir().unwrap();
    let (by_word, by_flag) = (devctl(home.path(), &["help", "create"]), devctl(home.path(), &["create", "--help"]));
    assert_eq!((by_word.status.code(), text(&by_word.stdout)), (Some(0), text(&by_flag.stdout)));
    assert!(text(&by_word.stdout).contains("--home-claim"));
    assert_eq!(devctl(home.path(), &["help", "nonsense"]).status.code(), Some(2));
}

#[test]
fn settings_and_contexts_are_data_too() {
    let home = tempfile::tempdir().unwrap();
    assert!(devctl(home.path(), &["config", "set", "create.flavor", "cpu"]).status.success());
    let view: Value = serde_json::from_slice(&devctl(home.path(), &["config", "view", "-o", "json"]).stdout).unwrap();
    let row = view.as_array().unwrap().iter().find(|row| row["key"] == "create.flavor").unwrap();
    assert_eq!(row["value"], "cpu");
    assert!(row["from"].as_str().unwrap().ends_with("devctl/config.yaml"), "{row}");
    let said = devctl(home.path(), &["config", "contexts", "-o", "json"]);
    let contexts: Value = serde_json::from_slice(&said.stdout).unwrap();
    assert_eq!(
        contexts,
        json!([{"name": "work", "current": true, "from": "kubeconfig", "backend": "kube", "namespace": null}])
    );
}

/// An ssh that cannot be given a host's name, and one that would hand any name to a shell.
#[test]
fn an_ssh_that_will_not_do_is_named() {
    let home = tempfile::tempdir().unwrap();
    program(home.path(), "ssh", "echo 'OpenSSH_7.9p1 Debian-10, OpenSSL 1.1.1' >&2");
    let said = devctl(home.path(), &["config-ssh", "--yes"]);
    let words = text(&said.stderr);
    assert_eq!(said.status.code(), Some(1), "{words}");
    assert!(words.contains("ssh is OpenSSH 7.9, and 8.1 is needed"), "{words}");
    program(home.path(), "ssh", "echo 'OpenSSH_9.0p1' >&2");
    let words = text(&devctl(home.path(), &["config-ssh", "--yes"]).stderr);
    assert!(words.contains("Update OpenSSH to 9.6"), "{words}");
    assert!(!home.path().join(".ssh/config").exists());
    program(home.path(), "ssh", "echo 'OpenSSH_9.0p1' >&2; [ \"$1\" = -V ] || exit 255");
    let said = devctl(home.path(), &["config-ssh", "--yes"]);
    assert_eq!(said.status.code(), Some(0), "{}", text(&said.stderr));
    assert!(home.path().join(".ssh/config").exists());
    assert!(devctl(home.path(), &["config-ssh", "--remove", "--yes"]).status.success());
    // What was taken back is not offered again.
    let view = text(&devctl(home.path(), &["config", "view", "-o", "json"]).stdout);
    assert!(view.contains(r#"{"key":"ssh.include","value":"false""#), "{view}");
}
