//! Prompts and progress on a real terminal.

use odc_api::duration::Duration;
use odc_api::v1alpha1::Desired;
use odc_tests::terminal::{CTRL_BACKSLASH, CTRL_C, DOWN, ENTER, Terminal, UP};
use serde_json::{Value, json};
use tokio::task::block_in_place;

use super::fixture::{Fixture, normalize, ready, with_fixture};

fn terminal(fixture: &Fixture<'_>, words: &[&str]) -> anyhow::Result<Terminal> {
    Terminal::start(&fixture.machine.command("ada", words)?, 100, 40)
}

fn running() -> Value {
    json!({"phase": "Running", "flavor": "h100", "conditions": [ready("True", "Running", "The server is running.")],
        "expiresAt": super::fixture::after(8 * 3600), "pods": [{"name": "box-0", "run": 1, "node": "gpu-1", "ready": true}]})
}

#[tokio::test(flavor = "multi_thread")]
async fn create_prompts_for_flavor_count_lifetime_home_and_name() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        let mut terminal = terminal(fixture, &["create", "--no-connect"])?;
        let screen = block_in_place(|| terminal.wait_for("type to filter]"))?;
        insta::assert_snapshot!("pick_flavor", normalize(&screen)?);
        assert!(!screen.contains("spot   "), "spot flavors are hidden");
        // A flavor in maintenance cannot be chosen.
        terminal.type_keys(&format!("{DOWN}{DOWN}{ENTER}"))?;
        block_in_place(|| terminal.wait_for("Flavor mig is in maintenance: New drivers until noon."))?;
        terminal.type_keys("h100")?;
        block_in_place(|| terminal.wait_for_screen("only h100", |screen| screen.matches("refresh").count() == 0))?;
        terminal.type_keys(ENTER)?;
        // Rows are drawn from the top.
        let screen = block_in_place(|| terminal.wait_for("queued: enough free GPUs, but not on one node"))?;
        assert!(screen.contains("How many GPUs?") && screen.contains("free now"), "{screen}");
        terminal.type_keys(&format!("{DOWN}{ENTER}"))?;
        // The cursor starts at the default.
        let screen = block_in_place(|| terminal.wait_for("> 8h"))?;
        assert!(screen.contains("Lifetime?"), "{screen}");
        terminal.type_keys(&format!("{UP}{ENTER}"))?;
        let screen = block_in_place(|| terminal.wait_for("ephemeral  deleted with the server"))?;
        assert!(screen.contains("> disk home  20Gi, created now"), "{screen}");
        terminal.type_keys(ENTER)?;
        block_in_place(|| terminal.wait_for("Server name?"))?;
        terminal.type_keys(&format!("box{ENTER}"))?;
        block_in_place(|| terminal.wait_for("Waiting for server box"))?;
        let spec = fixture.servers("ada").get("box").await?.spec;
        assert_eq!((spec.flavor.map(String::from).as_deref(), spec.count, spec.lifetime), (Some("h100"), Some(2), Duration::hours(4)));
        assert_eq!(serde_json::to_value(&spec.home)?, json!({"disk": "home"}));

        // The queue position is redrawn.
        for position in [2, 1] {
            let status = json!({"phase": "Queued", "admission": {"run": 0, "epoch": 1, "position": position, "message": "6 are free."}});
            fixture.status("ada", "box", status).await?;
            let screen = block_in_place(|| terminal.wait_for(&format!("queue position {position}: 6 are free")))?;
            assert_eq!(screen.matches("queue position").count(), 1, "{screen}");
        }
        fixture.status("ada", "box", running()).await?;
        let (code, screen) = block_in_place(|| terminal.wait_exit())?;
        assert_eq!(code, Some(0), "{screen}");
        insta::assert_snapshot!("ready_details", normalize(&screen[screen.find("Server box is ready").unwrap_or(0)..])?);
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn ctrl_c_prompts_and_ctrl_backslash_detaches() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        let create = |name: &str| terminal(fixture, &["create", name, "-t", "cpu", "--no-persist", "--no-connect"]);
        let servers = fixture.servers("ada");

        let mut detached = create("left")?;
        block_in_place(|| detached.wait_for("created, waiting"))?;
        detached.type_keys(CTRL_BACKSLASH)?;
        let (code, screen) = block_in_place(|| detached.wait_exit())?;
        assert_eq!(code, Some(130), "{screen}");
        assert!(
            screen.contains("server left keeps starting in the background") && screen.contains("`devctl ssh left`"),
            "{screen}"
        );
        assert_eq!(servers.get("left").await?.spec.desired, Desired::Running);

        let mut deleted = create("cut")?;
        block_in_place(|| deleted.wait_for("created, waiting"))?;
        deleted.type_keys(CTRL_C)?;
        block_in_place(|| deleted.wait_for("Server cut is not ready yet. What now?"))?;
        deleted.type_keys(ENTER)?;
        // Wait until progress is drawn below the answer: until then Ctrl-C goes to the prompt.
        block_in_place(|| {
            deleted.wait_for_screen("progress continues", |screen| {
                let last = screen.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
                // The answer may be on the line of the earlier progress.
                screen.contains("keep waiting")
                    && !screen.contains("delete the server")
                    && last.contains("created, waiting")
                    && !last.contains("keep waiting")
            })
        })?;
        deleted.type_keys(CTRL_C)?;
        block_in_place(|| deleted.wait_for("delete the server"))?;
        deleted.type_keys(&format!("{DOWN}{DOWN}{ENTER}"))?;
        let (code, screen) = block_in_place(|| deleted.wait_exit())?;
        assert_eq!((code, screen.contains("interrupted; server cut is being deleted")), (Some(130), true), "{screen}");
        assert_eq!(servers.get("cut").await?.spec.desired, Desired::Ended);
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn multi_node_server_shows_each_node_and_a_failure_shows_its_log() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        let mut terminal = terminal(fixture, &["create", "gang", "-t", "h100", "-g", "16", "-d", "--no-persist"])?;
        block_in_place(|| terminal.wait_for("created, waiting"))?;
        let pod = |index: u32, ready: bool| json!({"name": format!("gang-{index}"), "run": 1, "node": format!("gpu-{index}"), "ready": ready});
        let admission = json!({"run": 1, "epoch": 1, "nodes": ["gpu-0", "gpu-1"]});
        let status = json!({"phase": "Starting", "flavor": "h100", "admission": admission, "pods": [pod(0, true), pod(1, false)]});
        fixture.status("ada", "gang", status).await?;
        let screen = block_in_place(|| terminal.wait_for("gang-1 on gpu-1 starting"))?;
        assert!(screen.contains("✓ scheduled on 2 nodes") && screen.contains("✓ gang-0 on gpu-0 ready"), "{screen}");
        let failure = json!({"reason": "CrashLoop", "message": "It dies.", "time": super::fixture::ago(1), "logTail": "KeyError: 'TOKEN'"});
        fixture.status("ada", "gang", json!({"phase": "Failed", "lastFailure": failure})).await?;
        let (code, screen) = block_in_place(|| terminal.wait_exit())?;
        assert_eq!(code, Some(1), "{screen}");
        for words in ["server gang failed: It dies", "| KeyError: 'TOKEN'", "devctl debug gang"] {
            assert!(screen.contains(words), "{screen}");
        }
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn delete_prompts_for_a_server_and_confirmation() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        fixture.server("ada", "box", json!({}), running()).await?;
        fixture.server("ada", "notes", json!({}), running()).await?;
        let mut delete = terminal(fixture, &["delete"])?;
        block_in_place(|| delete.wait_for("Which server?"))?;
        delete.type_keys(&format!("{DOWN}{ENTER}"))?;
        block_in_place(|| delete.wait_for("Delete server notes? Its ephemeral home directory will be lost."))?;
        delete.type_keys(&format!("n{ENTER}"))?;
        let (code, screen) = block_in_place(|| delete.wait_exit())?;
        assert_eq!((code, screen.contains("aborted")), (Some(130), true), "{screen}");
        assert_eq!(fixture.servers("ada").get("notes").await?.spec.desired, Desired::Running);

        let mut delete = terminal(fixture, &["delete"])?;
        block_in_place(|| delete.wait_for("all 2 servers"))?;
        delete.type_keys(&format!("{UP}{ENTER}"))?;
        block_in_place(|| delete.wait_for("Delete servers box, notes? 2 ephemeral home directories will be lost"))?;
        delete.type_keys(CTRL_C)?;
        assert_eq!(block_in_place(|| delete.wait_exit())?.0, Some(130));

        let mut delete = terminal(fixture, &["delete", "--all"])?;
        block_in_place(|| delete.wait_for("Delete servers box, notes? 2 ephemeral home directories will be lost"))?;
        delete.type_keys(&format!("y{ENTER}"))?;
        let (code, screen) = block_in_place(|| delete.wait_exit())?;
        assert_eq!(code, Some(0), "{screen}");
        assert_eq!(fixture.servers("ada").get("box").await?.spec.desired, Desired::Ended);
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn ssh_prompts_for_a_node_of_a_multi_node_server() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        let mut status = running();
        status["access"] = json!({"hostKey": odc_api::fixtures::KEY});
        status["pods"] = json!([0, 1].map(
            |node| json!({"name": format!("gang-{node}"), "run": 1, "node": format!("gpu-{node}"), "ready": true})
        ));
        fixture.server("ada", "gang", json!({"nodes": 2}), status).await?;
        let mut ssh = terminal(fixture, &["ssh", "gang", "--dry-run"])?;
        let screen = block_in_place(|| ssh.wait_for("gang-1  on gpu-1"))?;
        assert!(screen.contains("Which node of gang?"), "{screen}");
        ssh.type_keys(&format!("{DOWN}{ENTER}"))?;
        let (code, screen) = block_in_place(|| ssh.wait_exit())?;
        assert_eq!((code, screen.contains("1.gang.odc")), (Some(0), true), "{screen}");
        // No prompt with --node or a command.
        for (words, host) in [
            (&["ssh", "gang", "--dry-run", "--node", "1"][..], "1.gang.odc"),
            (&["ssh", "gang", "--dry-run", "--", "true"], " gang.odc true"),
        ] {
            let (code, screen) = block_in_place(|| terminal(fixture, words)?.wait_exit())?;
            assert_eq!((code, screen.contains(host)), (Some(0), true), "{words:?}: {screen}");
        }
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn interactive_flag_overrides_no_input_variable() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        let mut command = fixture.machine.command("ada", &["create", "--interactive"])?;
        command.env("DEVCTL_NO_INPUT", "1");
        let mut terminal = Terminal::start(&command, 100, 40)?;
        block_in_place(|| terminal.wait_for("Which flavor?"))?;
        terminal.type_keys(CTRL_C)?;
        assert_eq!(block_in_place(|| terminal.wait_exit())?.0, Some(130));
        let mut command = fixture.machine.command("ada", &["show"])?;
        command.env("DEVCTL_NO_INPUT", "1");
        fixture.server("ada", "box", json!({}), running()).await?;
        fixture.server("ada", "notes", json!({}), running()).await?;
        let (code, screen) = block_in_place(|| Terminal::start(&command, 80, 24)?.wait_exit())?;
        assert_eq!((code, screen.contains("server name required")), (Some(2), true), "{screen}");
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn no_input_and_dumb_terminals_disable_prompts() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        fixture.server("ada", "box", json!({}), running()).await?;
        fixture.server("ada", "notes", json!({}), running()).await?;
        for (words, flag) in
            [(&["delete", "--all", "--no-input"][..], "--yes"), (&["show", "--no-input"], "box, notes")]
        {
            let (code, screen) = block_in_place(|| terminal(fixture, words)?.wait_exit())?;
            assert_eq!((code, screen.contains(flag)), (Some(2), true), "{words:?}: {screen}");
        }
        let mut command = fixture.machine.command("ada", &["show"])?;
        command.env("TERM", "dumb");
        let (code, screen) = block_in_place(|| Terminal::start(&command, 80, 24)?.wait_exit())?;
        assert_eq!((code, screen.contains("server name required")), (Some(2), true), "{screen}");
        Ok(())
    })
    .await
}
