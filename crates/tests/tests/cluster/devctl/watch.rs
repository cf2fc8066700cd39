//! Watching: every change once, nothing asked twice.

use std::process::Stdio;
use std::time::Duration;

use anyhow::Context as _;
use odc_tests::terminal::{CTRL_C, Terminal};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};

use super::scene::with_scene;

pub const LIMIT: Duration = Duration::from_secs(30);

#[tokio::test]
async fn a_program_that_watches_gets_an_object_for_each_change() -> anyhow::Result<()> {
    with_scene(async |scene| {
        scene.server("ada", "box", json!({}), json!({"phase": "Pending"})).await?;
        let mut command = scene.machine.command("ada", &["list", "--watch", "-o", "json"])?;
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = tokio::process::Command::from(command).kill_on_drop(true).spawn()?;
        let mut lines = BufReader::new(child.stdout.take().context("its data")?).lines();
        let mut next = async || -> anyhow::Result<(String, String)> {
            let line = tokio::time::timeout(LIMIT, lines.next_line()).await??.context("it goes on")?;
            let value: Value = serde_json::from_str(&line)?;
            let text = |field: &str| value[field].as_str().unwrap_or_default().to_owned();
            Ok((text("name"), text("phase")))
        };
        let said = |name: &str, phase: &str| (name.to_owned(), phase.to_owned());
        assert_eq!(next().await?, said("box", "Pending"));
        let before = scene.plane.requests()?.len();
        scene.status("ada", "box", json!({"phase": "Running"})).await?;
        assert_eq!(next().await?, said("box", "Running"));
        scene.servers("ada").delete("box", &kube::api::DeleteParams::default()).await?;
        assert_eq!(next().await?, said("box", "Deleted"));
        let asked = scene.plane.requests()?;
        let asked: Vec<_> = asked[before..].iter().filter(|request| request.agent.starts_with("devctl")).collect();
        assert!(asked.iter().all(|request| request.verb == "watch"), "it polls: {asked:?}");
        child.kill().await?;
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn on_a_terminal_the_table_is_drawn_over() -> anyhow::Result<()> {
    with_scene(async |scene| {
        scene.server("ada", "box", json!({}), json!({"phase": "Pending"})).await?;
        let mut terminal = Terminal::start(&scene.machine.command("ada", &["list", "--watch"])?, 80, 24)?;
        tokio::task::block_in_place(|| terminal.until("Pending"))?;
        scene.status("ada", "box", json!({"phase": "Running"})).await?;
        let screen = tokio::task::block_in_place(|| terminal.until("Running"))?;
        assert!(!screen.contains("Pending"), "{screen}");
        assert_eq!(screen.lines().filter(|line| line.starts_with("NAME")).count(), 1, "{screen}");
        terminal.type_keys(CTRL_C)?;
        tokio::task::block_in_place(|| terminal.end())?;
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn flavors_and_the_queue_are_watched_too() -> anyhow::Result<()> {
    use odc_api::v1alpha1::DevServerFlavor;
    with_scene(async |scene| {
        let flavors: kube::Api<DevServerFlavor> = kube::Api::all(scene.plane.client.clone());
        let mut avail = Terminal::start(&scene.machine.command("ada", &["avail", "-w", "h100"])?, 80, 24)?;
        let mut queue = Terminal::start(&scene.machine.command("ada", &["queue", "-w"])?, 80, 24)?;
        tokio::task::block_in_place(|| avail.until("H100 80Gi   6"))?;
        tokio::task::block_in_place(|| queue.until("None of your servers waits."))?;
        let status = json!({"status": {"free": 5}});
        flavors.patch_status("h100", &kube::api::PatchParams::default(), &kube::api::Patch::Merge(&status)).await?;
        tokio::task::block_in_place(|| avail.until("H100 80Gi   5"))?;
        scene
            .server(
                "ada",
                "box",
                json!({}),
                json!({"phase": "Queued", "admission": {"run": 0, "epoch": 1, "position": 7}}),
            )
            .await?;
        let screen = tokio::task::block_in_place(|| queue.until("box"))?;
        assert!(screen.contains('7') && !screen.contains("None"), "{screen}");
        for mut terminal in [avail, queue] {
            terminal.type_keys(CTRL_C)?;
            tokio::task::block_in_place(|| terminal.end())?;
        }
        Ok(())
    })
    .await
}
