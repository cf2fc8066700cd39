//! The queue on a real API server: who gives way, what is kept for the next leader, and recordings.

use std::path::Path;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::Api;
use odc_api::v1alpha1::condition::{self, Type};
use odc_api::v1alpha1::{Admission, DevServer, DevServerFlavor, DevServerStatus, DevServerUser, Phase, Team};
use odc_tests::bed::executable;
use odc_tests::odc::{self, Operator};
use odc_tests::wait;
use rustix::process::Signal;
use serde_json::{Value, json};

use super::faults::{ended, signal};
use super::stage::{LIMIT, Stage, until, with_stage};

fn status(server: &DevServer) -> DevServerStatus {
    server.status.clone().unwrap_or_default()
}

fn admission(server: &DevServer) -> Admission {
    status(server).admission.unwrap_or_default()
}

/// An operator with other rules of the queue, and other settings.
async fn operator(stage: &Stage<'_>, policy: &Value, more: &[(&str, &str)]) -> anyhow::Result<Operator> {
    let path = stage.directory.join("policy.yaml");
    std::fs::write(&path, policy.to_string())?;
    let mut settings = odc::short_times();
    let path = path.display().to_string();
    settings.push(("ODC_QUEUE_POLICY", &path));
    settings.extend(more);
    let operator = Operator::start(&stage.kubeconfig, &stage.directory, &settings).await?;
    stage.user_ready("ada").await?;
    Ok(operator)
}

async fn team(stage: &Stage<'_>) -> anyhow::Result<()> {
    let team = json!({"apiVersion": "odc.dev/v1alpha1", "kind": "Team", "metadata": {"name": "vision"},
        "spec": {"members": ["ada"], "priority": {"default": "Normal", "ceiling": "High"}}});
    odc::apply(&stage.plane.client, &team).await?;
    Ok(())
}

#[tokio::test]
async fn somebody_more_urgent_gets_the_place_of_one_that_can_be_asked() -> anyhow::Result<()> {
    with_stage(async |stage| {
        team(stage).await?;
        // Two nodes of eight: both are taken by servers that can be asked to leave.
        let policy = json!({"notice": 3, "grace": 5, "leastRun": 0});
        let mut first = operator(stage, &policy, &[]).await?;
        for name in ["old", "young"] {
            let spec = json!({"flavor": "gpu", "count": 8, "team": "vision",
                "scheduling": {"priority": "Low", "preemptible": true}});
            stage.create(name, spec).await?;
            let server = stage.until_phase(name, Phase::Running).await?;
            // Times are stored in whole seconds, and who came last is asked first.
            let second = admission(&server).granted_at.context("it was granted")?.0 + SignedDuration::from_secs(1);
            wait::until("the next second", LIMIT, async || {
                anyhow::ensure!(Timestamp::now() > second, "it has not come");
                Ok(())
            })
            .await?;
        }
        let spec = json!({"flavor": "gpu", "count": 8, "team": "vision", "scheduling": {"priority": "High"}});
        stage.create("urgent", spec).await?;
        let asked = stage.until("young", "asked to leave", |server| admission(server).gives_way_at.is_some()).await?;
        assert_eq!(status(&asked).phase, Some(Phase::Running));
        let told = stage
            .until("young", "told", |server| {
                let admitted = condition::find(&status(server).conditions, Type::Admitted).cloned();
                admitted.is_some_and(|admitted| admitted.reason == "Preempted" && admitted.status == "True")
            })
            .await?;
        assert_eq!(admission(&told).nodes, admission(&asked).nodes);
        let urgent = stage.until_phase("urgent", Phase::Running).await?;
        assert_eq!(admission(&urgent).nodes, admission(&asked).nodes);
        let waits = |server: &DevServer| {
            let admitted = condition::find(&status(server).conditions, Type::Admitted).cloned();
            admitted.is_some_and(|admitted| admitted.reason == "InsufficientCapacity")
        };
        let back = stage.until("young", "back in the queue", waits).await?;
        assert_eq!(admission(&back).position, Some(1));
        let (before, after) = (admission(&asked), admission(&back));
        assert_eq!((&after.queued_at, after.preemptions), (&before.queued_at, Some(1)));
        assert_eq!(status(&stage.servers.get("old").await?).phase, Some(Phase::Running));

        // What was used is stored, by user and team, and another leader begins with it and writes nothing.
        let users: Api<DevServerUser> = Api::all(stage.plane.client.clone());
        let teams: Api<Team> = Api::all(stage.plane.client.clone());
        let counted = |usage: Option<odc_api::v1alpha1::Usage>| usage.is_some_and(|usage| usage.device_seconds > 0);
        let stored = |user: Option<&DevServerUser>| counted(user.and_then(|user| user.status.as_ref()?.usage.clone()));
        let user = until(&users, "ada", "known to have used something", stored).await?;
        let stored = |team: Option<&Team>| counted(team.and_then(|team| team.status.as_ref()?.usage.clone()));
        let of_team = until(&teams, "vision", "known to have used something", stored).await?;
        first.kill().await?;
        stage.forget_leader().await?;
        let mark = stage.plane.requests()?.len();
        let _second = operator(stage, &policy, &[]).await?;
        stage.quiet().await?;
        let written: Vec<String> = stage.written_since(mark)?;
        let of_queue =
            |line: &&String| line.contains("devservers") || line.contains("users/") || line.contains("teams");
        assert_eq!(written.iter().filter(of_queue).collect::<Vec<_>>(), [""; 0]);
        let (user, of_team) = (user.and_then(|user| user.status), of_team.and_then(|team| team.status));
        assert_eq!(users.get("ada").await?.status, user);
        assert_eq!(teams.get("vision").await?.status, of_team);

        // When the urgent one leaves, it has its place again, and is asked no more than that once.
        stage.change("urgent", json!({"desired": "Ended"})).await?;
        let again = stage.until_phase("young", Phase::Running).await?;
        assert_eq!((admission(&again).run, admission(&again).preemptions), (2, Some(1)));
        let flavors: Api<DevServerFlavor> = Api::all(stage.plane.client.clone());
        let recorded = |flavor: Option<&DevServerFlavor>| {
            let record = flavor.and_then(|flavor| flavor.status.as_ref()?.record.clone());
            record.is_some_and(|record| {
                let stays: u32 = record.stays.iter().flat_map(|stays| &stays.counts).sum();
                // The urgent one left by itself; the young one did not, and was promised a place that it got.
                stays == 1 && record.promises.is_some_and(|promises| promises.given >= 1)
            })
        };
        until(&flavors, "gpu", "known to have been left", recorded).await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_booked_time_is_promised_and_kept() -> anyhow::Result<()> {
    with_stage(async |stage| {
        let mut first = stage.operator().await?;
        let soon = Timestamp::now() + SignedDuration::from_secs(12);
        let not_before = odc_api::time::stored(soon);
        let booked = json!({"flavor": "gpu", "count": 8, "nodes": 2, "lifetime": "1h",
            "scheduling": {"notBefore": not_before}});
        stage.create("meeting", booked).await?;
        stage.until("meeting", "booked", |server| admission(server).booking.is_some()).await?;
        let says = |server: &DevServer| {
            let admitted = condition::find(&status(server).conditions, Type::Admitted).cloned();
            admitted.is_some_and(|admitted| admitted.reason == "Booked" && admitted.message.contains("is promised"))
        };
        stage.until("meeting", "told so", says).await?;
        // Another leader keeps it: whoever would stay into that time waits, and comes after it.
        first.kill().await?;
        stage.forget_leader().await?;
        let _second = stage.operator().await?;
        stage.create("long", json!({"flavor": "gpu", "count": 1, "lifetime": "1h"})).await?;
        stage.until("long", "waiting", |server| admission(server).position == Some(1)).await?;
        let started = stage.until_phase("meeting", Phase::Running).await?;
        assert!(admission(&started).granted_at.is_some_and(|at| at.0 >= not_before.0));
        assert_eq!(status(&stage.servers.get("long").await?).phase, Some(Phase::Queued));
        Ok(())
    })
    .await
}

#[tokio::test]
async fn whoever_waits_too_long_for_a_first_start_is_cancelled_and_others_are_not() -> anyhow::Result<()> {
    with_stage(async |stage| {
        let _operator = operator(stage, &json!({}), &[("ODC_QUEUE_LIMIT", "5s")]).await?;
        let whole = json!({"flavor": "gpu", "count": 8});
        stage.claim("home").await?;
        stage.create("worked", json!({"flavor": "gpu", "count": 8, "home": {"claim": "home"}})).await?;
        stage.until_phase("worked", Phase::Running).await?;
        stage.change("worked", json!({"desired": "Hibernated"})).await?;
        stage.until_phase("worked", Phase::Hibernated).await?;
        for name in ["first", "second"] {
            stage.create(name, whole.clone()).await?;
            stage.until_phase(name, Phase::Running).await?;
        }
        stage.change("worked", json!({"desired": "Running"})).await?;
        stage.until_phase("worked", Phase::Queued).await?;
        stage.create("third", whole).await?;
        let waiting =
            stage.until("third", "told since when it waits", |server| status(server).waiting_since.is_some()).await?;
        assert_eq!(status(&waiting).phase, Some(Phase::Queued));
        let since = status(&waiting).waiting_since.context("it waits")?;

        let ended = stage.until_phase("third", Phase::Cancelled).await?;
        let ready = condition::find(&status(&ended).conditions, Type::Ready).cloned().context("it is told why")?;
        assert_eq!(ready.reason, "QueuedTooLong");
        assert!(ready.message.contains("It waited 5s for its first start"), "{}", ready.message);
        let finished = status(&ended).finished_at.context("it has ended")?;
        assert!(finished.0.duration_since(since.0) >= SignedDuration::from_secs(5), "{since:?} to {finished:?}");
        // Who waits for longer than that, but has worked before, goes on waiting, and gets what becomes free.
        let worked = stage.servers.get("worked").await?;
        assert_eq!((status(&worked).phase, status(&worked).waiting_since), (Some(Phase::Queued), None));
        stage.change("first", json!({"desired": "Ended"})).await?;
        stage.until_phase("worked", Phase::Running).await?;
        let ended = stage.servers.get("third").await?;
        assert_eq!((status(&ended).phase, admission(&ended).run), (Some(Phase::Cancelled), 0));
        Ok(())
    })
    .await
}

/// What the scheduler was told and decided, by the recordings in a directory.
fn recorded(directory: &Path) -> anyhow::Result<Vec<(std::path::PathBuf, Vec<Value>)>> {
    let mut files: Vec<_> =
        std::fs::read_dir(directory)?.map(|entry| Ok(entry?.path())).collect::<anyhow::Result<_>>()?;
    files.sort();
    let lines = |path: std::path::PathBuf| {
        let text = std::fs::read_to_string(&path)?;
        let lines = text.lines().map(serde_json::from_str).collect::<Result<Vec<Value>, _>>()?;
        Ok((path, lines))
    };
    files.into_iter().map(lines).collect()
}

#[tokio::test]
async fn what_was_recorded_is_decided_the_same_again() -> anyhow::Result<()> {
    with_stage(async |stage| {
        team(stage).await?;
        let directory = stage.directory.join("recordings");
        std::fs::create_dir(&directory)?;
        let path = directory.display().to_string();
        let policy = json!({"notice": 1, "grace": 2, "leastRun": 0, "shareStep": 1});
        let mut operator = operator(stage, &policy, &[("ODC_RECORD", &path)]).await?;
        // Somebody else's pod has half a node.
        let resources = json!({"requests": {"nvidia.com/gpu": "4"}, "limits": {"nvidia.com/gpu": "4"}});
        let foreign = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "foreign", "namespace": "default"},
            "spec": {"containers": [{"name": "one", "image": "none", "resources": resources}]}});
        odc::apply(&stage.plane.client, &foreign).await?;
        let pods: Api<Pod> = Api::namespaced(stage.plane.client.clone(), "default");
        let bound =
            |pod: Option<&Pod>| pod.is_some_and(|pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some()));
        until(&pods, "foreign", "bound", bound).await?;
        stage.claim("home").await?;
        stage.create("sleeper", json!({"flavor": "gpu", "count": 8, "home": {"claim": "home"}})).await?;
        stage.until_phase("sleeper", Phase::Running).await?;
        let low = json!({"flavor": "gpu", "count": 4, "team": "vision", "scheduling": {"preemptible": true}});
        stage.create("low", low).await?;
        stage.until_phase("low", Phase::Running).await?;
        stage.create("waits", json!({"flavor": "gpu", "count": 8})).await?;
        stage.until("waits", "waiting", |server| admission(server).position == Some(1)).await?;
        let high = json!({"flavor": "gpu", "count": 4, "team": "vision", "scheduling": {"priority": "High"}});
        stage.create("high", high).await?;
        stage.until_phase("high", Phase::Running).await?;
        stage.change("low", json!({"desired": "Ended"})).await?;
        stage.until_phase("low", Phase::Cancelled).await?;
        stage.change("sleeper", json!({"desired": "Hibernated"})).await?;
        stage.until_phase("waits", Phase::Running).await?;
        stage.change("high", json!({"desired": "Ended"})).await?;
        stage.until_phase("high", Phase::Cancelled).await?;
        stage.quiet().await?;
        signal(&operator, Signal::TERM)?;
        ended(&mut operator).await?;

        let recordings = recorded(&directory)?;
        let [(path, lines)] = &recordings[..] else { anyhow::bail!("one leader, one recording: {recordings:?}") };
        let decided: Vec<&str> = lines
            .iter()
            .filter_map(|line| line["plan"]["decided"].as_array())
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        let of = |word: &str| decided.iter().filter(|line| line.split(' ').nth(1) == Some(word)).count();
        assert!(of("grant") >= 4 && of("preempt") == 1, "{decided:#?}");
        let replayed = replay(path)?;
        assert_eq!(replayed["decisionHash"], json!(hash(&decided)));

        // A recording that was tampered with is not believed.
        let text = std::fs::read_to_string(path)?.replacen(" grant ", " grand ", 1);
        let other = directory.join("other.jsonl");
        std::fs::write(&other, text)?;
        let refused = replay(&other).unwrap_err().to_string();
        assert!(refused.contains("other things are decided than were recorded"), "{refused}");
        Ok(())
    })
    .await
}

fn replay(path: &Path) -> anyhow::Result<Value> {
    let output = std::process::Command::new(executable("odc")?).arg("sim").arg(path).args(["-o", "json"]).output()?;
    anyhow::ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn hash(lines: &[&str]) -> String {
    use sha2::Digest as _;
    let mut hash = sha2::Sha256::new();
    for line in lines {
        hash.update(format!("{line}\n"));
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[tokio::test]
async fn rules_that_cannot_be_read_are_refused() -> anyhow::Result<()> {
    with_stage(async |stage| {
        let path = stage.directory.join("policy.yaml");
        std::fs::write(&path, "agein: 3\n")?;
        let settings = [("ODC_QUEUE_POLICY", path.to_str().unwrap_or_default())];
        let mut operator = Operator::spawn(&stage.kubeconfig, &stage.directory, &settings)?;
        let ended = ended(&mut operator).await?;
        let words = operator.words();
        assert!(!ended.success() && words.contains("policy.yaml") && words.contains("agein"), "{words}");
        Ok(())
    })
    .await
}
