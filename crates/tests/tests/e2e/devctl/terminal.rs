//! People at a real terminal, with a shell in a real server.

use odc_tests::terminal::{CTRL_C, ENTER, Terminal};
use tokio::task::block_in_place;

use super::person::{Person, good};
use crate::demo::{claim, with_demo};

#[tokio::test(flavor = "multi_thread")]
async fn a_first_server_from_the_question_for_a_key_to_its_shell() -> anyhow::Result<()> {
    with_demo(async |demo| {
        let ada = Person::new(demo.cluster, "demo").await?;
        let create = ada.devctl(&["create", "box", "-t", "cpu", "--no-persist"]);
        let mut terminal = Terminal::start(create.as_std(), 120, 50)?;
        block_in_place(|| terminal.until("You have no SSH key"))?;
        terminal.type_keys(&format!("y{ENTER}"))?;
        block_in_place(|| terminal.until("box is ready"))?;
        // Asked once, and never again.
        block_in_place(|| terminal.until("reach your servers as NAME.odc?"))?;
        terminal.type_keys(&format!("y{ENTER}"))?;
        block_in_place(|| terminal.until("reach your servers now"))?;

        // Its shell opens by itself. What was typed and what was answered look different.
        terminal.type_keys(&format!("echo in-$ODC_SERVER{ENTER}"))?;
        block_in_place(|| terminal.until("in-box"))?;
        // Ctrl-C is for what runs there. It says itself that it does: between two commands the shell would hear the key.
        terminal.type_keys(&format!("sh -c 'echo n\"\"ow; exec sleep 1000'{ENTER}"))?;
        block_in_place(|| terminal.until_screen("now", |screen| screen.lines().any(|line| line.trim() == "now")))?;
        terminal.type_keys(CTRL_C)?;
        terminal.type_keys(&format!("echo code-$?{ENTER}"))?;
        block_in_place(|| terminal.until("code-130"))?;
        terminal.type_keys(&format!("exit 3{ENTER}"))?;
        let (code, screen) = block_in_place(|| terminal.end())?;
        assert_eq!(code, Some(3), "{screen}");
        let plain = good(ada.openssh("ssh").args(["-oControlPersist=no", "box.odc", "echo plain"])).await?;
        assert_eq!(plain, "plain\n");
        let view = ada.good(&["config", "view", "-o", "json"]).await?;
        assert!(view.contains(r#"{"key":"ssh.include","value":"true""#), "{view}");
        Ok(())
    })
    .await
}

/// OpenSSH throws away what a `ProxyCommand` says while connections are kept open; people still see it.
#[tokio::test(flavor = "multi_thread")]
async fn plain_ssh_shows_what_it_waits_for() -> anyhow::Result<()> {
    with_demo(async |demo| {
        claim(demo, "seen").await?;
        let ada = Person::new(demo.cluster, "demo").await?;
        ada.good(&["create", "box", "-t", "cpu", "--home-claim", "seen", "--wait", "--yes"]).await?;
        ada.good(&["hibernate", "box"]).await?;
        ada.good(&["config-ssh"]).await?;

        let mut ssh = ada.openssh("ssh");
        ssh.args(["box.odc", "echo aw''ake"]);
        let mut terminal = Terminal::start(ssh.as_std(), 120, 50)?;
        block_in_place(|| terminal.until("Waking box"))?;
        block_in_place(|| terminal.until("awake"))?;
        let (code, screen) = block_in_place(|| terminal.end())?;
        assert_eq!(code, Some(0), "{screen}");
        good(ada.openssh("ssh").args(["-O", "exit", "box.odc"])).await.map(drop)
    })
    .await
}
