//! Keys: of people, with a passphrase and without, and of servers that come again under an old name.

use anyhow::Context as _;
use odc_tests::terminal::{ENTER, Terminal};
use odc_tests::wait;
use serde_json::Value;
use tokio::task::block_in_place;

use super::person::{Person, good, said, write};
use crate::demo::{LIMIT, with_demo};

#[tokio::test(flavor = "multi_thread")]
async fn a_key_with_a_passphrase_is_unlocked_or_asked_for() -> anyhow::Result<()> {
    with_demo(async |demo| {
        let ada = Person::new(demo.cluster, "demo").await?;
        let key = ada.path(".ssh/id_ed25519");
        std::fs::create_dir(ada.path(".ssh"))?;
        good(ada.program("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "secret", "-f"]).arg(&key)).await?;
        ada.create("box").await?;

        // Nobody can be asked: what is wrong is the passphrase, not the server.
        let refused = ada.say(&["ssh", "box", "--", "true"]).await?;
        assert_eq!(refused.code, Some(4), "{refused:#?}");
        assert!(refused.err.contains("has a passphrase") && refused.err.contains("ssh-add"), "{refused:#?}");
        let shown = ada.say(&["show", "box", "-o", "json"]).await?;
        assert_eq!(shown.code, Some(0), "{shown:#?}");
        assert!(shown.err.contains("box itself could not be asked") && shown.err.contains("ssh-add"), "{shown:#?}");
        assert_eq!(serde_json::from_str::<Value>(&shown.out)?["activity"], Value::Null);

        // On a terminal ssh asks itself.
        let show = ada.devctl(&["show", "box", "-o", "json"]);
        let mut terminal = Terminal::start(show.as_std(), 120, 100)?;
        block_in_place(|| terminal.until("Enter passphrase"))?;
        terminal.type_keys(&format!("secret{ENTER}"))?;
        let (code, screen) = block_in_place(|| terminal.end())?;
        assert_eq!((code, screen.contains("\"openSessions\"")), (Some(0), true), "{screen}");

        // A key agent is enough.
        write(&ada.path("answer"), "#!/bin/sh\necho secret\n")?;
        let script = "chmod +x answer && eval \"$(ssh-agent)\" >/dev/null && trap 'ssh-agent -k >/dev/null' EXIT \
                      && SSH_ASKPASS=./answer SSH_ASKPASS_REQUIRE=force ssh-add -q .ssh/id_ed25519 && \"$@\"";
        let devctl = ada.devctl(&["show", "box", "-o", "json"]);
        let mut by_agent = ada.program("sh");
        by_agent.args(["-c", script, "sh"]).arg(devctl.as_std().get_program()).args(devctl.as_std().get_args());
        by_agent.envs(devctl.as_std().get_envs().filter_map(|(name, value)| Some((name, value?))));
        let shown: Value = serde_json::from_str(&good(&mut by_agent).await?)?;
        assert!(shown["activity"]["openSessions"].is_u64(), "{shown}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_new_server_under_an_old_name_is_entered_at_once() -> anyhow::Result<()> {
    with_demo(async |demo| {
        let ada = Person::new(demo.cluster, "demo").await?;
        ada.create("box").await?;
        ada.good(&["config-ssh"]).await?;
        let enter = async || good(ada.openssh("ssh").args(["-oControlPersist=no", "box.odc", "echo in"])).await;
        assert_eq!(enter().await?, "in\n");
        let hosts = ada.path(".ssh/odc/known_hosts");
        let old = std::fs::read_to_string(&hosts)?;
        assert!(old.starts_with("box.odc ssh-ed25519 "), "{old}");
        // Given back and asked for again without a pause.
        ada.good(&["delete", "box", "--yes"]).await?;
        assert_eq!(std::fs::read_to_string(&hosts)?, "");
        ada.create("box").await?;
        let by_ssh = said(ada.openssh("ssh").args(["-oControlPersist=no", "box.odc", "echo in"])).await?;
        assert_eq!((by_ssh.out.as_str(), by_ssh.code), ("in\n", Some(0)), "{by_ssh:#?}");
        assert!(!by_ssh.err.to_lowercase().contains("host key"), "{by_ssh:#?}");
        assert_ne!(std::fs::read_to_string(&hosts)?, old);
        Ok(())
    })
    .await
}

/// A stub stands for Jupyter Lab, which the image has not.
#[tokio::test]
async fn the_token_of_notebooks_is_shown() -> anyhow::Result<()> {
    with_demo(async |demo| {
        let ada = Person::new(demo.cluster, "demo").await?;
        let stub = "printf '#!/bin/sh\\nexec sleep 1000\\n' >/usr/local/bin/jupyter-lab\nchmod +x /usr/local/bin/jupyter-lab\n";
        write(&ada.path("stub"), stub)?;
        ada.good(&["create", "box", "-t", "cpu", "--no-persist", "--setup", "stub", "--wait", "--yes"]).await?;
        ada.good(&["edit", "box", "--enable-jupyter"]).await?;
        let jupyter = wait::until("Jupyter is started", LIMIT, async || {
            let shown: Value = serde_json::from_str(&ada.good(&["show", "box", "-o", "json"]).await?)?;
            let jupyter = shown["activity"]["jupyter"].clone();
            anyhow::ensure!(jupyter["token"].is_string(), "{shown}");
            Ok(jupyter)
        })
        .await?;
        let token = jupyter["token"].as_str().context("a token")?;
        assert!(token.len() >= 32, "{jupyter}");
        assert_eq!(jupyter["port"], 8888);
        let panel = ada.good(&["show", "box"]).await?;
        assert!(panel.contains(&format!("?token={token}")), "{panel}");
        Ok(())
    })
    .await
}
