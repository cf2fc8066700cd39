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

/// Lines of a program as they come.
struct Lines {
    child: tokio::process::Child,
    lines: tokio::io::Lines<BufReader<tokio::process::ChildStdout>>,
}

impl Lines {
    fn of(mut command: std::process::Command) -> anyhow::Result<Self> {
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = tokio::process::Command::from(command).kill_on_drop(true).spawn()?;
        let lines = BufReader::new(child.stdout.take().context("its data")?).lines();
        Ok(Self { child, lines })
    }

    async fn next(&mut self) -> anyhow::Result<String> {
        tokio::time::timeout(LIMIT, self.lines.next_line()).await??.context("it goes on")
    }

    /// Past everything up to this.
    async fn until(&mut self, what: &str) -> anyhow::Result<String> {
        loop {
            let line = self.next().await?;
            if line.contains(what) {
                return Ok(line);
            }
        }
    }
}

#[tokio::test]
async fn where_nothing_can_be_drawn_over_each_change_is_told_once() -> anyhow::Result<()> {
    use odc_api::v1alpha1::DevServerFlavor;
    with_scene(async |scene| {
        let flavors: kube::Api<DevServerFlavor> = kube::Api::all(scene.plane.client.clone());
        let mut avail = Lines::of(scene.machine.command("ada", &["avail", "--watch"])?)?;
        assert!(avail.next().await?.starts_with("FLAVOR"));
        avail.until("mig").await?;
        for free in [5, 4] {
            let status = json!({"status": {"free": free}});
            flavors.patch_status("h100", &kube::api::PatchParams::default(), &kube::api::Patch::Merge(&status)).await?;
            // The very next line: no titles, no other flavors.
            let line = avail.next().await?;
            assert!(line.starts_with("h100") && line.contains(&format!(" {free} ")), "{line}");
        }
        avail.child.kill().await?;

        // Who no longer fits is told as they are, not as deleted.
        scene.server("ada", "box", json!({}), json!({"phase": "Running"})).await?;
        let mut list =
            Lines::of(scene.machine.command("ada", &["list", "--watch", "--status", "running", "--no-headers"])?)?;
        assert!(list.next().await?.contains("Running"));
        scene.status("ada", "box", json!({"phase": "Failed"})).await?;
        assert!(list.next().await?.contains("Failed"));
        list.child.kill().await?;
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn colour_and_the_cursor_are_two_matters() -> anyhow::Result<()> {
    with_scene(async |scene| {
        scene.server("ada", "box", json!({}), json!({"phase": "Pending"})).await?;
        let start = |variable: (&str, &str)| -> anyhow::Result<Terminal> {
            let mut command = scene.machine.command("ada", &["list", "--watch"])?;
            command.env(variable.0, variable.1);
            Terminal::start(&command, 80, 24)
        };
        let (mut plain, mut dumb) = (start(("NO_COLOR", "1"))?, start(("TERM", "dumb"))?);
        for terminal in [&mut plain, &mut dumb] {
            tokio::task::block_in_place(|| terminal.until("Pending"))?;
        }
        scene.status("ada", "box", json!({"phase": "Running"})).await?;
        for (mut terminal, repaints) in [(plain, true), (dumb, false)] {
            let screen = tokio::task::block_in_place(|| terminal.until("Running"))?;
            assert_eq!(!screen.contains("Pending"), repaints, "{screen}");
            assert_eq!(screen.lines().filter(|line| line.starts_with("NAME")).count(), 1, "{screen}");
            terminal.type_keys(CTRL_C)?;
            let drawn = tokio::task::block_in_place(|| terminal.finish())?.drawn;
            assert!(!drawn.contains("\x1b[32m") && !drawn.contains("\x1b[1m"), "{drawn:?}");
            assert_eq!(drawn.contains('\x1b'), repaints, "{drawn:?}");
        }
        Ok(())
    })
    .await
}

/// All columns on a narrow terminal: cut, so that they can be drawn over.
#[tokio::test(flavor = "multi_thread")]
async fn wide_rows_are_cut_where_they_are_drawn_over() -> anyhow::Result<()> {
    with_scene(async |scene| {
        let image = json!({"image": {"ref": format!("registry.example.org/{}:1", "long".repeat(20))}});
        scene.server("ada", "box", image, json!({"phase": "Pending"})).await?;
        let mut terminal = Terminal::start(&scene.machine.command("ada", &["list", "-w", "-o", "wide"])?, 50, 24)?;
        tokio::task::block_in_place(|| terminal.until("Pending"))?;
        for phase in ["Queued", "Starting", "Running"] {
            scene.status("ada", "box", json!({"phase": phase})).await?;
            let screen = tokio::task::block_in_place(|| terminal.until(phase))?;
            assert_eq!(screen.lines().filter(|line| !line.trim().is_empty()).count(), 2, "{screen}");
        }
        terminal.type_keys(CTRL_C)?;
        tokio::task::block_in_place(|| terminal.end())?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn what_you_hold_is_watched_and_not_asked_for() -> anyhow::Result<()> {
    with_scene(async |scene| {
        let mut status = Lines::of(scene.machine.command("ada", &["status", "--watch", "-o", "json"])?)?;
        let servers =
            |line: &str| -> anyhow::Result<Value> { Ok(serde_json::from_str::<Value>(line)?["servers"].clone()) };
        assert_eq!(servers(&status.next().await?)?, json!({}));
        let before = scene.plane.requests()?.len();
        scene.server("ada", "box", json!({}), json!({"phase": "Running"})).await?;
        // It may be seen before the operator's first word about it.
        let mut seen = servers(&status.next().await?)?;
        if seen == json!({"Pending": 1}) {
            seen = servers(&status.next().await?)?;
        }
        assert_eq!(seen, json!({"Running": 1}));
        let asked = scene.plane.requests()?;
        let asked: Vec<_> = asked[before..].iter().filter(|request| request.agent.starts_with("devctl")).collect();
        assert!(asked.iter().all(|request| request.verb == "watch"), "it polls: {asked:?}");
        status.child.kill().await?;

        let mut documents = Lines::of(scene.machine.command("ada", &["status", "-w", "-o", "yaml"])?)?;
        assert_eq!(documents.next().await?, "---");
        documents.until("Running: 1").await?;
        documents.child.kill().await?;
        let mut names = Lines::of(scene.machine.command("ada", &["status", "-w", "-o", "name"])?)?;
        assert_eq!(names.next().await?, "cpu");
        names.child.kill().await?;
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
