//! The queue of a full flavor from the view of a user.

use odc_tests::wait;
use serde_json::Value;

use super::user::User;
use crate::tenant::{TIMEOUT, with_exclusive_tenant};

/// Returns the arguments to create a whole node for two hours.
fn whole_node<'a>(name: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let words =
        ["create", name, "-t", "gpu", "-g", "8", "--lifetime", "2h", "--no-persist", "--idle-action", "none", "--yes"];
    [&words[..], more].concat()
}

async fn json(user: &User, words: &[&str]) -> anyhow::Result<Value> {
    let words = [words, &["-o", "json"]].concat();
    let output = user.run(&words).await?;
    anyhow::ensure!(output.code == Some(0) && output.err.is_empty(), "{words:?}: {output:#?}");
    Ok(serde_json::from_str(&output.out)?)
}

/// Waits for the leader election of a new operator.
async fn until_queue_responds(user: &User) -> anyhow::Result<()> {
    wait::until("the queue responds", TIMEOUT, async || json(user, &["queue"]).await.map(drop)).await
}

#[tokio::test]
async fn pending_server_has_an_estimate_and_starts() -> anyhow::Result<()> {
    with_exclusive_tenant(async |tenant| {
        let ada = User::new(tenant.cluster, &tenant.user).await?;
        until_queue_responds(&ada).await?;
        let free = ada.run(&whole_node("first", &["--dry-run"])).await?;
        assert!(free.err.contains("Would start immediately."), "{free:#?}");
        for name in ["first", "second"] {
            ada.success(&whole_node(name, &["--wait"])).await?;
        }

        // Each size has an estimate although nothing is free.
        let avail = json(&ada, &["avail", "gpu"]).await?;
        let starts = avail[0]["starts"].as_array().map(Vec::as_slice).unwrap_or_default();
        let sizes: Vec<_> = starts.iter().map(|size| (size["gpus"].as_u64(), size["nodes"].as_u64())).collect();
        let expected = [(1, 1), (2, 1), (4, 1), (8, 1), (8, 2), (8, 3), (8, 4), (8, 5), (8, 6)];
        assert_eq!(sizes, expected.map(|(gpus, nodes)| (Some(gpus), Some(nodes))), "{avail:#}");
        for size in &starts[..5] {
            assert!(size["now"] == false && size["p50"].is_string() && size["p90"].is_string(), "{size:#}");
        }
        for size in &starts[5..] {
            assert!(size["p50"].is_null() && size["message"].is_string(), "there are two nodes: {avail:#}");
        }

        let output = ada.run(&whole_node("third", &["--dry-run"])).await?;
        for words in [
            "Would start in about",
            "(90% within",
            "queue position 1",
            "Insufficient nvidia.com/gpu: requires 8 on one node",
        ] {
            assert!(output.err.contains(words), "{words}: {output:#?}");
        }

        let mut waiting = ada.devctl(&whole_node("third", &["--wait"]));
        let waiting = tokio::spawn(async move { super::user::output(&mut waiting).await });
        let queue = wait::until("third is queued with an estimate", TIMEOUT, async || {
            let queue = json(&ada, &["queue"]).await?;
            anyhow::ensure!(queue[0]["queue"]["eta"]["p50"].is_string(), "{queue:#}");
            Ok(queue)
        })
        .await?;
        assert_eq!((&queue[0]["name"], &queue[0]["queue"]["position"]), (&"third".into(), &1.into()), "{queue:#}");
        assert!(queue[0]["queue"]["eta"]["latest"].is_string(), "{queue:#}");
        let table = ada.success(&["queue"]).await?;
        assert!(table.contains("third") && table.contains("in about") && table.contains("within"), "{table}");
        let status = json(&ada, &["status"]).await?;
        assert_eq!((&status["pending"][0]["name"], &status["queueLength"]), (&"third".into(), &1.into()), "{status:#}");
        let all = json(&ada, &["queue", "--all"]).await?;
        assert_eq!((&all[0]["name"], &all[0]["owner"]), (&"third".into(), &tenant.user.as_str().into()), "{all:#}");
        let calibration = json(&ada, &["queue", "--calibration"]).await?;
        assert!(calibration["flavors"].as_array().is_some_and(|flavors| flavors.len() == 2), "{calibration:#}");

        ada.success(&["delete", "first", "--yes"]).await?;
        let started = waiting.await??;
        assert_eq!(started.code, Some(0), "{started:#?}");
        assert!(started.err.contains("third: queue position 1, starts in "), "{started:#?}");
        assert_eq!(tenant.get("third").await?["status"]["phase"], "Running");
        assert_eq!(json(&ada, &["queue"]).await?, serde_json::json!([]));
        Ok(())
    })
    .await
}

#[tokio::test]
async fn booking_is_confirmed_and_respected() -> anyhow::Result<()> {
    with_exclusive_tenant(async |tenant| {
        let ada = User::new(tenant.cluster, &tenant.user).await?;
        until_queue_responds(&ada).await?;
        let output = ada.run(&whole_node("meeting", &["--at", "+20m", "--dry-run"])).await?;
        assert!(output.err.contains("Would start at"), "{output:#?}");
        ada.success(&whole_node("meeting", &["--at", "+20m"])).await?;
        let queue = wait::until("the booking is in the queue", TIMEOUT, async || {
            let queue = json(&ada, &["queue"]).await?;
            anyhow::ensure!(queue[0]["queue"]["reason"] == "Booked", "{queue:#}");
            Ok(queue)
        })
        .await?;
        assert!(queue[0]["queue"]["position"].is_null() && queue[0]["notBefore"].is_string(), "{queue:#}");
        for words in [&["list"][..], &["queue"], &["show", "meeting", "--offline"]] {
            let shown = ada.success(words).await?;
            assert!(shown.contains("booked"), "{words:?}: {shown}");
        }
        // Two nodes for longer would delay the booking; one node would not.
        let both =
            ["create", "both", "-t", "gpu", "-g", "16", "-d", "--lifetime", "2h", "--no-persist", "--yes", "--dry-run"];
        let output = ada.run(&both).await?;
        assert!(output.err.contains("Would start in about"), "{output:#?}");
        let one = ada.run(&whole_node("one", &["--dry-run"])).await?;
        assert!(one.err.contains("Would start immediately."), "{one:#?}");
        Ok(())
    })
    .await
}
