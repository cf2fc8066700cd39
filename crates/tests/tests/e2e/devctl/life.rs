//! A server's life by devctl alone, and two people who do not see each other.

use serde_json::Value;

use super::person::{Person, good, said};
use crate::demo::{claim, with_demo};

#[tokio::test]
async fn a_person_lives_with_devctl() -> anyhow::Result<()> {
    with_demo(async |demo| {
        claim(demo, "work").await?;
        let ada = Person::new(demo.cluster, "demo").await?;
        let words = ["create", "box", "-t", "cpu", "--home-claim", "work", "--time", "8h", "--wait", "--yes"];
        let made = ada.say(&words).await?;
        assert_eq!(made.code, Some(0), "{made:#?}");
        assert!(made.err.contains("Made an SSH key"), "whoever has none gets one: {made:#?}");
        assert_eq!(ada.good(&["ssh", "box", "--", "echo precious > kept; echo $ODC_SERVER"]).await?, "box\n");

        // What its owner put to sleep, its owner wakes.
        ada.good(&["hibernate", "box"]).await?;
        assert_eq!(demo.get("box").await?["spec"]["desired"], "Hibernated");
        let refused = ada.say(&["ssh", "box", "--no-wake", "--", "true"]).await?;
        assert_eq!(refused.code, Some(5), "{refused:#?}");
        assert!(refused.err.contains("box is asleep"), "{refused:#?}");
        let woken = ada.say(&["ssh", "box", "--", "cat kept"]).await?;
        assert_eq!((woken.out.as_str(), woken.code), ("precious\n", Some(0)), "{woken:#?}");
        assert!(woken.err.contains("Waking box"), "{woken:#?}");
        let server = demo.get("box").await?;
        assert_eq!(server["spec"]["desired"], "Running");
        assert_eq!(server["spec"]["wake"], Value::Null);

        ada.good(&["extend", "box", "2h"]).await?;
        assert_eq!(demo.get("box").await?["status"]["lifetime"]["granted"], "10h");

        let shown: Value = serde_json::from_str(&ada.good(&["show", "box", "-o", "json"]).await?)?;
        assert_eq!(shown["name"], "box", "{shown}");
        assert_eq!(shown["phase"], "Running", "{shown}");
        let signal = &shown["activity"]["lastSignal"];
        assert!(signal["kind"].is_string() && signal["secondsAgo"].is_u64(), "a command was run there: {shown}");

        ada.good(&["delete", "box", "--yes", "--wait"]).await?;
        let ended = ada.say(&["ssh", "box", "--", "true"]).await?;
        assert_eq!(ended.code, Some(5), "{ended:#?}");
        assert!(ended.err.contains("box was ended"), "{ended:#?}");
        let never = ada.say(&["ssh", "bix", "--", "true"]).await?;
        assert_eq!(never.code, Some(3), "{never:#?}");
        assert!(never.err.contains("there is no server bix"), "{never:#?}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_server_that_fell_asleep_is_woken_by_plain_ssh() -> anyhow::Result<()> {
    with_demo(async |demo| {
        claim(demo, "idle").await?;
        let ada = Person::new(demo.cluster, "demo").await?;
        let words = ["--home-claim", "idle", "--idle", "1m", "--idle-action", "hibernate", "--wait", "--yes"];
        ada.good(&[&["create", "idle", "-t", "cpu"], &words[..]].concat()).await?;
        ada.good(&["config-ssh"]).await?;
        let asleep = demo.until_phase("idle", "Hibernated").await?;
        assert_eq!(asleep["status"]["hibernation"]["by"], "Idle");

        let woken = said(ada.openssh("ssh").args(["-oControlPersist=no", "idle.odc", "echo awake"])).await?;
        assert_eq!((woken.out.as_str(), woken.code), ("awake\n", Some(0)), "{woken:#?}");
        assert!(woken.err.contains("Waking idle"), "{woken:#?}");
        let server = demo.get("idle").await?;
        assert_eq!(server["spec"]["desired"], "Running", "nobody said that it should sleep");
        assert_ne!(server["spec"]["wake"], Value::Null, "a new value woke it");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn two_people_at_once_see_only_what_is_theirs() -> anyhow::Result<()> {
    with_demo(async |demo| {
        let (ada, bob) = (Person::new(demo.cluster, "demo").await?, Person::new(demo.cluster, "bob").await?);
        let both = async {
            // The same name is two servers.
            tokio::try_join!(ada.create("box"), bob.create("box"))?;
            bob.create("secret").await?;
            let (one, other) = tokio::try_join!(
                ada.good(&["ssh", "box", "--", "echo ada > who; sync; cat who; hostname"]),
                bob.good(&["ssh", "box", "--", "echo bob > who; sync; cat who; hostname"]),
            )?;
            assert_eq!((one.as_str(), other.as_str()), ("ada\nbox-0\n", "bob\nbox-0\n"));

            assert_eq!(ada.good(&["list", "-o", "name"]).await?, "box\n");
            for words in [&["ssh", "secret", "--", "true"][..], &["show", "secret"], &["logs", "secret"]] {
                let unseen = ada.say(words).await?;
                assert_eq!(unseen.code, Some(3), "{unseen:#?}");
                assert!(unseen.err.contains("there is no server secret"), "{unseen:#?}");
            }
            let elsewhere = ada.say(&["--namespace", "dev-bob", "ssh", "secret", "--", "true"]).await?;
            assert_eq!(elsewhere.code, Some(4), "{elsewhere:#?}");

            // Whoever is let in by name is let in, and nobody else.
            ada.good(&["config-ssh"]).await?;
            let plain = good(ada.openssh("ssh").args(["-oControlPersist=no", "box.odc", "cat who"])).await?;
            assert_eq!(plain, "ada\n");
            anyhow::Ok(())
        };
        let done = both.await;
        bob.say(&["delete", "--all", "--yes", "--wait"]).await?;
        demo.kubectl_as("odc-local", &["delete", "devserveruser", "bob"], None).await?;
        done
    })
    .await
}
