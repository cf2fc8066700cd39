//! What devctl prints, in every form.

use odc_tests::terminal::Terminal;
use regex::Regex;
use serde_json::{Value, json};

use super::scene::{Scene, steady, with_scene};

/// The scene has no queue.odc.dev.
pub const UNASKED: &str =
    "The queue cannot be asked itself (this cluster does not serve queue.odc.dev); this is what statuses say.\n";

/// What a command prints on a terminal of this width.
pub fn on_terminal(scene: &Scene<'_>, words: &[&str], columns: u16) -> anyhow::Result<String> {
    let terminal = Terminal::start(&scene.machine.command("ada", words)?, columns, 60)?;
    let (code, screen) = terminal.end()?;
    anyhow::ensure!(code == Some(0), "{words:?} ended with {code:?}:\n{screen}");
    // Links are not cut, or nobody could follow them.
    let tables = screen.lines().filter(|line| !line.contains("://") && !line.contains("ssh-ed25519"));
    let longest = tables.map(|line| line.chars().count()).max().unwrap_or(0);
    anyhow::ensure!(longest <= usize::from(columns), "a line is too long:\n{screen}");
    steady(&screen)
}

#[tokio::test]
async fn tables_fit_narrow_and_wide_terminals() -> anyhow::Result<()> {
    with_scene(async |scene| {
        scene.every_state().await?;
        for (name, words) in [
            ("list", &["list"][..]),
            ("list_all", &["list", "--all"]),
            ("show", &["show", "box", "--offline"]),
            ("avail", &["avail"]),
            ("flavors", &["flavors"]),
            ("queue", &["queue"]),
            ("status", &["status"]),
            ("debug", &["debug", "broken"]),
        ] {
            for columns in [80, 200] {
                insta::assert_snapshot!(format!("{name}_{columns}"), on_terminal(scene, words, columns)?);
            }
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn data_has_every_form_and_talk_keeps_away_from_it() -> anyhow::Result<()> {
    with_scene(async |scene| {
        scene.every_state().await?;
        let ada = async |words: &[&str]| scene.machine.devctl("ada", words).await;
        insta::assert_snapshot!("list_plain", steady(&ada(&["list"]).await?.good()?)?);
        insta::assert_snapshot!("list_wide", steady(&ada(&["list", "-o", "wide"]).await?.good()?)?);
        insta::assert_snapshot!("list_yaml", steady(&ada(&["list", "train", "-o", "yaml"]).await?.good()?)?);
        for (name, words) in [
            ("list_json", &["list", "box", "train", "notes", "broken", "-o", "json"][..]),
            ("show_json", &["show", "broken", "-o", "json"]),
            ("debug_json", &["debug", "refused", "-o", "json"]),
            ("avail_json", &["avail", "h100", "-o", "json"]),
            ("flavors_json", &["flavors", "h100", "-o", "json"]),
            ("queue_json", &["queue", "-o", "json"]),
            ("status_json", &["status", "-o", "json"]),
        ] {
            let said = ada(words).await?;
            let asks_the_queue = matches!(words[0], "avail" | "queue" | "status");
            assert_eq!(said.err, if asks_the_queue { UNASKED } else { "" }, "{words:?}");
            let value: Value = serde_json::from_str(&said.good()?)?;
            insta::assert_snapshot!(name, steady(&serde_json::to_string_pretty(&value)?)?);
        }
        assert_eq!(ada(&["list", "-o", "name"]).await?.good()?, "box\nbroken\nnotes\nrefused\ntrain\n");
        assert_eq!(ada(&["list", "-q"]).await?.good()?, "box\nbroken\nnotes\nrefused\ntrain\n");
        assert_eq!(ada(&["list", "--status", "queued,failed", "-o", "name"]).await?.good()?, "broken\ntrain\n");
        assert_eq!(ada(&["list", "--all", "-o", "name", "lo"]).await?.good()?, "long-gone\n");
        let headless = ada(&["list", "--no-headers", "box"]).await?.good()?;
        assert!(headless.starts_with("box ") && headless.lines().count() == 1, "{headless}");
        // Nothing to show is nothing on standard output, and a word beside it.
        let none = scene.machine.devctl("bob", &["queue"]).await?;
        let told = format!("{UNASKED}None of your servers waits.\n");
        assert_eq!((none.out.as_str(), none.err.as_str(), none.code), ("", told.as_str(), Some(0)));
        let unseen = scene.machine.devctl("ada", &["list", "zzz"]).await?;
        assert_eq!((unseen.out.as_str(), unseen.err.as_str()), ("", "No server fits.\n"));
        Ok(())
    })
    .await
}

/// On a terminal, where there would be colour.
#[tokio::test]
async fn nobody_is_coloured_who_does_not_want_to_be() -> anyhow::Result<()> {
    with_scene(async |scene| {
        scene.every_state().await?;
        let drawn = |variables: &[(&str, &str)]| -> anyhow::Result<String> {
            let mut command = scene.machine.command("ada", &["list"])?;
            command.envs(variables.iter().copied());
            Ok(Terminal::start(&command, 120, 40)?.finish()?.drawn)
        };
        assert!(drawn(&[])?.contains("\x1b[32mRunning"), "{:?}", drawn(&[])?);
        for variables in [&[("NO_COLOR", "1")][..], &[("TERM", "dumb")], &[("TERM", "dumb"), ("CI", "true")]] {
            let drawn = drawn(variables)?;
            assert!(drawn.contains("Running") && !drawn.contains('\x1b'), "{variables:?}: {drawn:?}");
        }
        let mut piped = scene.machine.command("ada", &["list"])?;
        assert!(!piped.output()?.stdout.contains(&0x1b));
        Ok(())
    })
    .await
}

/// What a node, an image or a program wrote is shown and does nothing.
#[tokio::test]
async fn words_of_others_do_not_act_on_the_terminal() -> anyhow::Result<()> {
    with_scene(async |scene| {
        let evil = "\u{1b}]0;owned\u{7}\u{1b}[2J\rgone\u{9b}31m";
        let failure = json!({"reason": "DiesAtStart", "message": format!("It dies {evil}."), "time": super::scene::ago(1), "logTail": format!("KeyError {evil}\n")});
        let pods = json!([{"name": "box-0", "run": 1, "node": format!("n1{evil}"), "ready": false}]);
        let status = json!({"phase": "Failed", "lastFailure": failure, "pods": pods, "timeline": [{"phase": "Failed", "at": super::scene::ago(1), "reason": "DiesAtStart"}]});
        scene.server("ada", "box", json!({"nodes": 2}), status).await?;
        for words in [
            &["show", "box"][..],
            &["debug", "box", "--logs"],
            &["list", "-o", "wide"],
            &["logs", "box"],
            &["ssh", "box"],
            &["show", "box", "-o", "json"],
            &["show", "box", "-o", "yaml"],
        ] {
            let drawn = Terminal::start(&scene.machine.command("ada", words)?, 120, 60)?.finish()?.drawn;
            assert!(drawn.contains("dies") || drawn.contains("KeyError"), "{words:?}: {drawn:?}");
            let acts = ["\u{1b}]", "\u{1b}[2J", "\rgone", "\u{9b}", "\u{7}"];
            assert!(acts.iter().all(|act| !drawn.contains(act)), "{words:?}: {drawn:?}");
        }
        Ok(())
    })
    .await
}

/// What is documented is what is printed, field by field.
#[tokio::test]
async fn json_has_the_documented_fields() -> anyhow::Result<()> {
    with_scene(async |scene| {
        scene.every_state().await?;
        let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/devctl.md"))?;
        for (command, words) in [
            ("flavors", &["flavors"][..]),
            ("flavors", &["admin", "flavor", "list"]),
            ("status", &["status"]),
            ("avail", &["avail"]),
            ("debug", &["debug", "broken"]),
            ("config view", &["config", "view"]),
            ("config contexts", &["config", "contexts"]),
            ("version", &["version"]),
        ] {
            let printed = scene.machine.devctl("ada", &[words, &["-o", "json"]].concat()).await?.good()?;
            let value: Value = serde_json::from_str(&printed)?;
            let row = page.lines().find(|line| line.starts_with(&format!("| `{command}`"))).unwrap_or_default();
            let one = value.get(0).unwrap_or(&value).as_object().cloned().unwrap_or_default();
            assert!(!one.is_empty(), "{words:?}: {printed}");
            // What debug shares with show is in the table of a server's fields.
            let own =
                one.keys().filter(|key| command != "debug" || ["events", "logs", "hints"].contains(&key.as_str()));
            for key in own {
                assert!(Regex::new(&format!(r"\b{key}\b"))?.is_match(row), "{key} of {words:?} is not in {row:?}");
            }
        }
        let server: Value =
            serde_json::from_str(&scene.machine.devctl("ada", &["show", "broken", "-o", "json"]).await?.good()?)?;
        for key in server.as_object().into_iter().flat_map(|fields| fields.keys()) {
            assert!(page.contains(&format!("`{key}`")), "{key} is not documented");
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_reader_who_has_seen_enough_is_no_error() -> anyhow::Result<()> {
    with_scene(async |scene| {
        scene.every_state().await?;
        let mut command = scene.machine.command("ada", &["list", "-o", "json"])?;
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        let mut child = command.spawn()?;
        drop(child.stdout.take());
        let output = child.wait_with_output()?;
        assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(0), ""));
        Ok(())
    })
    .await
}
