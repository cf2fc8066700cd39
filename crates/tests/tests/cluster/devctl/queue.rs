//! What devctl says of the queue where the queue itself can be asked, and what where it cannot.

use std::process::Stdio;

use anyhow::Context as _;
use odc_tests::terminal::{CTRL_C, ENTER, Terminal};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::task::block_in_place;

use super::oracle::Oracle;
use super::scene::{Scene, after, ago, steady, with_scene};
use super::watch::LIMIT;

const OWN: &str = "/namespaces/dev-ada";

fn start(half: i64, most: i64) -> Value {
    json!({"now": false, "p50": after(half), "p90": after(most), "latest": after(most + 3600)})
}

fn entry(position: i64, half: i64) -> Value {
    json!({"metadata": {"name": "train", "namespace": "dev-ada"}, "flavor": "h100", "count": 8, "nodes": 2,
        "priority": "Normal", "position": position, "queuedAt": ago(600), "start": start(half, 3 * half),
        "reason": "InsufficientCapacity", "message": "Needs 8 nvidia.com/gpu on each of 2 nodes; none is free."})
}

fn waiting(position: i64, count: u32, half: i64) -> Value {
    json!({"position": position, "count": count, "nodes": 1, "priority": "High", "queuedAt": ago(1200), "start": start(half, 2 * half)})
}

/// Three wait, one of them ada's; the status of hers says something older.
async fn three_wait(scene: &Scene<'_>) -> anyhow::Result<Oracle> {
    scene.every_state().await?;
    let oracle = Oracle::start(&scene.plane.client).await?;
    oracle.list(&format!("{OWN}/queueentries"), json!([entry(2, 4828)]));
    let mine = json!({"position": 2, "count": 8, "nodes": 2, "priority": "Normal", "queuedAt": ago(600), "start": start(4828, 14484)});
    let kept = json!({"promises": 40, "keptP50": 22, "keptP90": 37});
    oracle.list("/queues", json!([
        {"metadata": {"name": "cpu"}, "waiting": []},
        {"metadata": {"name": "h100"}, "calibration": kept, "waiting": [waiting(1, 8, 1228), mine, waiting(3, 1, 9028)]},
    ]));
    let size = |count: u32, nodes: u32, start: Value| json!({"count": count, "nodes": nodes, "start": start});
    let now = json!({"now": true});
    let never = json!({"count": 8, "nodes": 4, "start": {}, "message": "There are no 4 such nodes."});
    oracle.list(&format!("{OWN}/availabilities"), json!([
        {"metadata": {"name": "cpu"}, "sizes": [size(0, 1, now.clone())]},
        {"metadata": {"name": "h100"}, "sizes": [size(1, 1, now.clone()), size(2, 1, now), size(4, 1, start(2428, 7228)),
            size(8, 1, start(4828, 10828)), size(8, 2, start(9028, 18028)), never]},
    ]));
    let status = json!({"start": start(4828, 10828), "position": 4, "reason": "InsufficientCapacity",
        "message": "Needs 8 nvidia.com/gpu on one node; at most 3 are free on one node, 6 in all."});
    oracle.answer(&format!("{OWN}/dryruns"), json!({"metadata": {}, "spec": {}, "status": status}));
    Ok(oracle)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_queue_is_shown_as_it_is_this_moment() -> anyhow::Result<()> {
    with_scene(async |scene| {
        let _oracle = three_wait(scene).await?;
        for (name, words) in [
            ("live_queue", &["queue"][..]),
            ("live_queue_all", &["queue", "--all"]),
            ("live_calibration", &["queue", "--calibration"]),
            ("live_avail", &["avail"]),
            ("live_status", &["status"]),
        ] {
            for columns in [80, 200] {
                let screen = block_in_place(|| super::look::on_terminal(scene, words, columns))?;
                insta::assert_snapshot!(format!("{name}_{columns}"), screen);
            }
            let mut words = words.to_vec();
            words.extend(["-o", "json"]);
            let said = scene.machine.devctl("ada", &words).await?;
            assert_eq!(said.err, "", "{words:?}");
            let value: Value = serde_json::from_str(&said.good()?)?;
            insta::assert_snapshot!(format!("{name}_json"), steady(&serde_json::to_string_pretty(&value)?)?);
        }
        let all = scene.machine.devctl("ada", &["queue", "--all", "-o", "name"]).await?.good()?;
        assert_eq!(all, "train\n", "nobody else has a name");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn an_administrator_sees_whose_they_are() -> anyhow::Result<()> {
    with_scene(async |scene| {
        let oracle = three_wait(scene).await?;
        let mut other = entry(1, 1228);
        other["metadata"] = json!({"name": "big", "namespace": "dev-bob"});
        oracle.list("/queueentries", json!([other, entry(2, 4828)]));
        let all = scene.machine.devctl("admin", &["queue", "--all", "-o", "json"]).await?.good()?;
        let all: Vec<Value> = serde_json::from_str(&all)?;
        let owners: Vec<_> = all.iter().map(|row| (row["name"].as_str(), row["owner"].as_str())).collect();
        assert_eq!(owners, [(Some("big"), Some("bob")), (Some("train"), Some("ada"))]);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_dry_run_says_when_it_would_start_and_why_not_now() -> anyhow::Result<()> {
    with_scene(async |scene| {
        let oracle = three_wait(scene).await?;
        let words = [
            "create",
            "big",
            "-t",
            "h100",
            "-g",
            "8",
            "--time",
            "6h",
            "--no-persist",
            "--priority",
            "low",
            "-l",
            "zone=a",
            "--dry-run",
        ];
        let said = scene.machine.devctl("ada", &words).await?;
        insta::assert_snapshot!("live_dry_run_words", steady(&said.err)?);
        let structured = [&words[..], &["-o", "json"]].concat();
        let server: Value = serde_json::from_str(&scene.machine.devctl("ada", &structured).await?.good()?)?;
        insta::assert_snapshot!("live_dry_run_json", steady(&serde_json::to_string_pretty(&server["status"])?)?);
        assert_eq!(scene.servers("ada").get_opt("big").await?.map(|server| server.metadata.name), None);
        let asked = oracle.questions.lock().ok().and_then(|asked| asked.last().cloned()).context("it was asked")?;
        assert_eq!(
            asked["spec"],
            json!({"flavor": "h100", "count": 8, "nodes": 1, "lifetime": "6h", "priority": "Low", "preemptible": false,
                "nodeLabels": {"zone": "a"}})
        );

        let booked = [&words[..], &["--at", "2199-01-31T09:00:00Z"]].concat();
        scene.machine.devctl("ada", &booked).await?.good()?;
        let asked = oracle.questions.lock().ok().and_then(|asked| asked.last().cloned()).context("it was asked")?;
        assert_eq!(asked["spec"]["notBefore"], "2199-01-31T09:00:00Z");
        let at_once = json!({"metadata": {}, "spec": {}, "status": {"start": {"now": true}}});
        oracle.answer(&format!("{OWN}/dryruns"), at_once);
        let said = scene.machine.devctl("ada", &words).await?;
        assert!(said.err.ends_with("It would start at once.\n"), "{}", said.err);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn an_administrator_is_told_what_another_quota_would_change() -> anyhow::Result<()> {
    with_scene(async |scene| {
        let oracle = Oracle::start(&scene.plane.client).await?;
        let team = json!({"apiVersion": "odc.dev/v1alpha1", "kind": "Team", "metadata": {"name": "vision"},
            "spec": {"members": ["ada"], "quota": {"devices": 16, "servers": 40}}});
        odc_tests::odc::apply(&scene.plane.client, &team).await?;
        let changes = json!([{"namespace": "dev-ada", "name": "train", "before": {"now": true}, "after": {"at": after(7228)}},
            {"namespace": "dev-bob", "name": "big", "before": {"at": after(10_828)}, "after": {}}]);
        oracle.answer("/whatifs", json!({"spec": {}, "status": {"waiting": 7, "changes": changes}}));
        let words = ["admin", "team", "what-if", "vision", "--devices", "12"];
        let said = scene.machine.devctl("admin", &words).await?;
        assert_eq!(said.err, "Of 7 that wait, 2 would start at another time. Nothing was changed.\n");
        insta::assert_snapshot!("live_what_if", said.good()?);
        let asked = oracle.questions.lock().ok().and_then(|asked| asked.last().cloned()).context("it was asked")?;
        assert_eq!(asked["spec"], json!({"teams": {"vision": {"devices": 12, "servers": 40}}}));
        let structured = [&words[..], &["-o", "json"]].concat();
        let rows: Value = serde_json::from_str(&scene.machine.devctl("admin", &structured).await?.good()?)?;
        assert_eq!((&rows[1]["owner"], &rows[1]["after"]), (&json!("bob"), &Value::Null), "{rows}");
        assert!(rows[0]["before"].is_string() && rows[0]["after"].is_string(), "{rows}");

        let nothing = scene.machine.devctl("admin", &words[..4]).await?;
        assert_eq!(nothing.code, Some(2), "{}", nothing.err);
        // A person may neither read teams nor ask for everybody.
        let refused = scene.machine.devctl("ada", &words).await?;
        assert_eq!(refused.code, Some(4), "{}", refused.err);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn where_the_queue_cannot_be_asked_that_is_said_once() -> anyhow::Result<()> {
    with_scene(async |scene| {
        let oracle = three_wait(scene).await?;
        let why = async |words: &[&str]| -> anyhow::Result<String> {
            let said = scene.machine.devctl("ada", words).await?;
            assert_eq!(said.code, Some(0), "{words:?}: {}", said.err);
            Ok(said.err)
        };
        let all = [&["queue"][..], &["queue", "--all"], &["avail", "--spot"], &["status"]];
        // Nobody leads, and goes on not to.
        for path in [&format!("{OWN}/queueentries"), &format!("{OWN}/availabilities"), "/queues"] {
            oracle.silence(path);
        }
        let away = "The queue cannot be asked itself (it does not answer within 5 s); this is what statuses say.\n";
        for words in all {
            assert_eq!(why(words).await?, away, "{words:?}");
        }
        // What is shown then is what the status says.
        let own: Value = serde_json::from_str(&scene.machine.devctl("ada", &["queue", "-o", "json"]).await?.good()?)?;
        assert_eq!(own[0]["queue"]["position"], 3, "{own}");
        let untold = scene.machine.devctl("ada", &["queue", "--calibration"]).await?;
        assert_eq!((untold.code, untold.out.as_str()), (Some(1), ""));
        assert!(untold.err.contains("the queue cannot be asked"), "{}", untold.err);

        oracle.unregister().await?;
        for words in all {
            assert_eq!(why(words).await?, super::look::UNASKED, "{words:?}");
        }
        assert_eq!(why(&["queue", "-q"]).await?, "");
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_shows_the_place_as_it_is_now() -> anyhow::Result<()> {
    with_scene(async |scene| {
        let oracle = three_wait(scene).await?;
        let words = ["create", "new", "-t", "h100", "--no-persist", "--no-connect"];
        let mut terminal = Terminal::start(&scene.machine.command("ada", &words)?, 160, 40)?;
        block_in_place(|| terminal.until("asked for"))?;
        let mut own = entry(2, 4828);
        own["metadata"]["name"] = json!("new");
        oracle.list(&format!("{OWN}/queueentries"), json!([own]));
        let status = json!({"phase": "Queued", "admission": {"run": 0, "epoch": 1, "position": 5}});
        scene.status("ada", "new", status).await?;
        let now = "place 2 in the queue, starts in about 1 h 20 m (nine of ten start within 4 h 1 m): Needs 8";
        let screen = block_in_place(|| terminal.until(now))?;
        assert_eq!(screen.matches("in the queue").count(), 1, "{screen}");
        terminal.type_keys(CTRL_C)?;
        block_in_place(|| terminal.until("What about new?"))?;
        terminal.type_keys(CTRL_C)?;
        block_in_place(|| terminal.end())?;
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_picker_says_when_each_size_would_start() -> anyhow::Result<()> {
    with_scene(async |scene| {
        let _oracle = three_wait(scene).await?;
        let words = ["create", "--no-connect", "--dry-run", "--no-persist"];
        let mut terminal = Terminal::start(&scene.machine.command("ada", &words)?, 120, 40)?;
        let screen = block_in_place(|| terminal.until("type to filter]"))?;
        assert!(screen.contains("1, 2 now; 4 ~40m; 8 ~80m; 2×8 ~2h30m"), "{screen}");
        terminal.type_keys(&format!("h100{ENTER}"))?;
        // The last line is drawn after all that can be chosen.
        let drawn = |screen: &str| screen.contains("in about 2 h 30 m") && screen.contains("type to filter]");
        let screen = block_in_place(|| terminal.until_screen("the sizes", drawn))?;
        insta::assert_snapshot!("live_pick_count", steady(&screen[screen.find("? How many").unwrap_or(0)..])?);
        terminal.type_keys(CTRL_C)?;
        let (code, _) = block_in_place(|| terminal.end())?;
        assert_eq!(code, Some(130));
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_watch_asks_again_when_something_changed_and_at_no_other_time() -> anyhow::Result<()> {
    with_scene(async |scene| {
        let oracle = three_wait(scene).await?;
        let mut command = scene.machine.command("ada", &["queue", "--watch", "-o", "json"])?;
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = tokio::process::Command::from(command).kill_on_drop(true).spawn()?;
        let mut lines = BufReader::new(child.stdout.take().context("its data")?).lines();
        let mut next = async || -> anyhow::Result<Value> {
            let line = tokio::time::timeout(LIMIT, lines.next_line()).await??.context("it goes on")?;
            Ok(serde_json::from_str::<Value>(&line)?[0]["queue"]["position"].clone())
        };
        assert_eq!(next().await?, 2);
        // The queue moved, and with it the status of ada's server, in time.
        oracle.list(&format!("{OWN}/queueentries"), json!([entry(1, 1228)]));
        let before = scene.plane.requests()?.len();
        scene.server("ada", "other", json!({}), json!({"phase": "Pending"})).await?;
        assert_eq!(next().await?, 1);
        let asked = scene.plane.requests()?;
        let asked =
            asked[before..].iter().filter(|request| request.agent.starts_with("devctl") && request.verb != "watch");
        let asked: Vec<_> = asked.map(|request| request.resource.as_str()).collect();
        assert_eq!(asked, ["queueentries"], "it polls");
        child.kill().await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_booking_is_shown_with_its_time() -> anyhow::Result<()> {
    with_scene(async |scene| {
        let words = ["create", "box", "-t", "h100", "-g", "8", "--no-persist", "--at", "2199-01-31T09:00:00Z"];
        let said = scene.machine.devctl("ada", &words).await?;
        let told = "box is asked for, to start Thu 31 Jan 09:00. devctl queue says whether that is promised.\n";
        assert_eq!((said.out.as_str(), said.err.as_str(), said.code), ("box\n", told, Some(0)));
        let server = scene.servers("ada").get("box").await?;
        assert_eq!(serde_json::to_value(&server.spec.scheduling.not_before)?, "2199-01-31T09:00:00Z");
        scene.status("ada", "box", json!({"phase": "Queued", "flavor": "h100"})).await?;

        let oracle = Oracle::start(&scene.plane.client).await?;
        let at = json!({"p50": "2199-01-31T09:00:00Z", "p90": "2199-01-31T09:00:00Z", "latest": "2199-01-31T09:00:00Z"});
        let booked = json!({"metadata": {"name": "box", "namespace": "dev-ada"}, "flavor": "h100", "count": 8, "nodes": 1,
            "queuedAt": ago(60), "notBefore": "2199-01-31T09:00:00Z", "start": at, "reason": "Booked",
            "message": "Its booked time is promised and has not come."});
        oracle.list(&format!("{OWN}/queueentries"), json!([booked]));
        oracle.list("/queues", json!([]));
        for (words, shown) in [
            (&["queue", "--no-headers"][..], "box   booked   h100   8   Thu 31 Jan 09:00"),
            (&["list"], "booked Thu 31 Jan 09:00"),
            (&["show", "box", "--offline"], "booked for Thu 31 Jan 09:00"),
            (&["status"], "Waiting  box: booked for Thu 31 Jan 09:00"),
        ] {
            let text = scene.machine.devctl("ada", words).await?.good()?;
            assert!(text.contains(shown), "{words:?}: {text}");
        }
        let past = scene.machine.devctl("ada", &["create", "--at", "2020-01-01T00:00:00Z"]).await?;
        assert_eq!(past.code, Some(2));
        assert!(past.err.contains("that was Wed 01 Jan 2020 00:00"), "{}", past.err);
        Ok(())
    })
    .await
}
