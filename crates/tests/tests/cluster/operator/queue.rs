//! The queue on a real API server: preemption, bookings, state across leaders, and recordings.

use std::path::Path;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::Api;
use odc_api::v1alpha1::condition::{self, Type};
use odc_api::v1alpha1::{Admission, DevServer, DevServerFlavor, DevServerUser, Phase, Team};
use odc_tests::command::executable;
use odc_tests::operator::{self, Operator};
use odc_tests::{manifests, wait};
use rustix::process::Signal;
use serde_json::{Value, json};

use super::faults::{send_signal, wait_exit};
use super::fixture::{Fixture, TIMEOUT, is_bound, status, wait_for, with_fixture};

fn admission(server: &DevServer) -> Admission {
    status(server).admission.unwrap_or_default()
}

/// Starts an operator with this queue policy and these settings.
async fn start_operator(
    fixture: &Fixture<'_>,
    policy: &Value,
    extra_settings: &[(&str, &str)],
) -> anyhow::Result<Operator> {
    let path = fixture.directory.join("policy.yaml");
    std::fs::write(&path, policy.to_string())?;
    let mut settings = operator::fast_timeouts();
    let path = path.display().to_string();
    settings.push(("ODC_SCHEDULER_POLICY", &path));
    settings.extend(extra_settings);
    let operator = Operator::start(&fixture.kubeconfig, &fixture.directory, &settings).await?;
    fixture.wait_user_ready("ada").await?;
    Ok(operator)
}

async fn create_team(fixture: &Fixture<'_>) -> anyhow::Result<()> {
    let team = json!({"apiVersion": "odc.dev/v1alpha1", "kind": "Team", "metadata": {"name": "vision"},
        "spec": {"members": ["ada"], "priority": {"default": "Normal", "ceiling": "High"}}});
    manifests::apply(&fixture.plane.client, &team).await?;
    Ok(())
}

#[tokio::test]
async fn server_of_higher_priority_preempts_the_youngest_preemptible_one() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        create_team(fixture).await?;
        // Preemptible servers use both nodes.
        let policy = json!({"preemptionNotice": 3, "terminationGracePeriod": 5, "preemptExemptTime": 0});
        let mut first = start_operator(fixture, &policy, &[]).await?;
        for name in ["old", "young"] {
            let spec = json!({"flavor": "gpu", "count": 8, "team": "vision",
                "scheduling": {"priority": "Low", "preemptible": true}});
            let server = fixture.create_running(name, spec).await?;
            // Times are stored in whole seconds, and the server admitted last is preempted first.
            let second =
                admission(&server).admitted_at.context("the server was not admitted")?.0 + SignedDuration::from_secs(1);
            wait::until("the next second", TIMEOUT, async || {
                anyhow::ensure!(Timestamp::now() > second, "the second has not passed");
                Ok(())
            })
            .await?;
        }
        let spec = json!({"flavor": "gpu", "count": 8, "team": "vision", "scheduling": {"priority": "High"}});
        fixture.create("urgent", spec).await?;
        let preempted = fixture.wait_for("young", "preempted", |server| admission(server).preempt_at.is_some()).await?;
        assert_eq!(status(&preempted).phase, Some(Phase::Running));
        let notified = fixture
            .wait_for("young", "notified", |server| {
                let admitted = condition::find(&status(server).conditions, Type::Admitted).cloned();
                admitted.is_some_and(|admitted| admitted.reason == "Preempted" && admitted.status == "True")
            })
            .await?;
        assert_eq!(admission(&notified).nodes, admission(&preempted).nodes);
        let urgent = fixture.wait_for_phase("urgent", Phase::Running).await?;
        assert_eq!(admission(&urgent).nodes, admission(&preempted).nodes);
        let requeued = |server: &DevServer| {
            let admitted = condition::find(&status(server).conditions, Type::Admitted).cloned();
            admitted.is_some_and(|admitted| admitted.reason == "InsufficientCapacity")
        };
        let back = fixture.wait_for("young", "back in the queue", requeued).await?;
        assert_eq!(admission(&back).position, Some(1));
        let (before, after) = (admission(&preempted), admission(&back));
        assert_eq!((&after.queued_at, after.preemptions), (&before.queued_at, Some(1)));
        assert_eq!(status(&fixture.servers.get("old").await?).phase, Some(Phase::Running));

        // Usage is stored by user and team. The next leader reads it and writes nothing.
        let users: Api<DevServerUser> = Api::all(fixture.plane.client.clone());
        let teams: Api<Team> = Api::all(fixture.plane.client.clone());
        let counted = |usage: Option<odc_api::v1alpha1::Usage>| usage.is_some_and(|usage| usage.device_seconds > 0);
        let stored = |user: Option<&DevServerUser>| counted(user.and_then(|user| user.status.as_ref()?.usage.clone()));
        let user = wait_for(&users, "ada", "with usage", stored).await?;
        let stored = |team: Option<&Team>| counted(team.and_then(|team| team.status.as_ref()?.usage.clone()));
        let team = wait_for(&teams, "vision", "with usage", stored).await?;
        first.kill().await?;
        fixture.release_lease().await?;
        let mark = fixture.plane.requests()?.len();
        let _second = start_operator(fixture, &policy, &[]).await?;
        fixture.wait_idle().await?;
        let written: Vec<String> = fixture.writes_since(mark)?;
        let by_queue =
            |line: &&String| line.contains("devservers") || line.contains("users/") || line.contains("teams");
        assert_eq!(written.iter().filter(by_queue).collect::<Vec<_>>(), [""; 0]);
        let (user, team) = (user.and_then(|user| user.status), team.and_then(|team| team.status));
        assert_eq!(users.get("ada").await?.status, user);
        assert_eq!(teams.get("vision").await?.status, team);

        // When the urgent server ends, the preempted one runs again, preempted once.
        fixture.patch_spec("urgent", json!({"desired": "Ended"})).await?;
        let again = fixture.wait_for_phase("young", Phase::Running).await?;
        assert_eq!((admission(&again).run, admission(&again).preemptions), (2, Some(1)));
        let flavors: Api<DevServerFlavor> = Api::all(fixture.plane.client.clone());
        let recorded = |flavor: Option<&DevServerFlavor>| {
            let record = flavor.and_then(|flavor| flavor.status.as_ref()?.history.clone());
            record.is_some_and(|record| {
                let runs: u32 = record.runtimes.iter().flat_map(|runtimes| &runtimes.counts).sum();
                // The urgent server ended by itself. The preempted one was promised a start and got it.
                runs == 1 && record.eta_calibration.is_some_and(|calibration| calibration.estimates >= 1)
            })
        };
        wait_for(&flavors, "gpu", "with a completed run", recorded).await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn booking_is_confirmed_and_survives_a_leader_change() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        let mut operator = fixture.start_operator().await?;
        // Long enough for a leader change before the booked time.
        let soon = Timestamp::now() + SignedDuration::from_secs(30);
        let not_before = odc_api::time::to_api_precision(soon);
        let booked = json!({"flavor": "gpu", "count": 8, "nodes": 2, "lifetime": "1h",
            "scheduling": {"notBefore": not_before}});
        fixture.create("meeting", booked).await?;
        fixture.wait_for("meeting", "booked", |server| admission(server).booking.is_some()).await?;
        let confirmed = |server: &DevServer| {
            let admitted = condition::find(&status(server).conditions, Type::Admitted).cloned();
            admitted
                .is_some_and(|admitted| admitted.reason == "Booked" && admitted.message.contains("Booking confirmed"))
        };
        fixture.wait_for("meeting", "confirmed", confirmed).await?;
        // The next leader keeps it: a server that would run into the booked time waits.
        fixture.replace_operator(&mut operator).await?;
        fixture.create("long", json!({"flavor": "gpu", "count": 1, "lifetime": "1h"})).await?;
        fixture.wait_for("long", "queued", |server| admission(server).position == Some(1)).await?;
        let started = fixture.wait_for_phase("meeting", Phase::Running).await?;
        assert!(admission(&started).admitted_at.is_some_and(|at| at.0 >= not_before.0));
        assert_eq!(status(&fixture.servers.get("long").await?).phase, Some(Phase::Queued));
        Ok(())
    })
    .await
}

#[tokio::test]
async fn queue_timeout_cancels_only_servers_that_never_started() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        let mut operator = fixture.start_operator().await?;
        let whole = json!({"flavor": "gpu", "count": 8});
        fixture.create_claim("home").await?;
        fixture.create_running("resumed", json!({"flavor": "gpu", "count": 8, "home": {"claim": "home"}})).await?;
        fixture.patch_spec("resumed", json!({"desired": "Hibernated"})).await?;
        fixture.wait_for_phase("resumed", Phase::Hibernated).await?;
        for name in ["first", "second"] {
            fixture.create_running(name, whole.clone()).await?;
        }
        // Only now, so that none of the servers above is cancelled if the machine is busy.
        operator.kill().await?;
        fixture.release_lease().await?;
        let _operator = start_operator(fixture, &json!({}), &[("ODC_QUEUE_TIMEOUT", "5s")]).await?;
        fixture.patch_spec("resumed", json!({"desired": "Running"})).await?;
        fixture.wait_for_phase("resumed", Phase::Queued).await?;
        fixture.create("third", whole).await?;
        let is_queued =
            |server: &DevServer| status(server).waiting_since.is_some() && status(server).phase == Some(Phase::Queued);
        let queued = fixture.wait_for("third", "queued since a time", is_queued).await?;
        let since = status(&queued).waiting_since.context("the server is not queued")?;

        let ended = fixture.wait_for_phase("third", Phase::Cancelled).await?;
        let ready = condition::find(&status(&ended).conditions, Type::Ready)
            .cloned()
            .context("the server has no Ready condition")?;
        assert_eq!(ready.reason, "QueueTimeout");
        assert!(ready.message.contains("Cancelled after waiting 5s in the queue"), "{}", ready.message);
        let finished = status(&ended).finished_at.context("the server has not finished")?;
        assert!(finished.0.duration_since(since.0) >= SignedDuration::from_secs(5), "{since:?} to {finished:?}");
        // A server that has run before stays in the queue and starts when devices are free.
        let resumed = fixture.servers.get("resumed").await?;
        assert_eq!((status(&resumed).phase, status(&resumed).waiting_since), (Some(Phase::Queued), None));
        fixture.patch_spec("first", json!({"desired": "Ended"})).await?;
        fixture.wait_for_phase("resumed", Phase::Running).await?;
        let ended = fixture.servers.get("third").await?;
        assert_eq!((status(&ended).phase, admission(&ended).run), (Some(Phase::Cancelled), 0));
        Ok(())
    })
    .await
}

/// Returns the recordings in a directory with their lines.
fn read_recordings(directory: &Path) -> anyhow::Result<Vec<(std::path::PathBuf, Vec<Value>)>> {
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
async fn replay_of_a_recording_makes_the_same_decisions() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        create_team(fixture).await?;
        let directory = fixture.directory.join("recordings");
        std::fs::create_dir(&directory)?;
        let path = directory.display().to_string();
        let policy = json!({"preemptionNotice": 1, "terminationGracePeriod": 2, "preemptExemptTime": 0, "fairShareResolution": 1});
        let mut operator = start_operator(fixture, &policy, &[("ODC_TRACE_DIR", &path)]).await?;
        // A pod that is not managed by ODC uses half a node.
        let resources = json!({"requests": {"nvidia.com/gpu": "4"}, "limits": {"nvidia.com/gpu": "4"}});
        let foreign = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "foreign", "namespace": "default"},
            "spec": {"containers": [{"name": "one", "image": "none", "resources": resources}]}});
        manifests::apply(&fixture.plane.client, &foreign).await?;
        let pods: Api<Pod> = Api::namespaced(fixture.plane.client.clone(), "default");
        wait_for(&pods, "foreign", "bound", is_bound).await?;
        fixture.create_claim("home").await?;
        fixture.create_running("hibernates", json!({"flavor": "gpu", "count": 8, "home": {"claim": "home"}})).await?;
        let low = json!({"flavor": "gpu", "count": 4, "team": "vision", "scheduling": {"preemptible": true}});
        fixture.create_running("low", low).await?;
        fixture.create("waits", json!({"flavor": "gpu", "count": 8})).await?;
        fixture.wait_for("waits", "queued", |server| admission(server).position == Some(1)).await?;
        let high = json!({"flavor": "gpu", "count": 4, "team": "vision", "scheduling": {"priority": "High"}});
        fixture.create_running("high", high).await?;
        fixture.patch_spec("low", json!({"desired": "Ended"})).await?;
        fixture.wait_for_phase("low", Phase::Cancelled).await?;
        fixture.patch_spec("hibernates", json!({"desired": "Hibernated"})).await?;
        fixture.wait_for_phase("waits", Phase::Running).await?;
        fixture.patch_spec("high", json!({"desired": "Ended"})).await?;
        fixture.wait_for_phase("high", Phase::Cancelled).await?;
        fixture.wait_idle().await?;
        send_signal(&operator, Signal::TERM)?;
        wait_exit(&mut operator).await?;

        let recordings = read_recordings(&directory)?;
        let [(path, lines)] = &recordings[..] else { anyhow::bail!("expected one recording: {recordings:?}") };
        let decided: Vec<&str> = lines
            .iter()
            .filter_map(|line| line["plan"]["decisions"].as_array())
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        let count = |verb: &str| decided.iter().filter(|line| line.split(' ').nth(1) == Some(verb)).count();
        assert!(count("grant") >= 4 && count("preempt") == 1, "{decided:#?}");
        let replayed = replay(path)?;
        assert_eq!(replayed["decisionHash"], json!(hash(&decided)));

        // A modified recording is rejected.
        let text = std::fs::read_to_string(path)?.replacen(" grant ", " grand ", 1);
        let modified = directory.join("modified.jsonl");
        std::fs::write(&modified, text)?;
        let rejected = replay(&modified).unwrap_err().to_string();
        assert!(rejected.contains("decisions differ from the recorded trace"), "{rejected}");
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
async fn invalid_scheduler_policy_is_rejected() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("policy.yaml");
    std::fs::write(&path, "agein: 3\n")?;
    let settings = [("ODC_SCHEDULER_POLICY", path.to_str().unwrap_or_default())];
    // The operator reads the policy before the kubeconfig.
    let mut operator = Operator::spawn(&directory.path().join("kubeconfig"), directory.path(), &settings)?;
    let status = wait_exit(&mut operator).await?;
    let log = operator.log_tail();
    assert!(!status.success() && log.contains("policy.yaml") && log.contains("agein"), "{log}");
    Ok(())
}
