//! The life cycle of a server through devctl, and isolation of users.

use serde_json::Value;

use super::user::{User, output, success};
use crate::tenant::{create_claim, with_tenant};

#[tokio::test]
async fn created_server_runs_a_command_and_is_deleted() -> anyhow::Result<()> {
    with_tenant(async |tenant| {
        create_claim(tenant, "work").await?;
        let ada = User::new(tenant.cluster, &tenant.user).await?;
        let words = ["create", "box", "-t", "cpu", "--home-claim", "work", "--lifetime", "8h", "--wait", "--yes"];
        let created = ada.run(&words).await?;
        assert_eq!(created.code, Some(0), "{created:#?}");
        assert!(created.err.contains("Created SSH key"), "{created:#?}");
        assert_eq!(ada.success(&["ssh", "box", "--", "echo precious > kept; echo $ODC_SERVER"]).await?, "box\n");

        // A server hibernated by its user is woken by `ssh`.
        ada.success(&["hibernate", "box"]).await?;
        assert_eq!(tenant.get("box").await?["spec"]["desired"], "Hibernated");
        let refused = ada.run(&["ssh", "box", "--no-wake", "--", "true"]).await?;
        assert_eq!(refused.code, Some(5), "{refused:#?}");
        assert!(refused.err.contains("server box is hibernated"), "{refused:#?}");
        let woken = ada.run(&["ssh", "box", "--", "cat kept"]).await?;
        assert_eq!((woken.out.as_str(), woken.code), ("precious\n", Some(0)), "{woken:#?}");
        assert!(woken.err.contains("Waking server box"), "{woken:#?}");
        let server = tenant.get("box").await?;
        assert_eq!(server["spec"]["desired"], "Running");
        assert_eq!(server["spec"]["wake"], Value::Null);

        ada.success(&["extend", "box", "2h"]).await?;
        assert_eq!(tenant.get("box").await?["status"]["lifetime"]["granted"], "10h");

        let shown: Value = serde_json::from_str(&ada.success(&["show", "box", "-o", "json"]).await?)?;
        assert_eq!(shown["name"], "box", "{shown}");
        assert_eq!(shown["phase"], "Running", "{shown}");
        let signal = &shown["activity"]["lastSignal"];
        assert!(signal["kind"].is_string() && signal["secondsAgo"].is_u64(), "a command was run there: {shown}");

        ada.success(&["delete", "box", "--yes", "--wait"]).await?;
        let finished = ada.run(&["ssh", "box", "--", "true"]).await?;
        assert_eq!(finished.code, Some(5), "{finished:#?}");
        assert!(finished.err.contains("server box was deleted"), "{finished:#?}");
        let never = ada.run(&["ssh", "bix", "--", "true"]).await?;
        assert_eq!(never.code, Some(3), "{never:#?}");
        assert!(never.err.contains("server bix not found"), "{never:#?}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn idle_server_is_woken_by_plain_ssh() -> anyhow::Result<()> {
    with_tenant(async |tenant| {
        create_claim(tenant, "idle").await?;
        let ada = User::new(tenant.cluster, &tenant.user).await?;
        let words = ["--home-claim", "idle", "--idle", "1m", "--idle-action", "hibernate", "--wait", "--yes"];
        ada.success(&[&["create", "idle", "-t", "cpu"], &words[..]].concat()).await?;
        ada.success(&["config-ssh"]).await?;
        let hibernated = tenant.wait_for_phase("idle", "Hibernated").await?;
        assert_eq!(hibernated["status"]["hibernation"]["cause"], "Idle");

        let woken = output(ada.openssh("ssh").args(["-oControlPersist=no", "idle.odc", "echo ready"])).await?;
        assert_eq!((woken.out.as_str(), woken.code), ("ready\n", Some(0)), "{woken:#?}");
        assert!(woken.err.contains("Waking server idle"), "{woken:#?}");
        let server = tenant.get("idle").await?;
        assert_eq!(server["spec"]["desired"], "Running", "the desired state is unchanged");
        assert_ne!(server["spec"]["wake"], Value::Null, "a new value of spec.wake woke it");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn users_see_only_their_own_servers() -> anyhow::Result<()> {
    with_tenant(async |tenant| {
        let (ada, bob) = (User::new(tenant.cluster, &tenant.user).await?, User::new(tenant.cluster, "bob").await?);
        let both = async {
            // Two servers with the same name.
            tokio::try_join!(ada.create("box"), bob.create("box"))?;
            bob.create("secret").await?;
            let (one, other) = tokio::try_join!(
                ada.success(&["ssh", "box", "--", "echo ada > who; sync; cat who; hostname"]),
                bob.success(&["ssh", "box", "--", "echo bob > who; sync; cat who; hostname"]),
            )?;
            assert_eq!((one.as_str(), other.as_str()), ("ada\nbox-0\n", "bob\nbox-0\n"));

            assert_eq!(ada.success(&["list", "-o", "name"]).await?, "box\n");
            for words in [&["ssh", "secret", "--", "true"][..], &["show", "secret"], &["logs", "secret"]] {
                let unseen = ada.run(words).await?;
                assert_eq!(unseen.code, Some(3), "{unseen:#?}");
                assert!(unseen.err.contains("server secret not found"), "{unseen:#?}");
            }
            let elsewhere = ada.run(&["--namespace", "dev-bob", "ssh", "secret", "--", "true"]).await?;
            assert_eq!(elsewhere.code, Some(4), "{elsewhere:#?}");

            ada.success(&["config-ssh"]).await?;
            let plain = success(ada.openssh("ssh").args(["-oControlPersist=no", "box.odc", "cat who"])).await?;
            assert_eq!(plain, "ada\n");
            anyhow::Ok(())
        };
        let done = both.await;
        bob.run(&["delete", "--all", "--yes", "--wait"]).await?;
        tenant.kubectl_as_admin(&["delete", "devserveruser", "bob"], None).await?;
        done
    })
    .await
}
