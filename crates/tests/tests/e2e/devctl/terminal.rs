//! Sessions on a real terminal.

use odc_tests::terminal::{CTRL_C, ENTER, Terminal};
use tokio::task::block_in_place;

use super::user::{User, success};
use crate::tenant::{create_claim, with_tenant};

#[tokio::test(flavor = "multi_thread")]
async fn first_create_prompts_for_key_and_config_ssh_and_opens_a_shell() -> anyhow::Result<()> {
    with_tenant(async |tenant| {
        let ada = User::new(tenant.cluster, &tenant.user).await?;
        let create = ada.devctl(&["create", "box", "-t", "cpu", "--no-persist"]);
        let mut terminal = Terminal::start(create.as_std(), 120, 50)?;
        block_in_place(|| terminal.wait_for("No ed25519 SSH key found"))?;
        terminal.type_keys(ENTER)?;
        block_in_place(|| terminal.wait_for("is ready: cpu"))?;
        // Enter accepts both prompts.
        block_in_place(|| terminal.wait_for("your servers as NAME.odc?"))?;
        terminal.type_keys(ENTER)?;
        block_in_place(|| terminal.wait_for("new servers need no further setup"))?;

        // The shell opens. The typed text differs from the output.
        terminal.type_keys(&format!("echo in-$ODC_SERVER{ENTER}"))?;
        block_in_place(|| terminal.wait_for("in-box"))?;
        // Ctrl-C goes to the remote command, which prints when it runs.
        terminal.type_keys(&format!("sh -c 'echo n\"\"ow; exec sleep 1000'{ENTER}"))?;
        block_in_place(|| terminal.wait_for_screen("now", |screen| screen.lines().any(|line| line.trim() == "now")))?;
        terminal.type_keys(CTRL_C)?;
        terminal.type_keys(&format!("echo code-$?{ENTER}"))?;
        block_in_place(|| terminal.wait_for("code-130"))?;
        terminal.type_keys(&format!("exit 3{ENTER}"))?;
        let (code, screen) = block_in_place(|| terminal.wait_exit())?;
        assert_eq!(code, Some(3), "{screen}");
        let plain = success(ada.openssh("ssh").args(["-oControlPersist=no", "box.odc", "echo plain"])).await?;
        assert_eq!(plain, "plain\n");
        let view = ada.success(&["config", "view", "-o", "json"]).await?;
        assert!(view.contains(r#"{"key":"ssh.include","value":"true""#), "{view}");
        Ok(())
    })
    .await
}

/// OpenSSH discards the standard error of a `ProxyCommand` with `ControlPersist`.
#[tokio::test(flavor = "multi_thread")]
async fn plain_ssh_shows_wake_progress() -> anyhow::Result<()> {
    with_tenant(async |tenant| {
        create_claim(tenant, "seen").await?;
        let ada = User::new(tenant.cluster, &tenant.user).await?;
        ada.success(&["create", "box", "-t", "cpu", "--home-claim", "seen", "--wait", "--yes"]).await?;
        ada.success(&["hibernate", "box"]).await?;
        ada.success(&["config-ssh"]).await?;

        let mut ssh = ada.openssh("ssh");
        ssh.args(["box.odc", "echo aw''ake"]);
        let mut terminal = Terminal::start(ssh.as_std(), 120, 50)?;
        block_in_place(|| terminal.wait_for("Waking server box"))?;
        block_in_place(|| terminal.wait_for("awake"))?;
        let (code, screen) = block_in_place(|| terminal.wait_exit())?;
        assert_eq!(code, Some(0), "{screen}");
        success(ada.openssh("ssh").args(["-O", "exit", "box.odc"])).await.map(drop)
    })
    .await
}
