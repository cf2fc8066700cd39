//! User keys with and without a passphrase, and host keys of recreated servers.

use anyhow::Context as _;
use odc_tests::terminal::{ENTER, Terminal};
use odc_tests::wait;
use serde_json::Value;
use tokio::task::block_in_place;

use super::user::{User, output, success, write};
use crate::tenant::{TIMEOUT, with_tenant};

#[tokio::test(flavor = "multi_thread")]
async fn key_with_passphrase_needs_agent_or_prompt() -> anyhow::Result<()> {
    with_tenant(async |tenant| {
        let ada = User::new(tenant.cluster, &tenant.user).await?;
        let key = ada.path(".ssh/id_ed25519");
        std::fs::create_dir(ada.path(".ssh"))?;
        success(ada.program("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "secret", "-f"]).arg(&key)).await?;
        ada.create("box").await?;

        // Without a terminal, the error names the passphrase.
        let refused = ada.run(&["ssh", "box", "--", "true"]).await?;
        assert_eq!(refused.code, Some(4), "{refused:#?}");
        assert!(refused.err.contains("has a passphrase") && refused.err.contains("ssh-add"), "{refused:#?}");
        let shown = ada.run(&["show", "box", "-o", "json"]).await?;
        assert_eq!(shown.code, Some(0), "{shown:#?}");
        assert!(
            shown.err.contains("could not query the activity of server box") && shown.err.contains("ssh-add"),
            "{shown:#?}"
        );
        assert_eq!(serde_json::from_str::<Value>(&shown.out)?["activity"], Value::Null);

        // On a terminal, ssh prompts.
        let show = ada.devctl(&["show", "box", "-o", "json"]);
        let mut terminal = Terminal::start(show.as_std(), 120, 100)?;
        block_in_place(|| terminal.wait_for("Enter passphrase"))?;
        terminal.type_keys(&format!("secret{ENTER}"))?;
        let (code, screen) = block_in_place(|| terminal.wait_exit())?;
        assert_eq!((code, screen.contains("\"openSessions\"")), (Some(0), true), "{screen}");

        // With an agent there is no prompt.
        write(&ada.path("answer"), "#!/bin/sh\necho secret\n")?;
        let script = "chmod +x answer && eval \"$(ssh-agent)\" >/dev/null && trap 'ssh-agent -k >/dev/null' EXIT \
                      && SSH_ASKPASS=./answer SSH_ASKPASS_REQUIRE=force ssh-add -q .ssh/id_ed25519 && \"$@\"";
        let devctl = ada.devctl(&["show", "box", "-o", "json"]);
        let mut by_agent = ada.program("sh");
        by_agent.args(["-c", script, "sh"]).arg(devctl.as_std().get_program()).args(devctl.as_std().get_args());
        by_agent.envs(devctl.as_std().get_envs().filter_map(|(name, value)| Some((name, value?))));
        let shown: Value = serde_json::from_str(&success(&mut by_agent).await?)?;
        assert!(shown["activity"]["openSessions"].is_u64(), "{shown}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn recreated_server_has_a_new_host_key() -> anyhow::Result<()> {
    with_tenant(async |tenant| {
        let ada = User::new(tenant.cluster, &tenant.user).await?;
        ada.create("box").await?;
        ada.success(&["config-ssh"]).await?;
        let connect = async || success(ada.openssh("ssh").args(["-oControlPersist=no", "box.odc", "echo in"])).await;
        assert_eq!(connect().await?, "in\n");
        let hosts = ada.path(".ssh/odc/known_hosts");
        let old = std::fs::read_to_string(&hosts)?;
        assert!(old.starts_with("box.odc ssh-ed25519 "), "{old}");
        // Delete and create without a pause.
        ada.success(&["delete", "box", "--yes"]).await?;
        assert_eq!(std::fs::read_to_string(&hosts)?, "");
        ada.create("box").await?;
        let by_ssh = output(ada.openssh("ssh").args(["-oControlPersist=no", "box.odc", "echo in"])).await?;
        assert_eq!((by_ssh.out.as_str(), by_ssh.code), ("in\n", Some(0)), "{by_ssh:#?}");
        assert!(!by_ssh.err.to_lowercase().contains("host key"), "{by_ssh:#?}");
        assert_ne!(std::fs::read_to_string(&hosts)?, old);
        Ok(())
    })
    .await
}

/// The image has no JupyterLab, so a stub stands for it.
#[tokio::test]
async fn show_prints_the_jupyter_token() -> anyhow::Result<()> {
    with_tenant(async |tenant| {
        let ada = User::new(tenant.cluster, &tenant.user).await?;
        let stub = "printf '#!/bin/sh\\nexec sleep 1000\\n' >/usr/local/bin/jupyter-lab\nchmod +x /usr/local/bin/jupyter-lab\n";
        write(&ada.path("stub"), stub)?;
        ada.success(&["create", "box", "-t", "cpu", "--no-persist", "--setup", "stub", "--wait", "--yes"]).await?;
        ada.success(&["edit", "box", "--enable-jupyter"]).await?;
        let jupyter = wait::until("Jupyter has started", TIMEOUT, async || {
            let shown: Value = serde_json::from_str(&ada.success(&["show", "box", "-o", "json"]).await?)?;
            let jupyter = shown["activity"]["jupyter"].clone();
            anyhow::ensure!(jupyter["token"].is_string(), "{shown}");
            Ok(jupyter)
        })
        .await?;
        let token = jupyter["token"].as_str().context("a token")?;
        assert!(token.len() >= 32, "{jupyter}");
        assert_eq!(jupyter["port"], 8888);
        let details = ada.success(&["show", "box"]).await?;
        assert!(details.contains(&format!("?token={token}")), "{details}");
        Ok(())
    })
    .await
}
