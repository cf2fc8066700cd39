//! Pickers and waiting, on a real terminal.

use odc_api::duration::Duration;
use odc_api::v1alpha1::Desired;
use odc_tests::terminal::{CTRL_BACKSLASH, CTRL_C, DOWN, ENTER, Terminal, UP};
use serde_json::{Value, json};
use tokio::task::block_in_place;

use super::scene::{Scene, ready, steady, with_scene};

fn terminal(scene: &Scene<'_>, words: &[&str]) -> anyhow::Result<Terminal> {
    Terminal::start(&scene.machine.command("ada", words)?, 100, 40)
}

fn running() -> Value {
    json!({"phase": "Running", "flavor": "h100", "conditions": [ready("True", "Running", "It runs.")],
        "expiresAt": super::scene::after(8 * 3600 + 45), "pods": [{"name": "box-0", "run": 1, "node": "gpu-1", "ready": true}]})
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_missing_is_chosen_from_what_is_free() -> anyhow::Result<()> {
    with_scene(async |scene| {
        let mut terminal = terminal(scene, &["create", "--no-connect"])?;
        let screen = block_in_place(|| terminal.until("type to filter]"))?;
        insta::assert_snapshot!("pick_flavor", steady(&screen)?);
        assert!(!screen.contains("can be taken away"), "spot flavors are hidden at first");
        // One in maintenance is shown, and refused with the reason.
        terminal.type_keys(&format!("{DOWN}{DOWN}{ENTER}"))?;
        block_in_place(|| terminal.until("mig is in maintenance: New drivers until noon."))?;
        terminal.type_keys("h100")?;
        block_in_place(|| terminal.until_screen("only h100", |screen| screen.matches("look again").count() == 0))?;
        terminal.type_keys(ENTER)?;
        // Rows are drawn from above, so the later one has the earlier ones over it.
        let screen = block_in_place(|| terminal.until("waits: enough are free, but not on one node"))?;
        assert!(screen.contains("How many GPUs?") && screen.contains("free now"), "{screen}");
        terminal.type_keys(&format!("{DOWN}{ENTER}"))?;
        // The usual is where one begins.
        let screen = block_in_place(|| terminal.until("> 8h"))?;
        assert!(screen.contains("For how long?"), "{screen}");
        terminal.type_keys(&format!("{UP}{ENTER}"))?;
        block_in_place(|| terminal.until("What shall it be called?"))?;
        terminal.type_keys(&format!("box{ENTER}"))?;
        block_in_place(|| terminal.until("Waiting for box."))?;
        let spec = scene.servers("ada").get("box").await?.spec;
        assert_eq!((spec.flavor.map(String::from).as_deref(), spec.count, spec.lifetime), (Some("h100"), Some(2), Duration::hours(4)));

        // The place in the queue is drawn over, not told again and again.
        for position in [2, 1] {
            let status = json!({"phase": "Queued", "admission": {"run": 0, "epoch": 1, "position": position, "message": "6 are free."}});
            scene.status("ada", "box", status).await?;
            let screen = block_in_place(|| terminal.until(&format!("place {position} in the queue: 6 are free")))?;
            assert_eq!(screen.matches("in the queue").count(), 1, "{screen}");
        }
        scene.status("ada", "box", running()).await?;
        let (code, screen) = block_in_place(|| terminal.end())?;
        assert_eq!(code, Some(0), "{screen}");
        insta::assert_snapshot!("ready_panel", steady(&screen[screen.find("box is ready").unwrap_or(0)..])?);
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn ctrl_c_asks_and_ctrl_backslash_leaves() -> anyhow::Result<()> {
    with_scene(async |scene| {
        let create = |name: &str| terminal(scene, &["create", name, "-t", "cpu", "--no-persist", "--no-connect"]);
        let servers = scene.servers("ada");

        let mut left = create("left")?;
        block_in_place(|| left.until("asked for"))?;
        left.type_keys(CTRL_BACKSLASH)?;
        let (code, screen) = block_in_place(|| left.end())?;
        assert_eq!(code, Some(130), "{screen}");
        assert!(
            screen.contains("left goes on without you") && screen.contains("devctl ssh left comes back to it"),
            "{screen}"
        );
        assert_eq!(servers.get("left").await?.spec.desired, Desired::Running);

        let mut asked = create("asked")?;
        block_in_place(|| asked.until("asked for"))?;
        asked.type_keys(CTRL_C)?;
        block_in_place(|| asked.until("What about asked?"))?;
        asked.type_keys(ENTER)?;
        // What it draws below the answer: before that, Ctrl-C would still be a key of the question.
        block_in_place(|| {
            asked.until_screen("it goes on", |screen| {
                let last = screen.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
                screen.contains("go on waiting") && !screen.contains("end it") && last.contains("asked for")
            })
        })?;
        asked.type_keys(CTRL_C)?;
        block_in_place(|| asked.until("end it"))?;
        asked.type_keys(&format!("{DOWN}{DOWN}{ENTER}"))?;
        let (code, screen) = block_in_place(|| asked.end())?;
        assert_eq!((code, screen.contains("asked was cancelled")), (Some(130), true), "{screen}");
        assert_eq!(servers.get("asked").await?.spec.desired, Desired::Ended);
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gang_has_a_row_for_each_node_and_a_failure_its_log() -> anyhow::Result<()> {
    with_scene(async |scene| {
        let mut terminal = terminal(scene, &["create", "gang", "-t", "h100", "-g", "16", "-d", "--no-persist"])?;
        block_in_place(|| terminal.until("asked for"))?;
        let pod = |index: u32, ready: bool| json!({"name": format!("gang-{index}"), "run": 1, "node": format!("gpu-{index}"), "ready": ready});
        let admission = json!({"run": 1, "epoch": 1, "nodes": ["gpu-0", "gpu-1"]});
        let status = json!({"phase": "Starting", "flavor": "h100", "admission": admission, "pods": [pod(0, true), pod(1, false)]});
        scene.status("ada", "gang", status).await?;
        let screen = block_in_place(|| terminal.until("gang-1 on gpu-1 starting"))?;
        assert!(screen.contains("✓ granted on 2 nodes") && screen.contains("✓ gang-0 on gpu-0 ready"), "{screen}");
        let failure = json!({"reason": "DiesAtStart", "message": "It dies.", "time": super::scene::ago(1), "logTail": "KeyError: 'TOKEN'"});
        scene.status("ada", "gang", json!({"phase": "Failed", "lastFailure": failure})).await?;
        let (code, screen) = block_in_place(|| terminal.end())?;
        assert_eq!(code, Some(1), "{screen}");
        for words in ["gang has failed: It dies", "| KeyError: 'TOKEN'", "devctl debug gang"] {
            assert!(screen.contains(words), "{screen}");
        }
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn of_several_servers_one_is_chosen_and_ending_is_confirmed() -> anyhow::Result<()> {
    with_scene(async |scene| {
        scene.server("ada", "box", json!({}), running()).await?;
        scene.server("ada", "notes", json!({}), running()).await?;
        let mut delete = terminal(scene, &["delete"])?;
        block_in_place(|| delete.until("Which server?"))?;
        delete.type_keys(&format!("{DOWN}{ENTER}"))?;
        block_in_place(|| delete.until("End notes? Its home is gone with it."))?;
        delete.type_keys(&format!("n{ENTER}"))?;
        let (code, screen) = block_in_place(|| delete.end())?;
        assert_eq!((code, screen.contains("nothing was ended")), (Some(130), true), "{screen}");
        assert_eq!(scene.servers("ada").get("notes").await?.spec.desired, Desired::Running);

        let mut delete = terminal(scene, &["delete"])?;
        block_in_place(|| delete.until("all 2 of them"))?;
        delete.type_keys(&format!("{UP}{ENTER}"))?;
        block_in_place(|| delete.until("End box, notes? The homes of 2 of them are gone"))?;
        delete.type_keys(CTRL_C)?;
        assert_eq!(block_in_place(|| delete.end())?.0, Some(130));

        let mut delete = terminal(scene, &["delete", "--all"])?;
        block_in_place(|| delete.until("End box, notes? The homes of 2 of them are gone"))?;
        delete.type_keys(&format!("y{ENTER}"))?;
        let (code, screen) = block_in_place(|| delete.end())?;
        assert_eq!(code, Some(0), "{screen}");
        assert_eq!(scene.servers("ada").get("box").await?.spec.desired, Desired::Ended);
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gang_is_entered_at_a_node_of_choice() -> anyhow::Result<()> {
    with_scene(async |scene| {
        let mut status = running();
        status["access"] = json!({"hostKey": odc_api::fixtures::KEY});
        status["pods"] = json!([0, 1].map(
            |node| json!({"name": format!("gang-{node}"), "run": 1, "node": format!("gpu-{node}"), "ready": true})
        ));
        scene.server("ada", "gang", json!({"nodes": 2}), status).await?;
        let mut ssh = terminal(scene, &["ssh", "gang", "--dry-run"])?;
        let screen = block_in_place(|| ssh.until("gang-1  on gpu-1"))?;
        assert!(screen.contains("Which node of gang?"), "{screen}");
        ssh.type_keys(&format!("{DOWN}{ENTER}"))?;
        let (code, screen) = block_in_place(|| ssh.end())?;
        assert_eq!((code, screen.contains("1.gang.odc")), (Some(0), true), "{screen}");
        // Whoever says which, or runs a command, is not asked.
        for (words, host) in [
            (&["ssh", "gang", "--dry-run", "--node", "1"][..], "1.gang.odc"),
            (&["ssh", "gang", "--dry-run", "--", "true"], " gang.odc true"),
        ] {
            let (code, screen) = block_in_place(|| terminal(scene, words)?.end())?;
            assert_eq!((code, screen.contains(host)), (Some(0), true), "{words:?}: {screen}");
        }
        Ok(())
    })
    .await
}

/// A variable keeps from being asked, unless a flag says otherwise.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_insists_is_asked() -> anyhow::Result<()> {
    with_scene(async |scene| {
        let mut command = scene.machine.command("ada", &["create", "--interactive"])?;
        command.env("DEVCTL_NO_INPUT", "1");
        let mut terminal = Terminal::start(&command, 100, 40)?;
        block_in_place(|| terminal.until("Which machine?"))?;
        terminal.type_keys(CTRL_C)?;
        assert_eq!(block_in_place(|| terminal.end())?.0, Some(130));
        let mut command = scene.machine.command("ada", &["show"])?;
        command.env("DEVCTL_NO_INPUT", "1");
        scene.server("ada", "box", json!({}), running()).await?;
        scene.server("ada", "notes", json!({}), running()).await?;
        let (code, screen) = block_in_place(|| Terminal::start(&command, 80, 24)?.end())?;
        assert_eq!((code, screen.contains("Say which")), (Some(2), true), "{screen}");
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_asked_who_does_not_want_to_be() -> anyhow::Result<()> {
    with_scene(async |scene| {
        scene.server("ada", "box", json!({}), running()).await?;
        scene.server("ada", "notes", json!({}), running()).await?;
        for (words, flag) in
            [(&["delete", "--all", "--no-input"][..], "--yes"), (&["show", "--no-input"], "box, notes")]
        {
            let (code, screen) = block_in_place(|| terminal(scene, words)?.end())?;
            assert_eq!((code, screen.contains(flag)), (Some(2), true), "{words:?}: {screen}");
        }
        // On a dumb terminal neither questions nor drawings would work.
        let mut command = scene.machine.command("ada", &["show"])?;
        command.env("TERM", "dumb");
        let (code, screen) = block_in_place(|| Terminal::start(&command, 80, 24)?.end())?;
        assert_eq!((code, screen.contains("Say which")), (Some(2), true), "{screen}");
        Ok(())
    })
    .await
}
