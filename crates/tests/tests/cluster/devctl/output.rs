//! The output of devctl in all formats.

use odc_tests::terminal::Terminal;
use regex::Regex;
use serde_json::{Value, json};

use super::fixture::{Fixture, normalize, with_fixture};

/// The fixture does not serve queue.odc.dev.
pub const QUEUE_UNAVAILABLE: &str =
    "warning: queue API unavailable (this cluster does not serve queue.odc.dev); showing data up to 30s old\n";

/// Runs a command on a terminal of this width and returns the screen.
pub fn run_on_terminal(fixture: &Fixture<'_>, arguments: &[&str], columns: u16) -> anyhow::Result<String> {
    let terminal = Terminal::start(&fixture.machine.command("ada", arguments)?, columns, 60)?;
    let (code, screen) = terminal.wait_exit()?;
    anyhow::ensure!(code == Some(0), "{arguments:?} exited with {code:?}:\n{screen}");
    // URLs are not cut.
    let tables = screen.lines().filter(|line| !line.contains("://") && !line.contains("ssh-ed25519"));
    let longest = tables.map(|line| line.chars().count()).max().unwrap_or(0);
    anyhow::ensure!(longest <= usize::from(columns), "a line is too long:\n{screen}");
    normalize(&screen)
}

#[tokio::test]
async fn tables_fit_narrow_and_wide_terminals() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        fixture.create_servers_in_all_phases().await?;
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
                insta::assert_snapshot!(format!("{name}_{columns}"), run_on_terminal(fixture, words, columns)?);
            }
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn structured_output_has_data_on_stdout_and_messages_on_stderr() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        fixture.create_servers_in_all_phases().await?;
        let ada = async |words: &[&str]| fixture.machine.devctl("ada", words).await;
        insta::assert_snapshot!("list_plain", normalize(&ada(&["list"]).await?.success()?)?);
        insta::assert_snapshot!("list_wide", normalize(&ada(&["list", "-o", "wide"]).await?.success()?)?);
        insta::assert_snapshot!("list_yaml", normalize(&ada(&["list", "train", "-o", "yaml"]).await?.success()?)?);
        for (name, words) in [
            ("list_json", &["list", "box", "train", "notes", "broken", "-o", "json"][..]),
            ("show_json", &["show", "broken", "-o", "json"]),
            ("debug_json", &["debug", "refused", "-o", "json"]),
            ("avail_json", &["avail", "h100", "-o", "json"]),
            ("flavors_json", &["flavors", "h100", "-o", "json"]),
            ("queue_json", &["queue", "-o", "json"]),
            ("status_json", &["status", "-o", "json"]),
        ] {
            let output = ada(words).await?;
            let queries_the_queue = matches!(words[0], "avail" | "queue" | "status");
            assert_eq!(output.err, if queries_the_queue { QUEUE_UNAVAILABLE } else { "" }, "{words:?}");
            let value: Value = serde_json::from_str(&output.success()?)?;
            insta::assert_snapshot!(name, normalize(&serde_json::to_string_pretty(&value)?)?);
        }
        assert_eq!(ada(&["list", "-o", "name"]).await?.success()?, "box\nbroken\nnotes\nrefused\ntrain\n");
        assert_eq!(ada(&["list", "-q"]).await?.success()?, "box\nbroken\nnotes\nrefused\ntrain\n");
        assert_eq!(ada(&["list", "--phase", "queued,failed", "-o", "name"]).await?.success()?, "broken\ntrain\n");
        assert_eq!(ada(&["list", "--all", "-o", "name", "lo"]).await?.success()?, "long-gone\n");
        let without_headers = ada(&["list", "--no-headers", "box"]).await?.success()?;
        assert!(without_headers.starts_with("box ") && without_headers.lines().count() == 1, "{without_headers}");
        // Without data, standard output is empty and standard error has a message.
        let none = fixture.machine.devctl("bob", &["queue"]).await?;
        let message = format!("{QUEUE_UNAVAILABLE}You have no servers in the queue\n");
        assert_eq!((none.out.as_str(), none.err.as_str(), none.code), ("", message.as_str(), Some(0)));
        let empty = fixture.machine.devctl("ada", &["list", "zzz"]).await?;
        assert_eq!((empty.out.as_str(), empty.err.as_str()), ("", "No matching servers found\n"));
        Ok(())
    })
    .await
}

#[tokio::test]
async fn colors_are_disabled_by_no_color_and_dumb_terminals() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        fixture.create_servers_in_all_phases().await?;
        let drawn = |variables: &[(&str, &str)]| -> anyhow::Result<String> {
            let mut command = fixture.machine.command("ada", &["list"])?;
            command.envs(variables.iter().copied());
            Ok(Terminal::start(&command, 120, 40)?.wait_exit_with_output()?.drawn)
        };
        assert!(drawn(&[])?.contains("\x1b[32mRunning"), "{:?}", drawn(&[])?);
        for variables in [&[("NO_COLOR", "1")][..], &[("TERM", "dumb")], &[("TERM", "dumb"), ("CI", "true")]] {
            let drawn = drawn(variables)?;
            assert!(drawn.contains("Running") && !drawn.contains('\x1b'), "{variables:?}: {drawn:?}");
        }
        let mut piped = fixture.machine.command("ada", &["list"])?;
        assert!(!piped.output()?.stdout.contains(&0x1b));
        Ok(())
    })
    .await
}

#[tokio::test]
async fn control_characters_of_untrusted_text_are_replaced() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        let control = "\u{1b}]0;owned\u{7}\u{1b}[2J\rgone\u{9b}31m";
        let failure = json!({"reason": "CrashLoop", "message": format!("It dies {control}."), "time": super::fixture::ago(1), "logTail": format!("KeyError {control}\n")});
        let pods = json!([{"name": "box-0", "run": 1, "node": format!("n1{control}"), "ready": false}]);
        let status = json!({"phase": "Failed", "lastFailure": failure, "pods": pods, "timeline": [{"phase": "Failed", "at": super::fixture::ago(1), "reason": "CrashLoop"}]});
        fixture.server("ada", "box", json!({"nodes": 2}), status).await?;
        for words in [
            &["show", "box"][..],
            &["debug", "box", "--logs"],
            &["list", "-o", "wide"],
            &["logs", "box"],
            &["ssh", "box"],
            &["show", "box", "-o", "json"],
            &["show", "box", "-o", "yaml"],
        ] {
            let drawn = Terminal::start(&fixture.machine.command("ada", words)?, 120, 60)?.wait_exit_with_output()?.drawn;
            assert!(drawn.contains("dies") || drawn.contains("KeyError"), "{words:?}: {drawn:?}");
            let sequences = ["\u{1b}]", "\u{1b}[2J", "\rgone", "\u{9b}", "\u{7}"];
            assert!(sequences.iter().all(|sequence| !drawn.contains(sequence)), "{words:?}: {drawn:?}");
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn json_has_the_documented_fields() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        fixture.create_servers_in_all_phases().await?;
        let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/cli-json.md"))?;
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
            let printed = fixture.machine.devctl("ada", &[words, &["-o", "json"]].concat()).await?.success()?;
            let value: Value = serde_json::from_str(&printed)?;
            let row = page.lines().find(|line| line.starts_with(&format!("| `{command}`"))).unwrap_or_default();
            let one = value.get(0).unwrap_or(&value).as_object().cloned().unwrap_or_default();
            assert!(!one.is_empty(), "{words:?}: {printed}");
            // The other fields of debug are documented with those of a server.
            let own =
                one.keys().filter(|key| command != "debug" || ["events", "logs", "hints"].contains(&key.as_str()));
            for key in own {
                assert!(Regex::new(&format!(r"\b{key}\b"))?.is_match(row), "{key} of {words:?} is not in {row:?}");
            }
        }
        let server: Value =
            serde_json::from_str(&fixture.machine.devctl("ada", &["show", "broken", "-o", "json"]).await?.success()?)?;
        for key in server.as_object().into_iter().flat_map(|fields| fields.keys()) {
            assert!(page.contains(&format!("`{key}`")), "{key} is not documented");
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn closed_pipe_is_not_an_error() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        fixture.create_servers_in_all_phases().await?;
        let mut command = fixture.machine.command("ada", &["list", "-o", "json"])?;
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        let mut child = command.spawn()?;
        drop(child.stdout.take());
        let output = child.wait_with_output()?;
        assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(0), ""));
        Ok(())
    })
    .await
}
