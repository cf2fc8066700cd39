//! `--watch`: every change is printed once, without polling.

use std::process::Stdio;
use std::time::Duration;

use anyhow::Context as _;
use odc_tests::terminal::{CTRL_C, Terminal};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};

use super::fixture::with_fixture;

pub const TIMEOUT: Duration = Duration::from_secs(60);

#[tokio::test]
async fn list_watch_prints_one_object_per_change() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        fixture.server("ada", "box", json!({}), json!({"phase": "Pending"})).await?;
        let mut command = fixture.machine.command("ada", &["list", "--watch", "-o", "json"])?;
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = tokio::process::Command::from(command).kill_on_drop(true).spawn()?;
        let mut lines = BufReader::new(child.stdout.take().context("stdout")?).lines();
        let mut next = async || -> anyhow::Result<(String, String)> {
            let line = tokio::time::timeout(TIMEOUT, lines.next_line()).await??.context("end of stdout")?;
            let value: Value = serde_json::from_str(&line)?;
            let text = |field: &str| value[field].as_str().unwrap_or_default().to_owned();
            Ok((text("name"), text("phase")))
        };
        let state = |name: &str, phase: &str| (name.to_owned(), phase.to_owned());
        assert_eq!(next().await?, state("box", "Pending"));
        let before = fixture.plane.requests()?.len();
        fixture.status("ada", "box", json!({"phase": "Running"})).await?;
        assert_eq!(next().await?, state("box", "Running"));
        fixture.servers("ada").delete("box", &kube::api::DeleteParams::default()).await?;
        assert_eq!(next().await?, state("box", "Deleted"));
        let requests = fixture.plane.requests()?;
        let requests: Vec<_> =
            requests[before..].iter().filter(|request| request.agent.starts_with("devctl")).collect();
        assert!(requests.iter().all(|request| request.verb == "watch"), "polling: {requests:?}");
        child.kill().await?;
        Ok(())
    })
    .await
}

/// The lines of a running program.
struct Lines {
    child: tokio::process::Child,
    lines: tokio::io::Lines<BufReader<tokio::process::ChildStdout>>,
}

impl Lines {
    fn spawn(mut command: std::process::Command) -> anyhow::Result<Self> {
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = tokio::process::Command::from(command).kill_on_drop(true).spawn()?;
        let lines = BufReader::new(child.stdout.take().context("stdout")?).lines();
        Ok(Self { child, lines })
    }

    async fn next(&mut self) -> anyhow::Result<String> {
        tokio::time::timeout(TIMEOUT, self.lines.next_line()).await??.context("end of stdout")
    }

    /// Returns the next line that contains the text.
    async fn until(&mut self, text: &str) -> anyhow::Result<String> {
        loop {
            let line = self.next().await?;
            if line.contains(text) {
                return Ok(line);
            }
        }
    }
}

#[tokio::test]
async fn each_change_is_printed_once_without_a_terminal() -> anyhow::Result<()> {
    use odc_api::v1alpha1::DevServerFlavor;
    with_fixture(async |fixture| {
        let flavors: kube::Api<DevServerFlavor> = kube::Api::all(fixture.plane.client.clone());
        let mut avail = Lines::spawn(fixture.machine.command("ada", &["avail", "--watch"])?)?;
        assert!(avail.next().await?.starts_with("FLAVOR"));
        avail.until("mig").await?;
        for free in [5, 4] {
            let status = json!({"status": {"free": free}});
            flavors.patch_status("h100", &kube::api::PatchParams::default(), &kube::api::Patch::Merge(&status)).await?;
            // The next line has neither the header nor another flavor.
            let line = avail.next().await?;
            assert!(line.starts_with("h100") && line.contains(&format!(" {free} ")), "{line}");
        }
        avail.child.kill().await?;

        // A server that leaves the filter is printed with its new phase.
        fixture.server("ada", "box", json!({}), json!({"phase": "Running"})).await?;
        let mut list =
            Lines::spawn(fixture.machine.command("ada", &["list", "--watch", "--phase", "running", "--no-headers"])?)?;
        assert!(list.next().await?.contains("Running"));
        fixture.status("ada", "box", json!({"phase": "Failed"})).await?;
        assert!(list.next().await?.contains("Failed"));
        list.child.kill().await?;
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn no_color_redraws_and_dumb_terminal_does_not() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        fixture.server("ada", "box", json!({}), json!({"phase": "Pending"})).await?;
        let start = |variable: (&str, &str)| -> anyhow::Result<Terminal> {
            let mut command = fixture.machine.command("ada", &["list", "--watch"])?;
            command.env(variable.0, variable.1);
            Terminal::start(&command, 80, 24)
        };
        let (mut plain, mut dumb) = (start(("NO_COLOR", "1"))?, start(("TERM", "dumb"))?);
        for terminal in [&mut plain, &mut dumb] {
            tokio::task::block_in_place(|| terminal.wait_for("Pending"))?;
        }
        fixture.status("ada", "box", json!({"phase": "Running"})).await?;
        for (mut terminal, redraws) in [(plain, true), (dumb, false)] {
            let screen = tokio::task::block_in_place(|| terminal.wait_for("Running"))?;
            assert_eq!(!screen.contains("Pending"), redraws, "{screen}");
            assert_eq!(screen.lines().filter(|line| line.starts_with("NAME")).count(), 1, "{screen}");
            terminal.type_keys(CTRL_C)?;
            let drawn = tokio::task::block_in_place(|| terminal.wait_exit_with_output())?.drawn;
            assert!(!drawn.contains("\x1b[32m") && !drawn.contains("\x1b[1m"), "{drawn:?}");
            assert_eq!(drawn.contains('\x1b'), redraws, "{drawn:?}");
        }
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn wide_rows_are_clipped_when_redrawn() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        let image = json!({"image": {"ref": format!("registry.example.org/{}:1", "long".repeat(20))}});
        fixture.server("ada", "box", image, json!({"phase": "Pending"})).await?;
        let mut terminal = Terminal::start(&fixture.machine.command("ada", &["list", "-w", "-o", "wide"])?, 50, 24)?;
        tokio::task::block_in_place(|| terminal.wait_for("Pending"))?;
        for phase in ["Queued", "Starting", "Running"] {
            fixture.status("ada", "box", json!({"phase": phase})).await?;
            let screen = tokio::task::block_in_place(|| terminal.wait_for(phase))?;
            assert_eq!(screen.lines().filter(|line| !line.trim().is_empty()).count(), 2, "{screen}");
        }
        terminal.type_keys(CTRL_C)?;
        tokio::task::block_in_place(|| terminal.wait_exit())?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn status_watch_does_not_poll_servers_and_flavors() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        let mut status = Lines::spawn(fixture.machine.command("ada", &["status", "--watch", "-o", "json"])?)?;
        let servers =
            |line: &str| -> anyhow::Result<Value> { Ok(serde_json::from_str::<Value>(line)?["servers"].clone()) };
        assert_eq!(servers(&status.next().await?)?, json!({}));
        let before = fixture.plane.requests()?.len();
        fixture.server("ada", "box", json!({}), json!({"phase": "Running"})).await?;
        // The server may be seen before its status is written.
        let mut phases = servers(&status.next().await?)?;
        if phases == json!({"Pending": 1}) {
            phases = servers(&status.next().await?)?;
        }
        assert_eq!(phases, json!({"Running": 1}));
        let requests = fixture.plane.requests()?;
        // The queue is fetched again after a change, because it cannot be watched.
        let is_queue = |resource: &str| matches!(resource, "queues" | "queueentries");
        let requests = requests[before..].iter().filter(|request| request.agent.starts_with("devctl"));
        let requests: Vec<_> = requests.filter(|request| !is_queue(&request.resource)).collect();
        assert!(requests.iter().all(|request| request.verb == "watch"), "polling: {requests:?}");
        status.child.kill().await?;

        let mut documents = Lines::spawn(fixture.machine.command("ada", &["status", "-w", "-o", "yaml"])?)?;
        assert_eq!(documents.next().await?, "---");
        documents.until("Running: 1").await?;
        documents.child.kill().await?;
        let mut names = Lines::spawn(fixture.machine.command("ada", &["status", "-w", "-o", "name"])?)?;
        assert_eq!(names.next().await?, "cpu");
        names.child.kill().await?;
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn list_watch_redraws_the_table() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        fixture.server("ada", "box", json!({}), json!({"phase": "Pending"})).await?;
        let mut terminal = Terminal::start(&fixture.machine.command("ada", &["list", "--watch"])?, 80, 24)?;
        tokio::task::block_in_place(|| terminal.wait_for("Pending"))?;
        fixture.status("ada", "box", json!({"phase": "Running"})).await?;
        let screen = tokio::task::block_in_place(|| terminal.wait_for("Running"))?;
        assert!(!screen.contains("Pending"), "{screen}");
        assert_eq!(screen.lines().filter(|line| line.starts_with("NAME")).count(), 1, "{screen}");
        terminal.type_keys(CTRL_C)?;
        tokio::task::block_in_place(|| terminal.wait_exit())?;
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn avail_and_queue_watch_redraw() -> anyhow::Result<()> {
    use odc_api::v1alpha1::DevServerFlavor;
    with_fixture(async |fixture| {
        let flavors: kube::Api<DevServerFlavor> = kube::Api::all(fixture.plane.client.clone());
        let mut avail = Terminal::start(&fixture.machine.command("ada", &["avail", "-w", "h100"])?, 80, 24)?;
        let mut queue = Terminal::start(&fixture.machine.command("ada", &["queue", "-w"])?, 80, 24)?;
        tokio::task::block_in_place(|| avail.wait_for("H100 80Gi   6"))?;
        tokio::task::block_in_place(|| queue.wait_for("You have no servers in the queue"))?;
        let status = json!({"status": {"free": 5}});
        flavors.patch_status("h100", &kube::api::PatchParams::default(), &kube::api::Patch::Merge(&status)).await?;
        tokio::task::block_in_place(|| avail.wait_for("H100 80Gi   5"))?;
        fixture
            .server(
                "ada",
                "box",
                json!({}),
                json!({"phase": "Queued", "admission": {"run": 0, "epoch": 1, "position": 7}}),
            )
            .await?;
        let screen = tokio::task::block_in_place(|| queue.wait_for("box"))?;
        assert!(screen.contains('7') && !screen.contains("no servers"), "{screen}");
        for mut terminal in [avail, queue] {
            terminal.type_keys(CTRL_C)?;
            tokio::task::block_in_place(|| terminal.wait_exit())?;
        }
        Ok(())
    })
    .await
}
