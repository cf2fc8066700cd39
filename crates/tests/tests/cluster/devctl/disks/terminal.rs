//! Prompts about disks on a real terminal.

use kube::api::ListParams;
use odc_tests::terminal::{CTRL_C, DOWN, ENTER, Terminal};
use serde_json::json;
use tokio::task::block_in_place;

use super::super::fixture::{Fixture, with_fixture};

fn terminal(fixture: &Fixture<'_>, words: &[&str]) -> anyhow::Result<Terminal> {
    Terminal::start(&fixture.machine.command("ada", words)?, 120, 40)
}

#[tokio::test(flavor = "multi_thread")]
async fn create_prompts_for_another_home_if_the_disk_is_in_use() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        fixture.create_home().await?;
        fixture.ada(&["disk", "create", "data", "--size", "5Gi"]).await?.success()?;
        let spec = json!({"home": {"disk": "home"}, "idle": {"action": "Hibernate"}});
        fixture.server("ada", "box", spec, json!({"phase": "Running"})).await?;
        let home = async |name: &str| {
            let server = fixture.servers("ada").get(name).await?;
            Ok::<_, anyhow::Error>(serde_json::to_value(server.spec.home)?)
        };
        let start = |name: &str| terminal(fixture, &["create", name, "-t", "cpu", "--no-wait"]);

        let mut other = start("other")?;
        let screen = block_in_place(|| other.wait_for("cancel"))?;
        assert!(screen.contains("Disk home is used by server box.") && screen.contains("disk data  5Gi"), "{screen}");
        other.type_keys(ENTER)?;
        assert_eq!(block_in_place(|| other.wait_exit())?.0, Some(0));
        assert_eq!(home("other").await?, json!({"disk": "data"}));

        // Now both disks are in use.
        let mut new = start("new")?;
        block_in_place(|| new.wait_for("> create a new disk"))?;
        new.type_keys(ENTER)?;
        block_in_place(|| new.wait_for("Disk name?"))?;
        new.type_keys(ENTER)?;
        let (code, screen) = block_in_place(|| new.wait_exit())?;
        assert_eq!((code, screen.contains("Created disk home-2 (20Gi)")), (Some(0), true), "{screen}");
        assert_eq!(home("new").await?, json!({"disk": "home-2"}));

        let mut ephemeral = start("tmp")?;
        block_in_place(|| ephemeral.wait_for("cancel"))?;
        ephemeral.type_keys(&format!("{DOWN}{ENTER}"))?;
        assert_eq!(block_in_place(|| ephemeral.wait_exit())?.0, Some(0));
        assert_eq!(home("tmp").await?, json!({"ephemeral": "10Gi"}));

        let mut cancelled = start("none")?;
        block_in_place(|| cancelled.wait_for("cancel"))?;
        cancelled.type_keys(&format!("{DOWN}{DOWN}{ENTER}"))?;
        let (code, screen) = block_in_place(|| cancelled.wait_exit())?;
        assert_eq!((code, screen.contains("aborted")), (Some(130), true), "{screen}");
        assert!(fixture.servers("ada").get_opt("none").await?.is_none());
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn purge_requires_the_name_of_the_disk() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        fixture.create_home().await?;
        for (typed, expected) in [("hone", Some(130)), ("home", Some(0))] {
            let mut purge = terminal(fixture, &["disk", "delete", "home", "--purge"])?;
            block_in_place(|| purge.wait_for("Delete disk home (20Gi) with its data and 2 restore points?"))?;
            purge.type_keys(&format!("{typed}{ENTER}"))?;
            let (code, screen) = block_in_place(|| purge.wait_exit())?;
            assert_eq!(code, expected, "{screen}");
            assert_eq!(fixture.disks("ada").get_opt("home").await?.is_some(), expected == Some(130));
        }
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn ctrl_c_leaves_the_operation_running() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        fixture.create_home().await?;
        let mut rollback = terminal(fixture, &["disk", "rollback", "home", "home-1"])?;
        block_in_place(|| rollback.wait_for("Replace the data of disk home by restore point home-1"))?;
        rollback.type_keys(&format!("y{ENTER}"))?;
        block_in_place(|| rollback.wait_for("created, waiting for the operator"))?;
        rollback.type_keys(CTRL_C)?;
        let (code, screen) = block_in_place(|| rollback.wait_exit())?;
        assert_eq!((code, screen.contains("continues in the background")), (Some(130), true), "{screen}");
        assert_eq!(fixture.operations().list(&ListParams::default()).await?.items.len(), 1);
        Ok(())
    })
    .await
}
