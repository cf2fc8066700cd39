//! Commands that create an operation and wait for it.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use odc_api::v1alpha1::{Desired, DiskAction};
use odc_tests::wait;
use serde_json::{Value, json};
use tokio::process::Command;

use super::super::fixture::{read, with_fixture};
use super::TIMEOUT;

fn succeeded(result: &Value) -> Value {
    json!({"phase": "Succeeded", "result": result})
}

fn failed(message: &str) -> Value {
    json!({"phase": "Failed", "conditions": [{"type": "Complete", "status": "False", "reason": "DiskInUse",
        "message": message, "lastTransitionTime": super::ago(1)}]})
}

#[tokio::test]
async fn operations_are_waited_for_and_print_what_they_created() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        fixture.create_home().await?;
        let run = async |words: &[&str], action: DiskAction, status: Value| {
            let (output, spec) = tokio::join!(fixture.ada(words), fixture.finish_operation(action, status));
            Ok::<_, anyhow::Error>((output?, spec?))
        };
        let words = ["disk", "snapshot", "home", "--note", "before the upgrade"];
        let (output, spec) = run(&words, DiskAction::Snapshot, succeeded(&json!({"point": "home-3"}))).await?;
        assert!(output.err.contains("Took restore point home-3 of disk home"), "{}", output.err);
        assert_eq!(output.success()?, "home-3\n");
        assert_eq!(spec.note.as_deref(), Some("before the upgrade"));

        let words = ["disk", "clone", "home", "copy", "--point", "home-1"];
        let (output, spec) = run(&words, DiskAction::Clone, succeeded(&json!({"disk": "copy"}))).await?;
        assert_eq!(output.success()?, "copy\n");
        assert_eq!(serde_json::to_value(spec.arguments)?, json!({"point": "home-1", "name": "copy"}));

        let words = ["disk", "rollback", "home", "home-1", "--yes", "-o", "json"];
        let (output, spec) = run(&words, DiskAction::Rollback, succeeded(&json!({"point": "home-4"}))).await?;
        assert!(output.err.contains("The previous data is in restore point home-4."), "{}", output.err);
        let operation: Value = serde_json::from_str(&output.success()?)?;
        assert_eq!((&operation["action"], &operation["phase"]), (&json!("Rollback"), &json!("Succeeded")));
        assert_eq!(spec.point().map(ToString::to_string).as_deref(), Some("home-1"));

        let words = ["disk", "restore", "home", "home-1", "/home/dev/src", "./notes.txt"];
        let (output, spec) = run(&words, DiskAction::Restore, succeeded(&json!({"point": "home-5"}))).await?;
        assert!(output.err.contains("Restored 2 paths of disk home from home-1."), "{}", output.err);
        assert_eq!(serde_json::to_value(spec.arguments)?["paths"], json!(["src", "notes.txt"]));

        let (output, _) = run(&["disk", "unlock", "home", "--yes"], DiskAction::Unlock, succeeded(&json!({}))).await?;
        assert_eq!((output.code, output.err.contains("Unlocked disk home")), (Some(0), true), "{}", output.err);

        let words = ["disk", "rollback", "home", "home-1", "--yes"];
        let (output, _) = run(&words, DiskAction::Rollback, failed("Disk home is mounted by pod box-0.")).await?;
        assert_eq!(output.code, Some(1));
        assert!(
            output.err.contains("rollback of disk home failed: Disk home is mounted by pod box-0\n"),
            "{}",
            output.err
        );
        Ok(())
    })
    .await
}

#[tokio::test]
async fn diff_prints_one_path_per_line_and_warns_about_truncation() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        fixture.create_home().await?;
        let diff = |truncated: bool| {
            let paths = json!(["A src/new.rs", "M notes.txt", "D old file"]);
            succeeded(
                &json!({"diff": {"added": 1, "removed": 1, "modified": 1, "paths": paths, "truncated": truncated}}),
            )
        };
        let run = async |words: &[&str], truncated: bool| {
            let (output, spec) =
                tokio::join!(fixture.ada(words), fixture.finish_operation(DiskAction::Diff, diff(truncated)));
            Ok::<_, anyhow::Error>((output?, spec?))
        };
        let (output, spec) = run(&["disk", "diff", "home", "home-1"], false).await?;
        assert_eq!(
            (output.out.as_str(), output.code),
            ("src/new.rs\nnotes.txt\nold file\n", Some(0)),
            "{}",
            output.err
        );
        assert!(output.err.contains("1 added, 1 removed, 1 modified"), "{}", output.err);
        assert_eq!(spec.arguments.and_then(|arguments| arguments.to), None);

        let (output, spec) = run(&["disk", "diff", "home", "home-1", "home-2", "--name-status"], true).await?;
        assert!(output.err.contains("warning: the list has only 3 of 3 changed paths"), "{}", output.err);
        assert_eq!(output.success()?, "A src/new.rs\nM notes.txt\nD old file\n");
        assert_eq!(serde_json::to_value(spec.arguments)?, json!({"point": "home-1", "to": "home-2"}));

        let (output, _) = run(&["disk", "diff", "home", "home-1", "-o", "json"], false).await?;
        let value: Value = serde_json::from_str(&output.success()?)?;
        assert_eq!(value["paths"][0], json!({"change": "Added", "path": "src/new.rs"}));
        Ok(())
    })
    .await
}

#[tokio::test]
async fn no_wait_prints_the_operation_and_timeout_leaves_it_running() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        fixture.create_home().await?;
        let name = fixture.ada(&["disk", "snapshot", "home", "--no-wait"]).await?.success()?;
        let operation = fixture.operations().get(name.trim()).await?;
        assert!(name.starts_with("home-snapshot-") && operation.spec.action == DiskAction::Snapshot, "{name}");
        let shown = fixture.ada(&["disk", "show", "home"]).await?.success()?;
        assert!(shown.contains(&format!("Snapshot Pending, 0s ago ({})", name.trim())), "{shown}");

        let timeout = fixture.ada(&["disk", "diff", "home", "home-1", "--timeout", "1s"]).await?;
        assert_eq!((timeout.code, timeout.err.contains("the operation continues")), (Some(6), true), "{}", timeout.err);
        assert_eq!(fixture.operations().list(&ListParams::default()).await?.items.len(), 2);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn rollback_hibernates_the_server_only_with_stop() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        fixture.create_home().await?;
        let spec = json!({"home": {"disk": "home"}, "idle": {"action": "Hibernate"}});
        fixture.server("ada", "box", spec, json!({"phase": "Running"})).await?;
        fixture.write_holder("box").await?;
        let refused = fixture.ada(&["disk", "rollback", "home", "home-1", "--yes"]).await?;
        assert_eq!((refused.code, refused.err.contains("--stop")), (Some(5), true), "{}", refused.err);
        assert_eq!(fixture.operations().list(&ListParams::default()).await?.items.len(), 0);

        let refused = fixture.ada(&["disk", "restore", "home", "home-1", "notes"]).await?;
        assert_eq!((refused.code, refused.err.contains("--stop")), (Some(5), true), "{}", refused.err);

        let servers = fixture.servers("ada");
        let operator = async {
            let stopped = wait::until("hibernation is requested", TIMEOUT, async || {
                let server = servers.get("box").await?;
                anyhow::ensure!(server.spec.desired == Desired::Hibernated, "not yet");
                Ok(server)
            })
            .await?;
            let status = json!({"status": {"phase": "Hibernated", "observedGeneration": stopped.metadata.generation}});
            servers.patch_status("box", &PatchParams::default(), &Patch::Merge(&status)).await?;
            fixture.finish_operation(DiskAction::Rollback, succeeded(&json!({}))).await
        };
        let words = ["disk", "rollback", "home", "home-1", "--yes", "--stop"];
        let (output, operation) = tokio::join!(fixture.ada(&words), operator);
        operation?;
        let output = output?;
        assert_eq!(output.code, Some(0), "{}", output.err);
        for words in ["Hibernated server box", "Rolled back disk home to home-1.", "devctl ssh box"] {
            assert!(output.err.contains(words), "{}", output.err);
        }
        Ok(())
    })
    .await
}

/// A program in place of ssh prints its arguments.
#[tokio::test]
async fn browse_connects_to_the_pod_with_its_host_key() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        fixture.create_home().await?;
        let bin = fixture.machine.home("ada").join("bin");
        std::fs::create_dir_all(&bin)?;
        std::fs::write(bin.join("ssh"), "#!/bin/sh\necho \"$@\"\nexit 7\n")?;
        std::fs::set_permissions(bin.join("ssh"), std::fs::Permissions::from_mode(0o755))?;
        let browse = async |words: &[&str]| {
            let mut command =
                fixture.machine.command("ada", &[&["disk", "browse", "home", "home-1"], words].concat())?;
            let path = std::env::var("PATH").unwrap_or_default();
            command.env("PATH", format!("{}:{path}", bin.display()));
            let output = Command::from(command).stdin(Stdio::null()).kill_on_drop(true).output().await?;
            Ok::<_, anyhow::Error>((String::from_utf8(output.stdout)?, output.status.code()))
        };
        let result = json!({"pod": "home-pod", "hostKey": odc_api::fixtures::KEY});
        let running = json!({"phase": "Running", "result": result});
        let words = ["--keep", "--", "cat", "notes"];
        let (output, spec) =
            tokio::join!(browse(&words), fixture.finish_operation(DiskAction::Browse, running.clone()));
        assert_eq!(spec?.point().map(ToString::to_string).as_deref(), Some("home-1"));
        let (arguments, code) = output?;
        assert_eq!(code, Some(7), "the exit status of ssh: {arguments}");
        assert!(arguments.ends_with("-l ada -- home-pod.browse.disk.odc cat notes\n"), "{arguments}");
        let hosts = fixture.machine.home("ada").join(".ssh/odc/known_hosts");
        assert!(read(&hosts)?.starts_with("home-pod.browse.disk.odc ssh-ed25519 "));

        // The open restore point is used again, and is not closed.
        let (arguments, _) = browse(&[]).await?;
        assert!(arguments.ends_with("-- home-pod.browse.disk.odc\n"), "{arguments}");
        let all = fixture.operations().list(&ListParams::default()).await?;
        let [open] = all.items.as_slice() else { anyhow::bail!("{all:?}") };
        assert!(open.name_any().starts_with("home-browse-"));

        // A restore point is closed after the session by default.
        fixture.operations().delete(&open.name_any(), &DeleteParams::default()).await?;
        let (output, spec) =
            tokio::join!(browse(&["--", "true"]), fixture.finish_operation(DiskAction::Browse, running));
        spec?;
        assert_eq!(output?.1, Some(7));
        assert_eq!(fixture.operations().list(&ListParams::default()).await?.items.len(), 0);
        assert_eq!(read(&hosts)?, "");
        Ok(())
    })
    .await
}
