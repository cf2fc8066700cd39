//! Disks: the default home of `create`, the commands of `devctl disk`, and completion. The tests write the statuses that
//! the operator would write.

mod operations;
mod terminal;

use std::time::Duration;

use kube::ResourceExt as _;
use kube::api::{Api, ListParams, Patch, PatchParams};
use odc_api::v1alpha1::{Disk, DiskAction, DiskOperation, DiskOperationSpec};
use odc_tests::wait;
use serde_json::{Value, json};

use super::fixture::{CommandOutput, Fixture, ago, with_fixture};

const TIMEOUT: Duration = Duration::from_secs(60);

impl Fixture<'_> {
    fn disks(&self, user: &str) -> Api<Disk> {
        Api::namespaced(self.plane.client.clone(), &format!("dev-{user}"))
    }

    fn operations(&self) -> Api<DiskOperation> {
        Api::namespaced(self.plane.client.clone(), "dev-ada")
    }

    async fn ada(&self, words: &[&str]) -> anyhow::Result<CommandOutput> {
        self.machine.devctl("ada", words).await
    }

    /// Runs a command of ada and parses its output.
    async fn ada_json(&self, words: &[&str]) -> anyhow::Result<Value> {
        let output = self.ada(&[words, &["-o", "json"]].concat()).await?.success();
        Ok(serde_json::from_str(&output.map_err(|error| error.context(words.join(" ")))?)?)
    }

    /// Creates the disk `home` of ada with two restore points.
    async fn create_home(&self) -> anyhow::Result<()> {
        self.ada(&["disk", "create", "home", "--size", "20Gi"]).await?.success()?;
        let point = |name: &str, age: i64| json!({"name": name, "at": ago(age), "reason": "Stop", "consistency": "Clean", "ready": true, "size": "20Gi"});
        let points = json!([point("home-2", 600), point("home-1", 7200)]);
        self.write_disk_status("home", json!({"phase": "Available", "claim": "home-x", "points": points})).await
    }

    async fn write_disk_status(&self, name: &str, status: Value) -> anyhow::Result<()> {
        let body = json!({"status": status});
        self.disks("ada").patch_status(name, &PatchParams::default(), &Patch::Merge(&body)).await?;
        Ok(())
    }

    /// Writes that a server holds the disk `home`.
    async fn write_holder(&self, server: &str) -> anyhow::Result<()> {
        let holder = json!({"server": server, "uid": "u", "since": ago(60), "used": true});
        self.write_disk_status("home", json!({"phase": "InUse", "holder": holder})).await
    }

    /// Waits for an operation without a status, writes one and returns the spec.
    async fn finish_operation(&self, action: DiskAction, status: Value) -> anyhow::Result<DiskOperationSpec> {
        let operations = self.operations();
        let new = wait::until("an operation is created", TIMEOUT, async || {
            let list = operations.list(&ListParams::default()).await?;
            let new = list.into_iter().find(|one| one.status.is_none() && one.spec.action == action);
            new.ok_or_else(|| anyhow::anyhow!("no operation {action:?}"))
        })
        .await?;
        let body = json!({"status": status});
        operations.patch_status(&new.name_any(), &PatchParams::default(), &Patch::Merge(&body)).await?;
        Ok(new.spec)
    }
}

#[tokio::test]
async fn create_uses_the_default_disk_and_creates_it_once() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        let dry_run = fixture.ada(&["create", "box", "-t", "cpu", "--dry-run"]).await?;
        assert!(dry_run.err.contains("disk home (20Gi) would be created"), "{}", dry_run.err);
        assert!(dry_run.success()?.contains("disk: home"));
        assert_eq!(fixture.disks("ada").get_opt("home").await?, None, "a dry run creates nothing");

        let created = fixture.ada(&["create", "box", "-t", "cpu"]).await?;
        assert!(created.err.contains("Created disk home (20Gi)"), "{}", created.err);
        assert_eq!(created.success()?, "box\n");
        let home = |server: odc_api::v1alpha1::DevServer| serde_json::to_value(server.spec.home);
        assert_eq!(home(fixture.servers("ada").get("box").await?)?, json!({"disk": "home"}));
        assert_eq!(fixture.disks("ada").get("home").await?.spec.size.to_string(), "20Gi");

        // The disk is in use, also while its server is hibernated.
        for phase in ["Running", "Hibernated"] {
            fixture.status("ada", "box", json!({"phase": phase})).await?;
            let refused = fixture.ada(&["create", "two", "-t", "cpu"]).await?;
            assert_eq!(refused.code, Some(5), "{}", refused.err);
            for words in ["disk home is used by server box", "--disk NAME", "--ephemeral"] {
                assert!(refused.err.contains(words), "{}", refused.err);
            }
        }
        for (name, flags) in
            [("two", &["--ephemeral"][..]), ("three", &["--disk", "none"]), ("four", &["--ephemeral-if-in-use"])]
        {
            let created = fixture.ada(&[&["create", name, "-t", "cpu"], flags].concat()).await?;
            let is_warned = created.err.contains("disk home is used by server box; the home directory");
            assert_eq!(is_warned, name == "four", "{}", created.err);
            created.success()?;
            assert_eq!(home(fixture.servers("ada").get(name).await?)?, json!({"ephemeral": "10Gi"}));
        }
        let reserved = fixture.ada(&["disk", "create", "none"]).await?;
        assert_eq!((reserved.code, reserved.err.contains("is reserved")), (Some(2), true), "{}", reserved.err);

        // The next server uses the disk of a finished one.
        fixture.status("ada", "box", json!({"phase": "Expired"})).await?;
        let next = fixture.ada(&["create", "next", "-t", "cpu", "--ephemeral-if-in-use"]).await?;
        assert!(!next.err.contains("Created disk"), "{}", next.err);
        next.success()?;
        assert_eq!(home(fixture.servers("ada").get("next").await?)?, json!({"disk": "home"}));
        Ok(())
    })
    .await
}

#[tokio::test]
async fn default_home_depends_on_settings_nodes_and_command() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        let home =
            async |words: &[&str]| Ok::<_, anyhow::Error>(fixture.ada_json(words).await?["spec"]["home"].clone());
        let job = ["submit", "-t", "cpu", "--name", "job", "--dry-run", "--", "true"];
        // The output format must precede the command.
        let job = fixture.ada(&[&["-o", "json"], &job[..]].concat()).await?.success()?;
        assert_eq!(serde_json::from_str::<Value>(&job)?["spec"]["home"], json!({"ephemeral": "10Gi"}));
        let gang = ["create", "gang", "-t", "h100", "-g", "16", "-d", "--dry-run"];
        assert_eq!(home(&gang).await?, json!({"ephemeral": "10Gi"}));
        assert_eq!(home(&["create", "box", "-t", "cpu", "--dry-run"]).await?, json!({"disk": "home"}));

        fixture.ada(&["config", "set", "create.disk", "work"]).await?.success()?;
        fixture.ada(&["config", "set", "create.diskSize", "5Gi"]).await?.success()?;
        let created = fixture.ada(&["create", "box", "-t", "cpu"]).await?;
        assert!(created.err.contains("Created disk work (5Gi)"), "{}", created.err);
        created.success()?;

        // A disk that is named must exist; its display name is enough.
        let missing = fixture.ada(&["create", "two", "-t", "cpu", "--disk", "data"]).await?;
        assert_eq!((missing.code, missing.err.contains("disk data not found")), (Some(3), true), "{}", missing.err);
        fixture.ada(&["disk", "create", "data", "--display-name", "My data"]).await?.success()?;
        fixture.ada(&["create", "two", "-t", "cpu", "--disk", "My data"]).await?.success()?;
        let two = fixture.servers("ada").get("two").await?.spec.home;
        assert_eq!(serde_json::to_value(two)?, json!({"disk": "data"}));

        fixture.ada(&["disk", "create", "gone"]).await?.success()?;
        fixture.ada(&["disk", "delete", "gone"]).await?.success()?;
        let deleted = fixture.ada(&["create", "three", "-t", "cpu", "--disk", "gone"]).await?;
        assert_eq!(
            (deleted.code, deleted.err.contains("devctl disk undelete gone")),
            (Some(5), true),
            "{}",
            deleted.err
        );
        Ok(())
    })
    .await
}

#[tokio::test]
async fn disk_is_created_renamed_resized_deleted_and_undeleted() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        let none = fixture.ada(&["disk", "list"]).await?;
        assert_eq!((none.out.as_str(), none.err.starts_with("No disks found")), ("", true), "{}", none.err);
        fixture.create_home().await?;
        let data = fixture.ada_json(&["disk", "create", "data", "--size", "10Gi", "--daily", "7"]).await?;
        assert_eq!((&data["name"], &data["size"], &data["phase"]), (&json!("data"), &json!("10Gi"), &json!("Pending")));
        assert_eq!(fixture.disks("ada").get("data").await?.spec.schedule.daily, 7);
        let taken = fixture.ada(&["disk", "create", "data"]).await?;
        assert_eq!((taken.code, taken.err.contains("disk data already exists")), (Some(5), true), "{}", taken.err);

        let list = fixture.ada_json(&["disk", "list"]).await?;
        let names: Vec<&Value> = list.as_array().into_iter().flatten().map(|disk| &disk["name"]).collect();
        assert_eq!(names, ["data", "home"]);
        assert_eq!(fixture.ada(&["disk", "ls", "-o", "name"]).await?.success()?, "data\nhome\n");
        let points = fixture.ada_json(&["disk", "points", "home"]).await?;
        assert_eq!((&points[0]["name"], &points[0]["at"]), (&json!("home-2"), &json!(ago(600))));
        let files = fixture.ada(&["disk", "files", "home"]).await?;
        assert_eq!(files.code, Some(3), "{}", files.err);
        assert!(files.err.contains("devctl disk browse home home-2"), "{}", files.err);

        fixture.ada(&["disk", "rename", "data", "Training data"]).await?.success()?;
        let shown = fixture.ada(&["disk", "show", "Training data"]).await?.success()?;
        assert!(shown.contains("Training data") && shown.contains("7 daily"), "{shown}");
        let taken = fixture.ada(&["disk", "rename", "home", "data"]).await?;
        assert_eq!(taken.code, Some(5), "{}", taken.err);
        fixture.ada(&["disk", "resize", "data", "20Gi"]).await?.success()?;
        let smaller = fixture.ada(&["disk", "resize", "data", "5Gi"]).await?;
        assert_eq!((smaller.code, smaller.err.contains("size cannot be lowered")), (Some(2), true), "{}", smaller.err);

        let deleted = fixture.ada(&["disk", "delete", "data"]).await?;
        assert!(
            deleted.err.contains("kept for 30 days") && deleted.err.contains("devctl disk undelete data"),
            "{}",
            deleted.err
        );
        assert!(fixture.disks("ada").get("data").await?.spec.deleted);
        assert_eq!(fixture.ada_json(&["disk", "undelete", "data"]).await?["deleted"], json!(false));

        let unconfirmed = fixture.ada(&["disk", "delete", "data", "--purge"]).await?;
        assert_eq!((unconfirmed.code, unconfirmed.err.contains("--yes")), (Some(2), true), "{}", unconfirmed.err);
        fixture.ada(&["disk", "delete", "data", "--purge", "--yes"]).await?.success()?;
        assert_eq!(fixture.disks("ada").get_opt("data").await?, None, "without a finalizer the object is gone");

        // A disk with a server is kept.
        fixture
            .server(
                "ada",
                "box",
                json!({"home": {"disk": "home"}, "idle": {"action": "Hibernate"}}),
                json!({"phase": "Hibernated"}),
            )
            .await?;
        let used = fixture.ada(&["disk", "delete", "home"]).await?;
        assert_eq!((used.code, used.err.contains("server box uses it")), (Some(5), true), "{}", used.err);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn unknown_and_ambiguous_names_are_errors() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        fixture.create_home().await?;
        for (words, code, hint) in [
            (&["disk", "show", "hone"][..], 3, "did you mean home?"),
            (&["disk", "points", "zebra"], 3, "devctl disk list"),
            (&["disk", "rollback", "home", "home-3", "--yes"], 3, "did you mean home-"),
            (&["disk", "diff", "home", "home-1", "nothing"], 3, "devctl disk points home"),
            (&["disk", "create", "My_Disk"], 2, "lowercase letters"),
            (&["disk", "clone", "home", "home"], 5, "choose another name"),
            (&["disk", "restore", "home", "home-1", "/etc/passwd"], 2, "below the home directory"),
            (&["disk", "rollback", "home", "home-1"], 2, "--yes"),
            (&["disk", "unlock", "home"], 2, "--yes"),
        ] {
            let output = fixture.ada(words).await?;
            assert_eq!((output.code, output.err.contains(hint)), (Some(code), true), "{words:?}: {}", output.err);
        }
        // kubectl can give two disks the same display name.
        for name in ["a", "b"] {
            let object = json!({"apiVersion": "odc.dev/v1alpha1", "kind": "Disk", "metadata": {"name": name, "namespace": "dev-ada"},
                "spec": {"size": "1Gi", "displayName": "Twin"}});
            odc_tests::manifests::apply(&fixture.plane.client, &object).await?;
        }
        let ambiguous = fixture.ada(&["disk", "show", "Twin"]).await?;
        assert_eq!((ambiguous.code, ambiguous.err.contains("one of a, b")), (Some(2), true), "{}", ambiguous.err);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn disk_and_point_names_are_completed() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        fixture.create_home().await?;
        fixture.ada(&["disk", "create", "data"]).await?.success()?;
        let complete = |words: &[&str]| -> anyhow::Result<Vec<String>> {
            let mut command = fixture.machine.command("ada", &[])?;
            command.env("COMPLETE", "bash").env("_CLAP_COMPLETE_INDEX", (words.len() - 1).to_string());
            command.env("_CLAP_IFS", "\n").env("_CLAP_COMPLETE_COMP_TYPE", "9").env("_CLAP_COMPLETE_SPACE", "true");
            let output = command.arg("--").args(words).output()?;
            let mut names: Vec<String> = String::from_utf8(output.stdout)?.lines().map(str::to_owned).collect();
            names.sort();
            Ok(names)
        };
        assert_eq!(complete(&["devctl", "disk", "show", "h"])?, ["home"]);
        assert_eq!(complete(&["devctl", "create", "--disk", "d"])?, ["data"]);
        assert_eq!(complete(&["devctl", "disk", "diff", "home", "home"])?, ["home-1", "home-2"]);
        assert_eq!(complete(&["devctl", "disk", "diff", "data", "h"])?, Vec::<String>::new());
        Ok(())
    })
    .await
}
