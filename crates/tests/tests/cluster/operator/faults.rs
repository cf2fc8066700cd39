//! What comes between the operator and the API server: wrong answers, none at all, events that are lost, late or come
//! twice, lists that are old, a second operator, and objects nobody can read. However that is, it ends as it should.

use std::collections::BTreeMap;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::ResourceExt as _;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::GroupVersionKind;
use odc_api::v1alpha1::{DevServer, DevServerFlavor, DevServerUser, Phase};
use odc_tests::apifault::{Action, Apifault, Entry, EventAction, Fault, Kind, Moment, Pattern, Plan, Verb};
use odc_tests::odc::{self, Operator};
use odc_tests::wait;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::rig::{Rig, Run, Scenario};
use super::stage::{LIMIT, NAMESPACE, Stage, until, until_none, user, with_stage};

const SERVERS: &str = "devservers.odc.dev";
const USERS: &str = "devserverusers.odc.dev";
const EVENTS: &str = "events.events.k8s.io";
const LEASES: &str = "leases.coordination.k8s.io";

/// After so long without a word of the leader, another may lead.
const LEASE: Duration = Duration::from_secs(15);
/// It renews so often, so that much of the time may be over when it is stopped.
const RENEWAL: Duration = Duration::from_secs(2);

/// How many servers go through their fault side by side.
const TOGETHER: usize = 8;

/// Every answer in place of each of the API server's own, and after it, to each write of a scenario.
async fn ends_the_same(scenario: Scenario) -> anyhow::Result<()> {
    with_stage(async |stage| {
        let rig = Rig::start(stage).await?;
        let (writes, reference) = rig.reference(scenario).await.with_context(|| rig.operator.words())?;
        let least = scenario.least_writes();
        anyhow::ensure!(writes >= least, "{scenario:?} cannot be done with {writes} writes");
        let mut runs = Vec::new();
        for code in [409, 410, 429, 500, 503, 504] {
            for (word, at) in [("before", Moment::Before), ("after", Moment::After)] {
                runs.extend((1..=writes).map(|k| (code, word, at, k)));
            }
        }
        let all = runs.len();
        let fired: Vec<anyhow::Result<bool>> = stream::iter(runs)
            .map(async |(code, word, at, k)| {
                let told = format!("{scenario:?}, {code} {word} write {k} of {writes}");
                let retry_after = (code == 429).then_some(1);
                let answer = Action::Answer { code, reason: None, retry_after };
                let name = format!("{word}-{code}-{k:02}");
                let run = rig.through(scenario, &name, k, at, answer).await;
                let Run { ending, fired } = run.with_context(|| format!("{told}:\n{}", rig.operator.words()))?;
                anyhow::ensure!(ending == reference, "{told}: came to\n{ending:#?}\ninstead of\n{reference:#?}");
                stage.servers.delete(&name, &DeleteParams::default()).await?;
                Ok(fired)
            })
            .buffer_unordered(TOGETHER)
            .collect()
            .await;
        let fired: Vec<bool> = fired.into_iter().collect::<anyhow::Result<_>>()?;
        // A phase that passed quickly was not written, and then the last fault had nothing to meet.
        let fired = fired.into_iter().filter(|fired| *fired).count();
        anyhow::ensure!(fired >= all / writes * least.min(writes - 1), "only {fired} of {all} faults have fired");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn whatever_is_answered_to_a_write_a_start_ends_the_same() -> anyhow::Result<()> {
    ends_the_same(Scenario::Create).await
}

#[tokio::test]
async fn whatever_is_answered_to_a_write_hibernating_ends_the_same() -> anyhow::Result<()> {
    ends_the_same(Scenario::Hibernate).await
}

#[tokio::test]
async fn whatever_is_answered_to_a_write_waking_ends_the_same() -> anyhow::Result<()> {
    ends_the_same(Scenario::Wake).await
}

#[tokio::test]
async fn whatever_is_answered_to_a_write_an_expiry_ends_the_same() -> anyhow::Result<()> {
    ends_the_same(Scenario::Expire).await
}

/// More than two pages, of servers that wait for a flavor.
const LISTED: usize = 210;

#[tokio::test]
async fn a_list_that_fails_on_any_page_is_read_again() -> anyhow::Result<()> {
    with_stage(async |stage| {
        let mut rig = Rig::start(stage).await?;
        let names: Vec<String> = (0..LISTED).map(|number| format!("listed-{number:03}")).collect();
        let created =
            stream::iter(&names).map(|name| stage.create(name, json!({"flavor": "none"}))).buffer_unordered(16);
        created.try_for_each(async |_| Ok(())).await?;
        for name in &names {
            stage.until_phase(name, Phase::Pending).await?;
        }
        stage.quiet().await?;
        for code in [410, 429, 500, 503, 504] {
            for page in 1..=3 {
                let told = format!("{code} to page {page}");
                let mark = stage.plane.requests()?.len();
                let (since, fired) = (rig.proxy.trace().len(), rig.proxy.fired());
                let retry_after = (code == 429).then_some(1);
                let answer = Action::Answer { code, reason: None, retry_after };
                rig.proxy.add(Fault::request(page).of(Pattern::verb(Verb::List, SERVERS)).before(answer));
                rig.restart().await.with_context(|| told.clone())?;
                assert_eq!(rig.proxy.fired(), fired + 1, "{told}");
                // It begins again, or goes on where it was, and has all pages in the end.
                let trace = rig.proxy.trace();
                let good =
                    |entry: &&Entry| entry.verb == Verb::List && entry.resource == SERVERS && entry.code == Some(200);
                let pages = trace.iter().skip(since).filter(good).count();
                anyhow::ensure!((3..=5).contains(&pages), "{told}: {pages} pages were read");
                // Nobody was taken for gone, or for new.
                stage.quiet().await?;
                assert_eq!(stage.written_since(mark)?, [""; 0], "{told}");
            }
        }
        stage.create("after", json!({})).await?;
        stage.until_phase("after", Phase::Running).await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn an_api_server_out_of_breath_is_asked_again_and_the_lease_is_kept() -> anyhow::Result<()> {
    with_stage(async |stage| {
        let mut rig = Rig::start(stage).await?;
        let slow_down = || Action::Answer { code: 429, reason: None, retry_after: Some(1) };
        for resource in ["devservers.odc.dev/status", "pods", "secrets"] {
            let of = Pattern::resource(resource).in_namespace(NAMESPACE);
            for verb in [Verb::Create, Verb::Patch] {
                let of = Pattern { verb: Some(verb), ..of.clone() };
                rig.proxy.add(Fault::request(1).of(of).before(slow_down()).times(20));
            }
        }
        let before = rig.proxy.trace().len();
        for number in 0..5 {
            stage.create(&format!("server-{number}"), json!({})).await?;
        }
        for number in 0..5 {
            stage.until_phase(&format!("server-{number}"), Phase::Running).await?;
        }
        let trace = rig.proxy.trace();
        let writes = trace.iter().skip(before).filter(|entry| entry.write && entry.name.starts_with("server-"));
        let (refused, taken): (Vec<&Entry>, Vec<&Entry>) = writes.partition(|entry| entry.code == Some(429));
        assert_eq!(refused.len(), 60);
        // What was refused was asked again, and what was taken was not.
        anyhow::ensure!(taken.len() <= 5 * 10, "{} writes for five servers: {taken:#?}", taken.len());
        assert!(rig.operator.child.try_wait()?.is_none(), "{}", rig.operator.words());
        Ok(())
    })
    .await
}

/// The pods of a server are these, and were made so often.
async fn check_pods(rig: &Rig<'_>, server: &str, nodes: usize, made: usize) -> anyhow::Result<()> {
    let selected = ListParams::default().labels(&format!("odc.dev/server={server}"));
    let mut names: Vec<String> =
        rig.stage.pods.list(&selected).await?.iter().map(kube::ResourceExt::name_any).collect();
    names.sort();
    let expect: Vec<String> = (0..nodes).map(|ordinal| format!("{server}-{ordinal}")).collect();
    anyhow::ensure!(names == expect, "{server} has {names:?}");
    let trace = rig.proxy.trace();
    let created: Vec<&Entry> = trace
        .iter()
        .filter(|entry| entry.verb == Verb::Create && entry.resource == "pods" && entry.server_code == Some(201))
        .filter(|entry| entry.name.rsplit_once('-').is_some_and(|(of, _)| of == server))
        .collect();
    anyhow::ensure!(created.len() == made, "{server}: {} pods were made: {created:#?}", created.len());
    Ok(())
}

#[tokio::test]
async fn an_api_server_that_was_away_finds_everything_going_on() -> anyhow::Result<()> {
    with_stage(async |stage| {
        let mut rig = Rig::start(stage).await?;
        for name in ["stays", "leaves"] {
            stage.create(name, json!({"flavor": "gpu"})).await?;
            stage.until_phase(name, Phase::Running).await?;
        }
        let pod = stage.pods.get("stays-0").await?;

        // For a moment: the same process goes on.
        rig.proxy.down().await?;
        let wrote = rig.proxy.writes().len();
        stage.servers.delete("leaves", &DeleteParams::default()).await?;
        stage.create("comes", json!({"flavor": "gpu", "nodes": 2})).await?;
        tokio::time::sleep(Duration::from_secs(4)).await;
        rig.proxy.up().await?;
        stage.until_phase("comes", Phase::Running).await?;
        stage.until_pod("leaves-0", "gone", |pod| pod.is_none()).await?;
        assert!(rig.operator.child.try_wait()?.is_none(), "{}", rig.operator.words());
        check_pods(&rig, "comes", 2, 2).await?;

        // For longer than a leader may go without its lease: it ends, and by then has written nothing.
        rig.proxy.down().await?;
        stage.create("later", json!({"flavor": "gpu"})).await?;
        let away = Instant::now();
        let ended = ended(&mut rig.operator).await?;
        assert!(!ended.success(), "nobody asked it to end: {ended}");
        anyhow::ensure!(away.elapsed() >= LEASE / 2, "it gave up after {:?}", away.elapsed());
        // The next one is started as often as it ends, and the API server is still away.
        rig.begin_anew().await?;
        let minute = if cfg!(feature = "full") { Duration::from_secs(60) } else { away.elapsed() + RENEWAL };
        while away.elapsed() < minute {
            tokio::select! {
                ended = rig.operator.child.wait() => {
                    ended?;
                    rig.begin_anew().await?;
                }
                () = tokio::time::sleep(minute.saturating_sub(away.elapsed())) => {}
            }
        }
        rig.proxy.up().await?;
        rig.operator.until_ready().await?;
        stage.until_phase("later", Phase::Running).await?;
        check_pods(&rig, "later", 1, 1).await?;

        // Who was not touched was not touched.
        assert_eq!(stage.pods.get("stays-0").await?.uid(), pod.uid());
        let touched: Vec<Entry> =
            rig.proxy.writes().into_iter().skip(wrote).filter(|entry| entry.name.starts_with("stays")).collect();
        assert!(touched.is_empty(), "{touched:#?}");
        Ok(())
    })
    .await
}

/// The process of the test's own API server.
fn api_server() -> anyhow::Result<Pid> {
    let ours = format!("PPid:\t{}", std::process::id());
    for entry in std::fs::read_dir("/proc")? {
        let path = entry?.path();
        // A process may end while one looks at it.
        let read = |file: &str| std::fs::read_to_string(path.join(file)).unwrap_or_default();
        let is_ours = read("status").lines().any(|line| line == ours);
        if is_ours && read("cmdline").split('\0').any(|word| word == "kube-apiserver") {
            let pid = path.file_name().and_then(|name| name.to_str()?.parse().ok()).and_then(Pid::from_raw);
            return pid.context("a directory of processes is a number");
        }
    }
    anyhow::bail!("no API server is a child of this test")
}

#[tokio::test]
async fn an_api_server_that_died_and_came_back_finds_everything_going_on() -> anyhow::Result<()> {
    with_stage(async |stage| {
        let mut operator = stage.operator().await?;
        stage.create("stays", json!({"flavor": "gpu"})).await?;
        stage.until_phase("stays", Phase::Running).await?;
        let pods = uids(stage).await?;
        let mark = stage.quiet().await?;
        kill_process(api_server()?, Signal::KILL)?;
        wait::until("the API server is back", LIMIT, async || {
            stage.create("comes", json!({"flavor": "gpu", "nodes": 2})).await.map(drop)
        })
        .await?;
        // On a slow machine that takes longer than the lease lasts, and then another one goes on.
        tokio::select! {
            done = stage.until_phase("comes", Phase::Running) => done.map(drop)?,
            ended = operator.child.wait() => {
                ended?;
                stage.forget_leader().await?;
                operator = stage.operator().await?;
                stage.until_phase("comes", Phase::Running).await.with_context(|| operator.words())?;
            }
        }
        let now = uids(stage).await?;
        assert_eq!((now.len(), now.get("stays-0")), (3, pods.get("stays-0")));
        let touched: Vec<String> =
            stage.written_since(mark)?.into_iter().filter(|line| line.contains("stays")).collect();
        assert_eq!(touched, Vec::<String>::new());
        Ok(())
    })
    .await
}

#[tokio::test]
async fn events_that_come_twice_late_or_never_change_nothing() -> anyhow::Result<()> {
    with_stage(async |stage| {
        let rig = Rig::start(stage).await?;
        let of = |resource: &str, prefix: &str| Pattern::resource(resource).prefixed(prefix);

        // Twice, each of them.
        for resource in ["pods", SERVERS, "services"] {
            rig.proxy.add(Fault::event(1, of(resource, "twice"), None, EventAction::Repeat).always());
        }
        stage.create("twice", json!({"flavor": "gpu", "nodes": 2})).await?;
        stage.until_phase("twice", Phase::Running).await?;
        check_pods(&rig, "twice", 2, 2).await?;

        // Never: that a server is there, and all of its pods up to the last word. The watch breaks, as it does when an
        // API server loses events, and everything is listed anew.
        rig.proxy.add(Fault::event(1, of(SERVERS, "never"), Some(Kind::Added), EventAction::Drop));
        rig.proxy.add(Fault::event(1, of(SERVERS, "other"), Some(Kind::Added), EventAction::Expire));
        let fired = rig.proxy.fired();
        stage.create("never", json!({"flavor": "gpu", "nodes": 2})).await?;
        rig.proxy.until_fired(fired + 1, LIMIT).await?;
        rig.proxy.add(Fault::event(1, of("pods", "never"), None, EventAction::Drop).times(5));
        rig.proxy.add(Fault::event(6, of("pods", "never"), None, EventAction::Expire));
        stage.create("other", json!({})).await?;
        stage.until_phase("other", Phase::Running).await?;
        // Two pods are made, bound and begun: six events. The rest is told by the list.
        stage.until_phase("never", Phase::Running).await?;
        check_pods(&rig, "never", 2, 2).await?;

        // Late: the pod becomes ready, is deleted by hand and gone before the operator hears of anything.
        rig.proxy.add(Fault::event(1, of("pods", "late"), None, EventAction::Hold));
        stage.create("late", json!({"flavor": "gpu"})).await?;
        let runs = |pod: &Pod| pod.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Running"));
        stage.until_pod("late-0", "running", |pod| pod.is_some_and(runs)).await?;
        let first = stage.pods.get("late-0").await?.uid();
        stage.pods.delete("late-0", &DeleteParams::default()).await?;
        stage.until_pod("late-0", "gone", |pod| pod.is_none()).await?;
        rig.proxy.release();
        let anew = |pod: Option<&Pod>| pod.is_some_and(|pod| pod.uid() != first && runs(pod));
        stage.until_pod("late-0", "made anew", anew).await?;
        stage.until_phase("late", Phase::Running).await?;
        check_pods(&rig, "late", 1, 2).await
    })
    .await
}

#[tokio::test]
async fn what_was_deleted_while_a_watch_was_broken_is_seen_to_be_gone() -> anyhow::Result<()> {
    with_stage(async |stage| {
        let rig = Rig::start(stage).await?;
        let admin = &stage.plane.client;
        odc::apply(admin, &user("bob")).await?;
        stage.user_ready("bob").await?;
        stage.claim("home").await?;
        let home = json!({"home": {"claim": "home"}});
        stage.create("first", home.clone()).await?;
        stage.until_phase("first", Phase::Running).await?;
        stage.create("second", home).await?;
        stage.until_phase("second", Phase::Pending).await?;

        // In place of the event the watch ends, and the list that follows has nothing to say of what is gone.
        for resource in [USERS, SERVERS, "pods"] {
            let gone = Fault::event(1, Pattern::resource(resource), Some(Kind::Deleted), EventAction::Expire);
            rig.proxy.add(gone);
        }
        let fired = rig.proxy.fired();
        let users: Api<DevServerUser> = Api::all(admin.clone());
        users.delete("bob", &DeleteParams::default()).await?;
        stage.servers.delete("first", &DeleteParams::default()).await?;
        rig.proxy.until_fired(fired + 3, LIMIT).await?;
        // Whoever waited for the claim has it, and the place of the user is cleared.
        stage.until_phase("second", Phase::Running).await?;
        until_none(&Api::<Namespace>::all(admin.clone()), "dev-bob").await
    })
    .await
}

/// How many lists of all objects of a kind were answered so far.
fn lists(rig: &Rig<'_>, resource: &str) -> usize {
    let is = |entry: &&Entry| {
        entry.verb == Verb::List
            && entry.resource == resource
            && entry.namespace.is_empty()
            && entry.server_code == Some(200)
    };
    rig.proxy.trace().iter().filter(is).count()
}

/// The next list of a kind is an old one, and for now nothing is heard of what happened since.
fn look_back(rig: &Rig<'_>, resource: &str, nth: usize) {
    rig.proxy.add(Fault::request(1).of(Pattern::verb(Verb::List, resource)).after(Action::OldList { nth }));
    rig.proxy.add(Fault::event(1, Pattern::resource(resource), None, EventAction::Hold));
}

/// Waits until the operator has asked for this, and was answered so.
async fn until_asked(rig: &Rig<'_>, since: usize, verb: Verb, name: &str, code: u16) -> anyhow::Result<()> {
    wait::until(&format!("{verb:?} {name} is answered with {code}"), LIMIT, async || {
        let trace = rig.proxy.trace();
        let mut later = trace.iter().skip(since);
        let asked = later.any(|entry| entry.verb == verb && entry.name == name && entry.server_code == Some(code));
        anyhow::ensure!(asked, "it is not");
        Ok(())
    })
    .await
}

async fn uids(stage: &Stage<'_>) -> anyhow::Result<BTreeMap<String, Option<String>>> {
    let pods = stage.pods.list(&ListParams::default()).await?;
    Ok(pods.into_iter().map(|pod| (pod.name_any(), pod.uid())).collect())
}

/// The server is as it was, and nothing of it was made or deleted since. What is told of it may change and change back,
/// because old news come one by one.
async fn check_untouched(rig: &Rig<'_>, since: usize, before: &DevServer) -> anyhow::Result<()> {
    let server = before.name_any();
    let trace = rig.proxy.trace();
    let done: Vec<&Entry> = trace
        .iter()
        .skip(since)
        .filter(|entry| is_effective(entry) && entry.name.starts_with(&server) && entry.resource != EVENTS)
        .filter(|entry| entry.verb != Verb::Patch)
        .collect();
    assert!(done.is_empty(), "{done:#?}");
    let now = rig.stage.until_phase(&server, Phase::Running).await?;
    let admission = |server: &DevServer| server.status.as_ref().and_then(|status| status.admission.clone());
    assert_eq!((now.uid(), admission(&now)), (before.uid(), admission(before)));
    Ok(())
}

#[tokio::test]
async fn an_old_list_after_a_restart_harms_nobody() -> anyhow::Result<()> {
    with_stage(async |stage| {
        // Longer than any of this takes: a node that is not there is waited for as one that is silent.
        let mut rig = Rig::start_with(stage, &[("ODC_NODE_LOST_AFTER", "5m")]).await?;
        as_if_the_node_were_not_there(&mut rig).await?;
        as_if_the_pods_were_not_made(&mut rig).await?;
        as_if_nothing_was_granted(&mut rig).await?;
        as_if_the_namesake_were_there(&mut rig).await
    })
    .await
}

async fn as_if_the_node_were_not_there(rig: &mut Rig<'_>) -> anyhow::Result<()> {
    let stage = rig.stage;
    let nth = lists(rig, "nodes");
    stage.plane.add_node("node-3", &[("cpu", "64"), ("memory", "512Gi"), ("ephemeral-storage", "1Ti")]).await?;
    let there = json!({"scheduling": {"nodeLabels": {"kubernetes.io/hostname": "node-3"}}});
    stage.create("far", there).await?;
    let far = stage.until_phase("far", Phase::Running).await?;
    let before = uids(stage).await?;
    let since = rig.proxy.trace().len();
    look_back(rig, "nodes", nth);
    rig.restart().await?;
    // Whatever it wanted to do, it would have done by then.
    stage.quiet().await?;
    rig.proxy.release();
    stage.quiet().await?;
    check_untouched(rig, since, &far).await?;
    assert_eq!(uids(stage).await?, before);
    stage.servers.delete("far", &DeleteParams::default()).await?;
    stage.until_pod("far-0", "gone", |pod| pod.is_none()).await
}

async fn as_if_the_pods_were_not_made(rig: &mut Rig<'_>) -> anyhow::Result<()> {
    let stage = rig.stage;
    stage.create("gang", json!({"flavor": "gpu", "nodes": 2})).await?;
    stage.until_phase("gang", Phase::Running).await?;
    let before = uids(stage).await?;
    let since = rig.proxy.trace().len();
    look_back(rig, "pods", 1);
    rig.restart().await?;
    // It wants to make them, and finds that it did.
    for pod in ["gang-0", "gang-1"] {
        until_asked(rig, since, Verb::Create, pod, 409).await?;
    }
    rig.proxy.release();
    stage.until_phase("gang", Phase::Running).await?;
    check_pods(rig, "gang", 2, 2).await?;
    assert_eq!(uids(stage).await?, before);
    Ok(())
}

async fn as_if_nothing_was_granted(rig: &mut Rig<'_>) -> anyhow::Result<()> {
    let stage = rig.stage;
    rig.operator.kill().await?;
    stage.create("young", json!({})).await?;
    rig.restart().await?;
    let nth = lists(rig, SERVERS);
    let young = stage.until_phase("young", Phase::Running).await?;
    let before = uids(stage).await?;
    let since = rig.proxy.trace().len();
    look_back(rig, SERVERS, nth);
    rig.restart().await?;
    // Its pod is of a grant it does not know of, so it asks.
    until_asked(rig, since, Verb::Get, "young", 200).await?;
    // Whatever it wanted to do, it would have done by then.
    tokio::time::sleep(Duration::from_secs(1)).await;
    rig.proxy.release();
    stage.quiet().await?;
    check_untouched(rig, since, &young).await?;
    assert_eq!(uids(stage).await?, before);
    Ok(())
}

async fn as_if_the_namesake_were_there(rig: &mut Rig<'_>) -> anyhow::Result<()> {
    let stage = rig.stage;
    stage.create("twin", json!({"lifetime": "4s"})).await?;
    stage.until_phase("twin", Phase::Running).await?;
    rig.restart().await?;
    let nth = [SERVERS, "pods"].map(|resource| (resource, lists(rig, resource)));
    stage.servers.delete("twin", &DeleteParams::default()).await?;
    stage.until_gone("twin").await?;
    stage.until_pod("twin-0", "gone", |pod| pod.is_none()).await?;
    stage.create("twin", json!({"lifetime": "8h"})).await?;
    let twin = stage.until_phase("twin", Phase::Running).await?;
    let before = uids(stage).await?;
    let since = rig.proxy.trace().len();
    for (resource, nth) in nth {
        look_back(rig, resource, nth);
    }
    rig.restart().await?;
    // The time of the first one is over by now. To end it is tried, and refused because it is not as it was.
    until_asked(rig, since, Verb::Patch, "twin", 409).await?;
    rig.proxy.release();
    wait::until("the second one is known", LIMIT, async || {
        let uid = twin.uid().unwrap_or_default();
        let told = rig.proxy.events().iter().any(|event| event.uid == uid && event.resource == SERVERS);
        anyhow::ensure!(told, "it is not");
        Ok(())
    })
    .await?;
    stage.quiet().await?;
    check_untouched(rig, since, &twin).await?;
    assert_eq!(uids(stage).await?, before);
    Ok(())
}

/// A write that was stored.
fn is_effective(entry: &Entry) -> bool {
    entry.write && entry.server_code.is_some_and(|code| code < 300)
}

/// Another operator, behind a proxy of its own; it does not lead yet.
async fn another(stage: &Stage<'_>) -> anyhow::Result<(Apifault, Operator)> {
    let proxy = Apifault::start(&stage.plane.kubeconfig, Plan::default()).await?;
    let path = stage.directory.join("another.kubeconfig");
    proxy.kubeconfig(&path, Some(&odc::token(&stage.plane.client).await?))?;
    let operator = Operator::spawn(&path, &stage.directory, &odc::short_times())?;
    wait::until("it waits", LIMIT, async || {
        let looked = proxy.trace().iter().any(|entry| entry.resource == LEASES && entry.code == Some(200));
        anyhow::ensure!(looked, "it has not looked at the lease:\n{}", operator.words());
        Ok(())
    })
    .await?;
    Ok((proxy, operator))
}

pub(super) fn signal(operator: &Operator, signal: Signal) -> anyhow::Result<()> {
    let pid = operator.child.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
    Ok(kill_process(pid.context("it runs")?, signal)?)
}

pub(super) async fn ended(operator: &mut Operator) -> anyhow::Result<ExitStatus> {
    let ended = tokio::time::timeout(LIMIT, operator.child.wait()).await;
    Ok(ended.with_context(|| format!("it goes on:\n{}", operator.words()))??)
}

async fn epoch(stage: &Stage<'_>) -> anyhow::Result<i32> {
    let spec = stage.leases().get(super::stage::LEASE).await?.spec.unwrap_or_default();
    spec.lease_transitions.context("a lease counts its leaders")
}

#[tokio::test]
async fn a_leader_that_slept_through_its_time_does_no_more() -> anyhow::Result<()> {
    with_stage(async |stage| {
        let mut first = Rig::start(stage).await?;
        stage.create("before", json!({"flavor": "gpu"})).await?;
        stage.until_phase("before", Phase::Running).await?;
        let led = epoch(stage).await?;

        // Each of these has sent one of the writes of a start, which stays on its way until another leads. The first is
        // the grant: while that is under way nothing else is granted.
        for (k, name) in [(2, "secret"), (3, "pod"), (4, "told"), (1, "grant")] {
            let fired = first.proxy.fired();
            first.proxy.add(Fault::write(k).of(Pattern::default().prefixed(name)).before(Action::Hold));
            stage.create(name, json!({"flavor": "gpu"})).await?;
            first.proxy.until_fired(fired + 1, LIMIT).await?;
        }
        signal(&first.operator, Signal::STOP)?;
        let stopped = Instant::now();
        let (proxy, mut second) = another(stage).await?;
        second.until_ready().await?;
        anyhow::ensure!(stopped.elapsed() + RENEWAL >= LEASE, "it did not wait for the first");
        assert_eq!(epoch(stage).await?, led + 1);
        for name in ["secret", "pod", "told", "grant"] {
            stage.until_phase(name, Phase::Running).await?;
        }
        stage.change("before", json!({"desired": "Ended"})).await?;
        stage.until_phase("before", Phase::Cancelled).await?;
        stage.create("after", json!({"flavor": "gpu"})).await?;
        stage.until_phase("after", Phase::Running).await?;
        let pods = uids(stage).await?;

        // What was on its way arrives, and the first goes on where it stood.
        let mark = first.proxy.trace().len();
        let late: Vec<u64> = first
            .proxy
            .trace()
            .iter()
            .filter(|entry| entry.write && entry.server_code.is_none() && !entry.faults.is_empty())
            .map(|entry| entry.sequence)
            .collect();
        assert_eq!(late.len(), 4);
        first.proxy.release();
        signal(&first.operator, Signal::CONT)?;
        let status = ended(&mut first.operator).await?;
        assert!(!status.success(), "{status}");
        let trace = wait::until("what was late has arrived", LIMIT, async || {
            let trace = first.proxy.trace();
            let all =
                trace.iter().filter(|entry| late.contains(&entry.sequence)).all(|entry| entry.server_code.is_some());
            anyhow::ensure!(all, "it has not");
            Ok(trace)
        })
        .await?;
        let effective: Vec<&Entry> = trace
            .iter()
            .filter(|entry| late.contains(&entry.sequence) || entry.sequence > mark as u64)
            .filter(|entry| is_effective(entry))
            .collect();
        assert!(effective.is_empty(), "{effective:#?}");

        // The second goes on, and nothing was doubled.
        stage.quiet().await?;
        assert_eq!(epoch(stage).await?, led + 1);
        assert_eq!(uids(stage).await?, pods);
        assert!(second.child.try_wait()?.is_none());
        drop(proxy);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_leader_that_is_asked_to_stop_lets_the_next_one_begin() -> anyhow::Result<()> {
    with_stage(async |stage| {
        let mut first = Rig::start(stage).await?;
        let (_proxy, second) = another(stage).await?;
        // In the middle of work.
        for number in 0..20 {
            stage.create(&format!("server-{number}"), json!({})).await?;
        }
        // Somebody's place waits for an answer that comes when the lease is given back, and has more to be written then.
        let slow = |of: Pattern, milliseconds: u64| Fault::write(1).of(of).after(Action::Delay { milliseconds });
        first.proxy.add(slow(Pattern::resource("limitranges").in_namespace("dev-bob"), 1_000));
        let fired = first.proxy.fired();
        odc::apply(&stage.plane.client, &user("bob")).await?;
        first.proxy.until_fired(fired + 1, LIMIT).await?;
        // The first write of the lease may still be a renewal.
        first.proxy.add(slow(Pattern::resource(LEASES), 2_000).times(2));
        signal(&first.operator, Signal::TERM)?;
        let asked = Instant::now();
        let status = ended(&mut first.operator).await?;
        assert!(status.success(), "{status}: {}", first.operator.words());
        second.until_ready().await?;
        anyhow::ensure!(asked.elapsed() < LEASE / 2, "the lease was not given back");
        // Whoever lets go has written its last, but for words about what was done before.
        let trace = first.proxy.trace();
        let given_back = trace.iter().rposition(|entry| entry.resource == LEASES && entry.write);
        let after = trace.iter().skip(given_back.context("the lease is written")? + 1);
        let written: Vec<&Entry> = after.filter(|entry| entry.write && entry.resource != EVENTS).collect();
        assert!(written.is_empty(), "{written:#?}");
        for number in 0..20 {
            stage.until_phase(&format!("server-{number}"), Phase::Running).await?;
        }
        stage.user_ready("bob").await
    })
    .await
}

/// Servers of which nobody knows what they say.
pub(super) fn any_servers(stage: &Stage<'_>) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("odc.dev", "v1alpha1", "DevServer"));
    Api::namespaced_with(stage.plane.client.clone(), NAMESPACE, &resource)
}

pub(super) async fn until_told(stage: &Stage<'_>, name: &str) -> anyhow::Result<()> {
    let told = |server: Option<&DynamicObject>| {
        let conditions = server.and_then(|server| server.data["status"]["conditions"].as_array());
        conditions.into_iter().flatten().any(|condition| {
            let message = condition["message"].as_str().unwrap_or_default();
            condition["type"] == "Accepted"
                && condition["status"] == "False"
                && condition["reason"] == "Invalid"
                && message.starts_with("It cannot be read: ")
                && message.ends_with("create it anew.")
        })
    };
    until(&any_servers(stage), name, "told that it cannot be read", told).await.map(drop)
}

#[tokio::test]
async fn a_server_nobody_can_read_harms_only_itself() -> anyhow::Result<()> {
    with_stage(async |stage| {
        let mut operator = stage.operator().await?;
        let unreadable = |name: &str, keys: Value| {
            json!({"apiVersion": "odc.dev/v1alpha1", "kind": "DevServer", "metadata": {"name": name, "namespace": NAMESPACE},
                "spec": {"home": {"ephemeral": "1Gi"}, "flavor": "gpu", "count": 8, "nodes": 1, "idle": {"action": "None"},
                    "access": {"keys": keys}}})
        };
        let flavors: Api<DevServerFlavor> = Api::all(stage.plane.client.clone());
        let free = async |devices: i64| {
            let is = |flavor: Option<&DevServerFlavor>| {
                flavor.and_then(|flavor| flavor.status.as_ref()?.free) == Some(devices)
            };
            until(&flavors, "gpu", &format!("free: {devices}"), is).await.map(drop)
        };
        stage.create("good", json!({"flavor": "gpu", "count": 8})).await?;
        stage.until_phase("good", Phase::Running).await?;

        // It comes while the operator runs.
        stage.store_by_other_rules(&unreadable("bad", json!(["no key"]))).await?;
        until_told(stage, "bad").await?;
        stage.create("second", json!({"flavor": "gpu", "count": 8})).await?;
        stage.until_phase("second", Phase::Running).await?;
        let mark = stage.quiet().await?;
        assert!(operator.get("/metrics").await?.contains("odc_unreadable_objects_total{controller=\"DevServer\"}"));

        // It is there when the operator begins.
        operator.kill().await?;
        stage.forget_leader().await?;
        let mut next = stage.operator().await?;
        stage.quiet().await?;
        assert_eq!(stage.written_since(mark)?, Vec::<String>::new());
        let phase = |server: DevServer| server.status.unwrap_or_default().phase;
        assert_eq!(phase(stage.servers.get("good").await?), Some(Phase::Running));

        // One that runs becomes unreadable. It keeps what it has, and gives it back when it goes. Nobody looks while the
        // other rules hold, so it is told under those by which it is wrong.
        next.kill().await?;
        stage.store_by_other_rules(&unreadable("second", json!("none"))).await?;
        stage.forget_leader().await?;
        let _third = stage.operator().await?;
        until_told(stage, "second").await?;
        assert!(stage.pods.get("second-0").await?.metadata.deletion_timestamp.is_none());
        free(0).await?;
        any_servers(stage).delete("second", &DeleteParams::default()).await?;
        stage.until_pod("second-0", "gone", |pod| pod.is_none()).await?;
        free(8).await?;
        let mark = stage.quiet().await?;
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(stage.written_since(mark)?, Vec::<String>::new());

        // Corrected as the message says, it is a server like any other.
        let mended = json!({"spec": {"access": {"keys": []}}});
        any_servers(stage).patch("bad", &PatchParams::default(), &Patch::Merge(&mended)).await?;
        stage.until_phase("bad", Phase::Running).await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_user_nobody_can_read_keeps_what_they_have() -> anyhow::Result<()> {
    with_stage(async |stage| {
        let operator = stage.operator().await?;
        stage.create("box", json!({})).await?;
        stage.until_phase("box", Phase::Running).await?;
        let mark = stage.quiet().await?;
        let mut ada = user("ada");
        ada["spec"] = json!({"quota": "none"});
        stage.store_by_other_rules(&ada).await?;
        wait::until("it is noticed", LIMIT, async || {
            let metrics = operator.get("/metrics").await?;
            let noticed = metrics.contains("odc_unreadable_objects_total{controller=\"DevServerUser\"}");
            anyhow::ensure!(noticed, "{}", operator.words());
            Ok(())
        })
        .await?;
        stage.quiet().await?;
        let touched: Vec<String> =
            stage.written_since(mark)?.into_iter().filter(|line| line.starts_with("delete")).collect();
        assert_eq!(touched, Vec::<String>::new());
        assert_eq!(stage.servers.get("box").await?.status.unwrap_or_default().phase, Some(Phase::Running));
        // And nobody else is kept from anything.
        odc::apply(&stage.plane.client, &user("bob")).await?;
        stage.user_ready("bob").await?;

        // When they go, what they had goes as that of anybody else.
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("odc.dev", "v1alpha1", "DevServerUser"));
        let users: Api<DynamicObject> = Api::all_with(stage.plane.client.clone(), &resource);
        users.delete("ada", &DeleteParams::default()).await?;
        until_none(&Api::<Namespace>::all(stage.plane.client.clone()), NAMESPACE).await
    })
    .await
}
