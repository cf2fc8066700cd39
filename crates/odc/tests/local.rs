//! Error messages and exit codes of `odc local`.

#![expect(clippy::unwrap_used, reason = "a failing helper fails the test")]

use std::path::Path;
use std::process::Command;

struct Outcome {
    code: Option<i32>,
    stderr: String,
}

fn odc(directory: &Path, arguments: &[&str]) -> Outcome {
    run(Command::new(env!("CARGO_BIN_EXE_odc")).args(["local", "--dir"]).arg(directory).args(arguments))
}

fn run(command: &mut Command) -> Outcome {
    let output = command.output().unwrap();
    Outcome { code: output.status.code(), stderr: String::from_utf8(output.stderr).unwrap() }
}

/// Asserts the exit code and that stderr contains every message.
fn check(outcome: &Outcome, code: i32, messages: &[&str]) {
    assert_eq!(outcome.code, Some(code), "{}", outcome.stderr);
    for message in messages {
        assert!(outcome.stderr.contains(message), "{message:?} is not in\n{}", outcome.stderr);
    }
}

#[test]
fn invalid_options_are_usage_errors() {
    let temp = tempfile::tempdir().unwrap();
    for (arguments, message) in [
        (&["up", "--network", "192.168.0.0/16"][..], "expected 10.x.0.0/16"),
        (&["up", "--nodes", "many"][..], "invalid value 'many'"),
        (&["up", "--gpus", "65"][..], "65 is not in 0..=64"),
        (&["up", "--kubeconfig", "x", "--nodes", "2"][..], "cannot be used with"),
        (&["fly"][..], "unrecognized subcommand 'fly'"),
    ] {
        check(&odc(temp.path(), arguments), 2, &[message]);
    }
}

#[test]
fn too_many_nodes_are_rejected_with_a_hint() {
    let temp = tempfile::tempdir().unwrap();
    check(&odc(temp.path(), &["up", "--nodes", "40"]), 1, &["the maximum is 32", "--simulated-nodes 40"]);
    assert!(!temp.path().join("cluster.json").exists());
}

#[test]
fn up_with_nodes_requires_root() {
    // A copy that an unprivileged user can execute.
    let temp = tempfile::tempdir().unwrap();
    std::fs::set_permissions(temp.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let binary = temp.path().join("odc");
    std::fs::copy(env!("CARGO_BIN_EXE_odc"), &binary).unwrap();
    let root = std::fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0);
    let mut command = Command::new(if root { "setpriv" } else { "env" });
    if root {
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]);
    }
    command.arg(&binary).args(["local", "--dir"]).arg(temp.path().join("cluster")).arg("up");
    check(&run(&mut command), 1, &["needs root", "--kubeconfig PATH"]);
    assert!(!temp.path().join("cluster").exists());
}

#[test]
fn state_of_another_version_is_rejected_and_kept() {
    let temp = tempfile::tempdir().unwrap();
    let settings = r#"{"format": 99, "kubernetes": "v9.9.9"}"#;
    std::fs::write(temp.path().join("cluster.json"), settings).unwrap();
    for command in ["up", "status", "env"] {
        check(&odc(temp.path(), &[command]), 1, &["another version", "format 99, v9.9.9", "./dev reset"]);
    }
    check(&odc(temp.path(), &["down"]), 0, &["Its state is kept"]);
    assert_eq!(std::fs::read_to_string(temp.path().join("cluster.json")).unwrap(), settings);
}

#[test]
fn reset_refuses_to_delete_other_directories() {
    let temp = tempfile::tempdir().unwrap();
    std::fs::write(temp.path().join("thesis.txt"), "years of work").unwrap();
    check(&odc(temp.path(), &["reset"]), 1, &["is not the state directory of a local cluster", "nothing was deleted"]);
    assert!(temp.path().join("thesis.txt").exists());
}

#[test]
fn commands_report_that_no_cluster_is_running() {
    let temp = tempfile::tempdir().unwrap();
    let directory = temp.path().join("none");
    for arguments in
        [&["status"][..], &["env"], &["logs", "etcd"], &["node", "stop", "n1"], &["gpu", "fail", "n1", "0"]]
    {
        check(&odc(&directory, arguments), 1, &["no local cluster is running", "./dev up"]);
    }
    check(&odc(&directory, &["down"]), 0, &["nothing to stop"]);
    check(&odc(&directory, &["reset"]), 0, &["nothing to delete"]);
    assert!(!directory.exists());
}

#[test]
fn unusable_kubeconfig_is_reported() {
    let temp = tempfile::tempdir().unwrap();
    let directory = temp.path().join("none");
    check(&odc(&directory, &["up", "--kubeconfig", "/no/such/file"]), 1, &["cannot read kubeconfig /no/such/file"]);
    let mut unset = Command::new(env!("CARGO_BIN_EXE_odc"));
    unset.args(["local", "up", "--existing", "--dir"]).arg(&directory).env_remove("KUBECONFIG");
    check(&run(&mut unset), 1, &["requires KUBECONFIG, which is not set", "--kubeconfig PATH"]);

    let unreachable = temp.path().join("unreachable.yaml");
    let text = "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]\n\
                users: [{name: u, user: {}}]\ncontexts: [{name: x, context: {cluster: c, user: u}}]\ncurrent-context: x\n";
    std::fs::write(&unreachable, text).unwrap();
    let unreachable = unreachable.display().to_string();
    check(
        &odc(&directory, &["up", "--kubeconfig", &unreachable]),
        1,
        &["does not respond", &unreachable, "version` works"],
    );
}

#[test]
fn port_in_use_is_reported_with_its_owner() {
    let temp = tempfile::tempdir().unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    // Settings of a cluster on loopback whose API server uses the port of this test.
    let ports: Vec<String> = [
        "etcd",
        "etcdPeer",
        "etcdHealth",
        "controllerManager",
        "scheduler",
        "dns",
        "dnsHealth",
        "dnsReady",
        "registry",
        "postgres",
        "kwok",
    ]
    .iter()
    .map(|name| format!("\"{name}\": 1"))
    .collect();
    let settings = format!(
        r#"{{"format": 2, "kubernetes": "v1.36.3", "network": "loopback", "nodes": 0, "gpus": 0, "simulatedNodes": 0,
            "ports": {{"api": {port}, {}}}, "externalKubeconfig": null, "stopped": []}}"#,
        ports.join(", ")
    );
    std::fs::write(temp.path().join("cluster.json"), settings).unwrap();
    let owner = format!("(process {})", std::process::id());
    check(&odc(temp.path(), &["up", "--nodes", "0"]), 1, &["which apiserver needs", &port.to_string(), &owner]);
}
