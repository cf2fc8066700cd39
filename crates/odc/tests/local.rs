//! `odc local` given wrong input or a bad situation: a clear sentence, the way out, and nothing changed.

#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

use std::path::Path;
use std::process::Command;

struct Ended {
    code: Option<i32>,
    stderr: String,
}

fn odc(directory: &Path, arguments: &[&str]) -> Ended {
    run(Command::new(env!("CARGO_BIN_EXE_odc")).args(["local", "--dir"]).arg(directory).args(arguments))
}

fn run(command: &mut Command) -> Ended {
    let output = command.output().unwrap();
    Ended { code: output.status.code(), stderr: String::from_utf8(output.stderr).unwrap() }
}

/// Every word must be there.
fn check(ended: &Ended, code: i32, words: &[&str]) {
    assert_eq!(ended.code, Some(code), "{}", ended.stderr);
    for word in words {
        assert!(ended.stderr.contains(word), "{word:?} is not in\n{}", ended.stderr);
    }
}

#[test]
fn wrong_options_are_usage_errors() {
    let place = tempfile::tempdir().unwrap();
    for (arguments, word) in [
        (&["up", "--network", "192.168.0.0/16"][..], "give a whole 10.x.0.0/16"),
        (&["up", "--nodes", "many"][..], "invalid value 'many'"),
        (&["up", "--gpus", "65"][..], "65 is not in 0..=64"),
        (&["up", "--kubeconfig", "x", "--nodes", "2"][..], "cannot be used with"),
        (&["fly"][..], "unrecognized subcommand 'fly'"),
    ] {
        check(&odc(place.path(), arguments), 2, &[word]);
    }
}

#[test]
fn too_many_nodes_are_refused_with_a_hint() {
    let place = tempfile::tempdir().unwrap();
    check(&odc(place.path(), &["up", "--nodes", "40"]), 1, &["the most is 32", "--simulated-nodes 40"]);
    assert!(!place.path().join("cloud.json").exists());
}

#[test]
fn somebody_who_is_not_root_is_told_so() {
    // A copy in a place everybody can walk to.
    let place = tempfile::tempdir().unwrap();
    std::fs::set_permissions(place.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let binary = place.path().join("odc");
    std::fs::copy(env!("CARGO_BIN_EXE_odc"), &binary).unwrap();
    let root = std::fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0);
    let mut command = Command::new(if root { "setpriv" } else { "env" });
    if root {
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]);
    }
    command.arg(&binary).args(["local", "--dir"]).arg(place.path().join("cloud")).arg("up");
    check(&run(&mut command), 1, &["needs root", "--kubeconfig PATH"]);
    assert!(!place.path().join("cloud").exists());
}

#[test]
fn a_directory_of_another_version_is_kept_as_it_is() {
    let place = tempfile::tempdir().unwrap();
    let other = r#"{"format": 99, "kubernetes": "v9.9.9"}"#;
    std::fs::write(place.path().join("cloud.json"), other).unwrap();
    for verb in ["up", "status", "env"] {
        check(&odc(place.path(), &[verb]), 1, &["another version", "format 99, v9.9.9", "./dev reset"]);
    }
    check(&odc(place.path(), &["down"]), 0, &["Its state is kept"]);
    assert_eq!(std::fs::read_to_string(place.path().join("cloud.json")).unwrap(), other);
}

#[test]
fn reset_deletes_only_what_is_a_clouds() {
    let place = tempfile::tempdir().unwrap();
    std::fs::write(place.path().join("thesis.txt"), "years of work").unwrap();
    check(&odc(place.path(), &["reset"]), 1, &["is not the state directory of a local cloud", "Nothing was deleted"]);
    assert!(place.path().join("thesis.txt").exists());
}

#[test]
fn nothing_runs_and_that_is_said() {
    let place = tempfile::tempdir().unwrap();
    let directory = place.path().join("none");
    for arguments in
        [&["status"][..], &["env"], &["logs", "etcd"], &["node", "stop", "n1"], &["gpu", "fail", "n1", "0"]]
    {
        check(&odc(&directory, arguments), 1, &["no local cloud is running", "./dev up"]);
    }
    check(&odc(&directory, &["down"]), 0, &["nothing to stop"]);
    check(&odc(&directory, &["reset"]), 0, &["nothing to delete"]);
    assert!(!directory.exists());
}

#[test]
fn a_kubeconfig_that_leads_nowhere_is_named() {
    let place = tempfile::tempdir().unwrap();
    let directory = place.path().join("none");
    check(&odc(&directory, &["up", "--kubeconfig", "/no/such/file"]), 1, &["there is no kubeconfig /no/such/file"]);
    let mut unset = Command::new(env!("CARGO_BIN_EXE_odc"));
    unset.args(["local", "up", "--existing", "--dir"]).arg(&directory).env_remove("KUBECONFIG");
    check(&run(&mut unset), 1, &["KUBECONFIG names, and it is not set", "--kubeconfig PATH"]);

    let dead = place.path().join("dead.yaml");
    let text = "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]\n\
                users: [{name: u, user: {}}]\ncontexts: [{name: x, context: {cluster: c, user: u}}]\ncurrent-context: x\n";
    std::fs::write(&dead, text).unwrap();
    let dead = dead.display().to_string();
    check(&odc(&directory, &["up", "--kubeconfig", &dead]), 1, &["does not answer", &dead, "version` works"]);
}

#[test]
fn a_taken_port_names_the_program_that_has_it() {
    let place = tempfile::tempdir().unwrap();
    let held = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = held.local_addr().unwrap().port();
    // A cloud on loopback whose API server wants the port this test holds.
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
        r#"{{"format": 1, "kubernetes": "v1.36.3", "network": "loopback", "nodes": 0, "gpus": 0, "simulatedNodes": 0,
            "ports": {{"api": {port}, {}}}, "existing": null, "stopped": []}}"#,
        ports.join(", ")
    );
    std::fs::write(place.path().join("cloud.json"), settings).unwrap();
    let own = format!("(process {})", std::process::id());
    check(&odc(place.path(), &["up", "--nodes", "0"]), 1, &["apiserver needs it", &port.to_string(), &own]);
}
