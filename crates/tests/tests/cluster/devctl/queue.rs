//! Queue output with and without the queue API.

use std::process::Stdio;

use anyhow::Context as _;
use odc_tests::terminal::{CTRL_C, ENTER, Terminal};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::task::block_in_place;

use super::fake_queue_api::FakeQueueApi;
use super::fixture::{Fixture, after, ago, normalize, with_fixture};
use super::watch::TIMEOUT;

const OWN: &str = "/namespaces/dev-ada";

fn start(p50: i64, p90: i64) -> Value {
    json!({"now": false, "p50": after(p50), "p90": after(p90), "latest": after(p90 + 3600)})
}

fn entry(position: i64, p50: i64) -> Value {
    entry_of("ada", position, p50)
}

fn entry_of(user: &str, position: i64, p50: i64) -> Value {
    json!({"metadata": {"name": "train", "namespace": format!("dev-{user}")}, "flavor": "h100", "count": 8, "nodes": 2,
        "priority": "Normal", "position": position, "queuedAt": ago(600), "start": start(p50, 3 * p50),
        "reason": "InsufficientCapacity", "message": "Insufficient nvidia.com/gpu: requires 8 on each of 2 nodes; none free."})
}

fn pending(position: i64, count: u32, p50: i64) -> Value {
    json!({"position": position, "count": count, "nodes": 1, "priority": "High", "queuedAt": ago(1200), "start": start(p50, 2 * p50)})
}

/// Three pending servers, one of them of ada, whose status is older than the queue.
async fn three_pending_servers(fixture: &Fixture<'_>) -> anyhow::Result<FakeQueueApi> {
    fixture.create_servers_in_all_phases().await?;
    let queue_api = FakeQueueApi::start(&fixture.plane.client).await?;
    serve_three_pending_servers(&queue_api, "ada");
    Ok(queue_api)
}

/// Serves a queue with three pending servers, one of them of a user.
pub fn serve_three_pending_servers(queue_api: &FakeQueueApi, user: &str) {
    let own_path = format!("/namespaces/dev-{user}");
    queue_api.list(&format!("{own_path}/queueentries"), json!([entry_of(user, 2, 4800)]));
    let own = json!({"position": 2, "count": 8, "nodes": 2, "priority": "Normal", "queuedAt": ago(600), "start": start(4800, 14400)});
    let calibration = json!({"estimates": 40, "withinP50": 22, "withinP90": 37});
    queue_api.list("/queues", json!([
        {"metadata": {"name": "cpu"}, "pending": []},
        {"metadata": {"name": "h100"}, "calibration": calibration, "pending": [pending(1, 8, 1200), own, pending(3, 1, 9000)]},
    ]));
    let size = |count: u32, nodes: u32, start: Value| json!({"count": count, "nodes": nodes, "start": start});
    let now = json!({"now": true});
    let never = json!({"count": 8, "nodes": 4, "start": {}, "message": "There are no 4 such nodes."});
    queue_api.list(&format!("{own_path}/availabilities"), json!([
        {"metadata": {"name": "cpu"}, "sizes": [size(0, 1, now.clone())]},
        {"metadata": {"name": "h100"}, "sizes": [size(1, 1, now.clone()), size(2, 1, now), size(4, 1, start(2400, 7200)),
            size(8, 1, start(4800, 10800)), size(8, 2, start(9000, 18000)), never]},
    ]));
    let status = json!({"start": start(4800, 10800), "position": 4, "reason": "InsufficientCapacity",
        "message": "Insufficient nvidia.com/gpu: requires 8 on one node; at most 3 free on a node, 6 in total."});
    queue_api.respond(&format!("{own_path}/dryruns"), json!({"metadata": {}, "spec": {}, "status": status}));
}

#[tokio::test(flavor = "multi_thread")]
async fn queue_output_is_live() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        let _queue_api = three_pending_servers(fixture).await?;
        for (name, words) in [
            ("live_queue", &["queue"][..]),
            ("live_queue_all", &["queue", "--all"]),
            ("live_calibration", &["queue", "--calibration"]),
            ("live_avail", &["avail"]),
            ("live_status", &["status"]),
        ] {
            for columns in [80, 200] {
                let screen = block_in_place(|| super::output::run_on_terminal(fixture, words, columns))?;
                insta::assert_snapshot!(format!("{name}_{columns}"), screen);
            }
            let mut words = words.to_vec();
            words.extend(["-o", "json"]);
            let output = fixture.machine.devctl("ada", &words).await?;
            assert_eq!(output.err, "", "{words:?}");
            let value: Value = serde_json::from_str(&output.success()?)?;
            insta::assert_snapshot!(format!("{name}_json"), normalize(&serde_json::to_string_pretty(&value)?)?);
        }
        let all = fixture.machine.devctl("ada", &["queue", "--all", "-o", "name"]).await?.success()?;
        assert_eq!(all, "train\n", "other servers are anonymous");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn administrator_sees_owners_in_the_queue() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        let queue_api = three_pending_servers(fixture).await?;
        let mut other = entry(1, 1200);
        other["metadata"] = json!({"name": "big", "namespace": "dev-bob"});
        queue_api.list("/queueentries", json!([other, entry(2, 4800)]));
        let all = fixture.machine.devctl("admin", &["queue", "--all", "-o", "json"]).await?.success()?;
        let all: Vec<Value> = serde_json::from_str(&all)?;
        let owners: Vec<_> = all.iter().map(|row| (row["name"].as_str(), row["owner"].as_str())).collect();
        assert_eq!(owners, [(Some("big"), Some("bob")), (Some("train"), Some("ada"))]);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn dry_run_reports_expected_start_and_reason() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        let queue_api = three_pending_servers(fixture).await?;
        let words = [
            "create",
            "big",
            "-t",
            "h100",
            "-g",
            "8",
            "--lifetime",
            "6h",
            "--no-persist",
            "--priority",
            "low",
            "-l",
            "zone=a",
            "--dry-run",
        ];
        let output = fixture.machine.devctl("ada", &words).await?;
        insta::assert_snapshot!("live_dry_run", normalize(&output.err)?);
        let structured = [&words[..], &["-o", "json"]].concat();
        let server: Value = serde_json::from_str(&fixture.machine.devctl("ada", &structured).await?.success()?)?;
        insta::assert_snapshot!("live_dry_run_json", normalize(&serde_json::to_string_pretty(&server["status"])?)?);
        assert_eq!(fixture.servers("ada").get_opt("big").await?.map(|server| server.metadata.name), None);
        let request =
            queue_api.requests.lock().ok().and_then(|requests| requests.last().cloned()).context("a request")?;
        assert_eq!(
            request["spec"],
            json!({"flavor": "h100", "count": 8, "nodes": 1, "lifetime": "6h", "priority": "Low", "preemptible": false,
                "nodeLabels": {"zone": "a"}})
        );

        let booked = [&words[..], &["--at", "2199-01-31T09:00:00Z"]].concat();
        fixture.machine.devctl("ada", &booked).await?.success()?;
        let request =
            queue_api.requests.lock().ok().and_then(|requests| requests.last().cloned()).context("a request")?;
        assert_eq!(request["spec"]["notBefore"], "2199-01-31T09:00:00Z");
        let immediately = json!({"metadata": {}, "spec": {}, "status": {"start": {"now": true}}});
        queue_api.respond(&format!("{OWN}/dryruns"), immediately);
        let output = fixture.machine.devctl("ada", &words).await?;
        assert!(output.err.ends_with("Would start immediately.\n"), "{}", output.err);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn what_if_reports_changed_start_times() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        let queue_api = FakeQueueApi::start(&fixture.plane.client).await?;
        let team = json!({"apiVersion": "odc.dev/v1alpha1", "kind": "Team", "metadata": {"name": "vision"},
            "spec": {"members": ["ada"], "quota": {"devices": 16, "servers": 40}}});
        odc_tests::manifests::apply(&fixture.plane.client, &team).await?;
        let changes = json!([{"namespace": "dev-ada", "name": "train", "before": {"now": true}, "after": {"at": after(7200)}},
            {"namespace": "dev-bob", "name": "big", "before": {"at": after(10_800)}, "after": {}}]);
        queue_api.respond("/whatifs", json!({"spec": {}, "status": {"pending": 7, "changes": changes}}));
        let words = ["admin", "team", "what-if", "vision", "--devices", "12"];
        let output = fixture.machine.devctl("admin", &words).await?;
        assert_eq!(output.err, "2 of 7 pending servers would start at another time. Nothing was changed.\n");
        insta::assert_snapshot!("live_what_if", output.success()?);
        let request = queue_api.requests.lock().ok().and_then(|requests| requests.last().cloned()).context("a request")?;
        assert_eq!(request["spec"], json!({"teams": {"vision": {"devices": 12, "servers": 40}}}));
        let structured = [&words[..], &["-o", "json"]].concat();
        let rows: Value = serde_json::from_str(&fixture.machine.devctl("admin", &structured).await?.success()?)?;
        assert_eq!((&rows[1]["owner"], &rows[1]["after"]), (&json!("bob"), &Value::Null), "{rows}");
        assert!(rows[0]["before"].is_string() && rows[0]["after"].is_string(), "{rows}");

        let nothing = fixture.machine.devctl("admin", &words[..4]).await?;
        assert_eq!(nothing.code, Some(2), "{}", nothing.err);
        // A user may neither read teams nor simulate quotas.
        let refused = fixture.machine.devctl("ada", &words).await?;
        assert_eq!(refused.code, Some(4), "{}", refused.err);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn unavailable_queue_api_is_reported_once() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        let queue_api = three_pending_servers(fixture).await?;
        let stderr = async |words: &[&str]| -> anyhow::Result<String> {
            let output = fixture.machine.devctl("ada", words).await?;
            assert_eq!(output.code, Some(0), "{words:?}: {}", output.err);
            Ok(output.err)
        };
        let all = [&["queue"][..], &["queue", "--all"], &["avail", "--spot"], &["status"]];
        // No leader responds.
        for path in [&format!("{OWN}/queueentries"), &format!("{OWN}/availabilities"), "/queues"] {
            queue_api.remove_response(path);
        }
        let timeout = "warning: queue API unavailable (no response within 5s); showing data up to 30s old\n";
        for words in all {
            assert_eq!(stderr(words).await?, timeout, "{words:?}");
        }
        // The position comes from the status.
        let own: Value =
            serde_json::from_str(&fixture.machine.devctl("ada", &["queue", "-o", "json"]).await?.success()?)?;
        assert_eq!(own[0]["queue"]["position"], 3, "{own}");
        let calibration = fixture.machine.devctl("ada", &["queue", "--calibration"]).await?;
        assert_eq!((calibration.code, calibration.out.as_str()), (Some(1), ""));
        assert!(calibration.err.contains("queue API unavailable"), "{}", calibration.err);

        queue_api.unregister().await?;
        for words in all {
            assert_eq!(stderr(words).await?, super::output::QUEUE_UNAVAILABLE, "{words:?}");
        }
        assert_eq!(stderr(&["queue", "-q"]).await?, "");
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn wait_shows_the_live_queue_position() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        let queue_api = three_pending_servers(fixture).await?;
        let words = ["create", "new", "-t", "h100", "--no-persist", "--no-connect"];
        let mut terminal = Terminal::start(&fixture.machine.command("ada", &words)?, 160, 40)?;
        block_in_place(|| terminal.wait_for("created, waiting"))?;
        let mut own = entry(2, 4800);
        own["metadata"]["name"] = json!("new");
        queue_api.list(&format!("{OWN}/queueentries"), json!([own]));
        let status = json!({"phase": "Queued", "admission": {"run": 0, "epoch": 1, "position": 5}});
        fixture.status("ada", "new", status).await?;
        let now = "queue position 2, starts in about 1h20m (90% within 4h): Insufficient";
        let screen = block_in_place(|| terminal.wait_for(now))?;
        assert_eq!(screen.matches("queue position").count(), 1, "{screen}");
        terminal.type_keys(CTRL_C)?;
        block_in_place(|| terminal.wait_for("Server new is not ready yet. What now?"))?;
        terminal.type_keys(CTRL_C)?;
        block_in_place(|| terminal.wait_exit())?;
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn prompt_shows_expected_starts_by_size() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        let _queue_api = three_pending_servers(fixture).await?;
        let words = ["create", "--no-connect", "--dry-run", "--no-persist"];
        let mut terminal = Terminal::start(&fixture.machine.command("ada", &words)?, 120, 40)?;
        let screen = block_in_place(|| terminal.wait_for("type to filter]"))?;
        assert!(screen.contains("1, 2 now; 4 ~40m; 8 ~1h20m; 2×8 ~2h30m"), "{screen}");
        terminal.type_keys(&format!("h100{ENTER}"))?;
        // The help line is drawn after the options.
        let drawn = |screen: &str| screen.contains("in about 2h30m") && screen.contains("type to filter]");
        let screen = block_in_place(|| terminal.wait_for_screen("the sizes", drawn))?;
        insta::assert_snapshot!("live_pick_count", normalize(&screen[screen.find("? How many").unwrap_or(0)..])?);
        terminal.type_keys(CTRL_C)?;
        let (code, _) = block_in_place(|| terminal.wait_exit())?;
        assert_eq!(code, Some(130));
        Ok(())
    })
    .await
}

#[tokio::test]
async fn watch_refetches_the_queue_only_after_changes() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        let queue_api = three_pending_servers(fixture).await?;
        let mut command = fixture.machine.command("ada", &["queue", "--watch", "-o", "json"])?;
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = tokio::process::Command::from(command).kill_on_drop(true).spawn()?;
        let mut lines = BufReader::new(child.stdout.take().context("stdout")?).lines();
        let mut next = async || -> anyhow::Result<Value> {
            let line = tokio::time::timeout(TIMEOUT, lines.next_line()).await??.context("end of stdout")?;
            Ok(serde_json::from_str::<Value>(&line)?[0]["queue"]["position"].clone())
        };
        assert_eq!(next().await?, 2);
        // The queue changes; a change of any own server triggers the refetch.
        queue_api.list(&format!("{OWN}/queueentries"), json!([entry(1, 1200)]));
        let before = fixture.plane.requests()?.len();
        fixture.server("ada", "other", json!({}), json!({"phase": "Pending"})).await?;
        assert_eq!(next().await?, 1);
        let requests = fixture.plane.requests()?;
        let requests =
            requests[before..].iter().filter(|request| request.agent.starts_with("devctl") && request.verb != "watch");
        let requests: Vec<_> = requests.map(|request| request.resource.as_str()).collect();
        assert_eq!(requests, ["queueentries"], "polling");
        child.kill().await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn booking_is_shown_with_its_start_time() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        let words = ["create", "box", "-t", "h100", "-g", "8", "--no-persist", "--at", "2199-01-31T09:00:00Z"];
        let output = fixture.machine.devctl("ada", &words).await?;
        let message = "Created server box, booked for Thu 31 Jan 09:00. Run `devctl queue` to see whether the start time is confirmed.\n";
        assert_eq!((output.out.as_str(), output.err.as_str(), output.code), ("box\n", message, Some(0)));
        let server = fixture.servers("ada").get("box").await?;
        assert_eq!(serde_json::to_value(&server.spec.scheduling.not_before)?, "2199-01-31T09:00:00Z");
        fixture.status("ada", "box", json!({"phase": "Queued", "flavor": "h100"})).await?;

        let queue_api = FakeQueueApi::start(&fixture.plane.client).await?;
        let at = json!({"p50": "2199-01-31T09:00:00Z", "p90": "2199-01-31T09:00:00Z", "latest": "2199-01-31T09:00:00Z"});
        let booked = json!({"metadata": {"name": "box", "namespace": "dev-ada"}, "flavor": "h100", "count": 8, "nodes": 1,
            "queuedAt": ago(60), "notBefore": "2199-01-31T09:00:00Z", "start": at, "reason": "Booked",
            "message": "The start time is reserved."});
        queue_api.list(&format!("{OWN}/queueentries"), json!([booked]));
        queue_api.list("/queues", json!([]));
        for (words, expected) in [
            (&["queue", "--no-headers"][..], "box   booked   h100   8   Thu 31 Jan 09:00"),
            (&["list"], "booked Thu 31 Jan 09:00"),
            (&["show", "box", "--offline"], "booked for Thu 31 Jan 09:00"),
            (&["status"], "Queued   box: booked for Thu 31 Jan 09:00"),
        ] {
            let text = fixture.machine.devctl("ada", words).await?.success()?;
            assert!(text.contains(expected), "{words:?}: {text}");
        }
        let past = fixture.machine.devctl("ada", &["create", "--at", "2020-01-01T00:00:00Z"]).await?;
        assert_eq!(past.code, Some(2));
        assert!(past.err.contains("Wed 01 Jan 2020 00:00 is in the past"), "{}", past.err);
        Ok(())
    })
    .await
}
