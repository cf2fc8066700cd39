//! A full flavor, as the person who waits for it sees it.

use odc_tests::wait;
use serde_json::Value;

use super::person::Person;
use crate::demo::{LIMIT, with_demo};

/// A whole node for two hours.
fn whole_node<'a>(name: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let words =
        ["create", name, "-t", "gpu", "-g", "8", "--time", "2h", "--no-persist", "--idle-action", "none", "--yes"];
    [&words[..], more].concat()
}

async fn json(person: &Person, words: &[&str]) -> anyhow::Result<Value> {
    let words = [words, &["-o", "json"]].concat();
    let said = person.say(&words).await?;
    anyhow::ensure!(said.code == Some(0) && said.err.is_empty(), "{words:?}: {said:#?}");
    Ok(serde_json::from_str(&said.out)?)
}

/// An operator that has just begun takes a moment to lead.
async fn until_it_answers(person: &Person) -> anyhow::Result<()> {
    wait::until("the queue answers", LIMIT, async || json(person, &["queue"]).await.map(drop)).await
}

#[tokio::test]
async fn whoever_waits_sees_when_it_is_their_turn_and_gets_it() -> anyhow::Result<()> {
    with_demo(async |demo| {
        let ada = Person::new(demo.cluster, "demo").await?;
        until_it_answers(&ada).await?;
        let free = ada.say(&whole_node("first", &["--dry-run"])).await?;
        assert!(free.err.contains("It would start at once."), "{free:#?}");
        for name in ["first", "second"] {
            ada.good(&whole_node(name, &["--wait"])).await?;
        }

        // Nothing is free, and each size has a time nevertheless.
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

        let asked = ada.say(&whole_node("third", &["--dry-run"])).await?;
        for words in [
            "It would start in about",
            "(nine of ten start within",
            "at place 1 in the queue",
            "Needs 8 nvidia.com/gpu",
        ] {
            assert!(asked.err.contains(words), "{words}: {asked:#?}");
        }

        // One waits for it, and another one looks on.
        let mut waiting = ada.devctl(&whole_node("third", &["--wait"]));
        let waiting = tokio::spawn(async move { super::person::said(&mut waiting).await });
        let queue = wait::until("third stands in the queue with its times", LIMIT, async || {
            let queue = json(&ada, &["queue"]).await?;
            anyhow::ensure!(queue[0]["queue"]["eta"]["p50"].is_string(), "{queue:#}");
            Ok(queue)
        })
        .await?;
        assert_eq!((&queue[0]["name"], &queue[0]["queue"]["position"]), (&"third".into(), &1.into()), "{queue:#}");
        assert!(queue[0]["queue"]["eta"]["latest"].is_string(), "{queue:#}");
        let table = ada.good(&["queue"]).await?;
        assert!(table.contains("third") && table.contains("in about") && table.contains("within"), "{table}");
        let status = json(&ada, &["status"]).await?;
        assert_eq!((&status["waiting"][0]["name"], &status["queueLength"]), (&"third".into(), &1.into()), "{status:#}");
        let all = json(&ada, &["queue", "--all"]).await?;
        assert_eq!((&all[0]["name"], &all[0]["owner"]), (&"third".into(), &"demo".into()), "{all:#}");
        let kept = json(&ada, &["queue", "--calibration"]).await?;
        assert!(kept["flavors"].as_array().is_some_and(|flavors| flavors.len() == 2), "{kept:#}");

        ada.good(&["delete", "first", "--yes"]).await?;
        let came = waiting.await??;
        assert_eq!(came.code, Some(0), "{came:#?}");
        assert!(came.err.contains("third: place 1 in the queue, starts in "), "{came:#?}");
        assert_eq!(demo.get("third").await?["status"]["phase"], "Running");
        assert_eq!(json(&ada, &["queue"]).await?, serde_json::json!([]));
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_booking_keeps_its_time() -> anyhow::Result<()> {
    with_demo(async |demo| {
        let ada = Person::new(demo.cluster, "demo").await?;
        until_it_answers(&ada).await?;
        let asked = ada.say(&whole_node("meeting", &["--at", "+20m", "--dry-run"])).await?;
        assert!(asked.err.contains("Its booked time is promised"), "{asked:#?}");
        ada.good(&whole_node("meeting", &["--at", "+20m"])).await?;
        let queue = wait::until("the booking is in the queue", LIMIT, async || {
            let queue = json(&ada, &["queue"]).await?;
            anyhow::ensure!(queue[0]["queue"]["reason"] == "Booked", "{queue:#}");
            Ok(queue)
        })
        .await?;
        assert!(queue[0]["queue"]["position"].is_null() && queue[0]["notBefore"].is_string(), "{queue:#}");
        for words in [&["list"][..], &["queue"], &["show", "meeting", "--offline"]] {
            let shown = ada.good(words).await?;
            assert!(shown.contains("booked"), "{words:?}: {shown}");
        }
        // Both nodes for longer than that would be in its way; one node is not.
        let both =
            ["create", "both", "-t", "gpu", "-g", "16", "-d", "--time", "2h", "--no-persist", "--yes", "--dry-run"];
        let asked = ada.say(&both).await?;
        assert!(asked.err.contains("It would start in about"), "{asked:#?}");
        let one = ada.say(&whole_node("one", &["--dry-run"])).await?;
        assert!(one.err.contains("It would start at once."), "{one:#?}");
        Ok(())
    })
    .await
}
