//! The proxy that makes things go wrong, between small clients and a real API server.

use std::os::unix::process::ExitStatusExt as _;
use std::pin::pin;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use futures_util::{FutureExt as _, Stream, TryStreamExt as _};
use k8s_openapi::api::authentication::v1::{SelfSubjectReview, TokenRequest};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, ServiceAccount};
use kube::api::{
    Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions, WatchEvent, WatchParams,
};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::watcher;
use kube::{Client, Config, ResourceExt as _};
use odc_tests::apifault::{Action, Apifault, Entry, EventAction, Fault, Kind, Pattern, Plan, Verb};
use odc_tests::{ControlPlane, audit, wait, with_control_plane};
use serde_json::json;
use tokio::process::{Child, Command};

use crate::LIMIT;

/// A proxy with a client behind it, and the same objects seen directly.
struct Rig {
    apifault: Apifault,
    client: Client,
    maps: Api<ConfigMap>,
    direct: Api<ConfigMap>,
}

const AGENT: &str = "behind-apifault";

impl Rig {
    async fn start(plane: &ControlPlane, faults: impl IntoIterator<Item = Fault>) -> anyhow::Result<Self> {
        odc_local::cluster::takes_pods(&plane.client, "default").await?;
        let apifault = Apifault::start(&plane.kubeconfig, Plan::new(faults)).await?;
        let client = client(&apifault, None).await?;
        let maps = Api::default_namespaced(client.clone());
        Ok(Self { apifault, client, maps, direct: Api::default_namespaced(plane.client.clone()) })
    }

    async fn create(&self, name: &str) -> kube::Result<ConfigMap> {
        self.maps.create(&PostParams::default(), &map(name)).await
    }

    async fn exists(&self, name: &str) -> anyhow::Result<bool> {
        Ok(self.direct.get_opt(name).await?.is_some())
    }

    /// A process to be killed in place of the client, which is this test.
    fn victim(&self) -> anyhow::Result<Child> {
        let child = Command::new("sleep").arg("300").kill_on_drop(true).spawn()?;
        self.apifault.client(child.id().unwrap_or_default())?;
        Ok(child)
    }
}

/// As the kubeconfig for clients says, but without retries: every request of a test is its own.
async fn client(apifault: &Apifault, token: Option<&str>) -> anyhow::Result<Client> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("kubeconfig");
    apifault.kubeconfig(&path, token)?;
    let read = Kubeconfig::read_from(&path)?;
    let mut config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await?;
    config.default_retry = false;
    config.headers.push((http::header::USER_AGENT, AGENT.parse()?));
    Ok(Client::try_from(config)?)
}

fn map(name: &str) -> ConfigMap {
    let metadata = kube::api::ObjectMeta { name: Some(name.to_owned()), ..Default::default() };
    ConfigMap { metadata, ..ConfigMap::default() }
}

/// The code of a refusal; nothing if there was no answer.
fn refused<T>(result: kube::Result<T>) -> anyhow::Result<Option<u16>> {
    match result {
        Ok(_) => anyhow::bail!("answered with success"),
        Err(kube::Error::Api(status)) => Ok(Some(status.code)),
        Err(_) => Ok(None),
    }
}

async fn was_killed(mut child: Child) -> anyhow::Result<bool> {
    let status = tokio::time::timeout(LIMIT, child.wait()).await??;
    Ok(status.signal() == Some(9))
}

/// As the kernel names it: `S` sleeps, `T` is stopped.
fn process_state(child: &Child) -> anyhow::Result<String> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id().unwrap_or_default()))?;
    Ok(stat.split(' ').nth(2).unwrap_or_default().to_owned())
}

async fn who_am_i(client: &Client) -> anyhow::Result<String> {
    let reviews: Api<SelfSubjectReview> = Api::all(client.clone());
    let review = reviews.create(&PostParams::default(), &SelfSubjectReview::default()).await?;
    Ok(review.status.and_then(|status| status.user_info).and_then(|user| user.username).unwrap_or_default())
}

/// The next event of a watch, as `added one`.
async fn next(watch: &mut (impl Stream<Item = kube::Result<WatchEvent<ConfigMap>>> + Unpin)) -> anyhow::Result<String> {
    let event = tokio::time::timeout(LIMIT, watch.try_next()).await??;
    Ok(match event.context("the watch has ended")? {
        WatchEvent::Added(map) => format!("added {}", map.name_any()),
        WatchEvent::Modified(map) => format!("modified {}", map.name_any()),
        WatchEvent::Deleted(map) => format!("deleted {}", map.name_any()),
        WatchEvent::Bookmark(_) => "bookmark".to_owned(),
        WatchEvent::Error(status) => format!("error {}", status.code),
    })
}

#[tokio::test]
async fn requests_and_watches_pass_as_they_are() -> anyhow::Result<()> {
    with_control_plane(async |plane| {
        let rig = Rig::start(plane, []).await?;
        let first = rig.create("first").await?;
        assert_eq!(rig.maps.get("first").await?.uid(), rig.direct.get("first").await?.uid());
        assert_eq!(refused(rig.create("first").await)?, Some(409));

        let version = first.resource_version().unwrap_or_default();
        let mut watch = Box::pin(rig.maps.watch(&WatchParams::default(), &version).await?);
        // Each event is there before the next thing happens: nothing waits for more to come.
        for name in ["second", "third"] {
            rig.direct.create(&PostParams::default(), &map(name)).await?;
            assert_eq!(next(&mut watch).await?, format!("added {name}"));
        }
        rig.direct.delete("second", &DeleteParams::default()).await?;
        assert_eq!(next(&mut watch).await?, "deleted second");
        assert_eq!(rig.apifault.fired(), 0);
        // Nor does a watch go on that nobody reads: the API server notes its end.
        drop(watch);
        wait::until("the end of the watch", LIMIT, async || {
            let ours = |request: &audit::Request| request.agent == AGENT && request.verb == "watch";
            anyhow::ensure!(plane.requests()?.iter().any(ours), "it is still there");
            Ok(())
        })
        .await
    })
    .await
}

#[tokio::test]
async fn a_client_with_a_token_is_whom_the_token_says() -> anyhow::Result<()> {
    with_control_plane(async |plane| {
        let rig = Rig::start(plane, []).await?;
        let accounts: Api<ServiceAccount> = Api::default_namespaced(plane.client.clone());
        let asked = TokenRequest::default();
        let token = accounts.create_token_request("default", &PostParams::default(), &asked).await?.status;
        let token = token.context("no token")?.token;
        let named = client(&rig.apifault, Some(&token)).await?;
        assert_eq!(who_am_i(&named).await?, "system:serviceaccount:default:default");
        assert_eq!(who_am_i(&rig.client).await?, who_am_i(&plane.client).await?);
        let wrong = client(&rig.apifault, Some("made-up")).await?;
        assert_eq!(refused(Api::<ConfigMap>::default_namespaced(wrong).get("any").await)?, Some(401));
        Ok(())
    })
    .await
}

#[tokio::test]
async fn the_kth_write_is_where_the_client_dies() -> anyhow::Result<()> {
    with_control_plane(async |plane| {
        // The reference names the crash points. Reads between the writes do not count.
        let work = async |rig: &Rig, prefix: &str| -> anyhow::Result<()> {
            for number in 1..=3 {
                rig.maps.list(&ListParams::default()).await?;
                rig.create(&format!("{prefix}-{number}")).await?;
            }
            Ok(())
        };
        let reference = Rig::start(plane, []).await?;
        work(&reference, "reference").await?;
        let writes = reference.apifault.writes().len();
        assert_eq!(writes, 3);

        for (moment, stored_at_death) in [("before", 0), ("after", 1)] {
            for k in 1..=writes {
                let trigger = Fault::write(u64::try_from(k)?);
                let fault = if moment == "before" { trigger.before(Action::Kill) } else { trigger.after(Action::Kill) };
                let rig = Rig::start(plane, [fault]).await?;
                let victim = rig.victim()?;
                let prefix = format!("{moment}-{k}");
                assert!(work(&rig, &prefix).await.is_err());
                assert!(was_killed(victim).await?, "{prefix}");
                let there = rig.direct.list(&ListParams::default()).await?;
                let there = there.iter().filter(|map| map.name_any().starts_with(&prefix)).count();
                assert_eq!(there, k - 1 + stored_at_death, "{prefix}");
                assert_eq!(rig.apifault.writes().len(), there, "{prefix}");
            }
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_real_client_process_dies_between_its_write_and_the_answer() -> anyhow::Result<()> {
    with_control_plane(async |plane| {
        let hold = Fault::request(1).before(Action::Hold);
        let rig = Rig::start(plane, [hold, Fault::write(1).after(Action::Kill)]).await?;
        let directory = tempfile::tempdir()?;
        let kubeconfig = directory.path().join("kubeconfig");
        rig.apifault.kubeconfig(&kubeconfig, None)?;
        let kube = odc_local::artifact::Executables::find()?.kube;
        let child = Command::new(kube)
            .args(["kubectl", "create", "configmap", "by-kubectl", "--kubeconfig"])
            .arg(&kubeconfig)
            .env("HOME", directory.path())
            .kill_on_drop(true)
            .spawn()?;
        // Nothing happens before the proxy knows whom to kill.
        rig.apifault.until_fired(1, LIMIT).await?;
        rig.apifault.client(child.id().unwrap_or_default())?;
        rig.apifault.release();
        assert!(was_killed(child).await?);
        assert!(rig.exists("by-kubectl").await?);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn an_answer_is_lost_or_replaced_before_or_after_the_write_is_stored() -> anyhow::Result<()> {
    with_control_plane(async |plane| {
        let rig = Rig::start(plane, []).await?;
        let codes = [409, 410, 429, 500, 503, 504].map(|code| (Action::answer(code), Some(code)));
        for (action, code) in codes.into_iter().chain([(Action::HangUp, None)]) {
            let about = code.map_or_else(|| "lost".to_owned(), |code| code.to_string());
            let (before, after) = (format!("before-{about}"), format!("after-{about}"));
            rig.apifault.add(Fault::write(1).before(action.clone()));
            assert_eq!(refused(rig.create(&before).await)?, code);
            assert!(!rig.exists(&before).await?, "{before}");
            // Once is once.
            rig.create(&before).await?;
            rig.apifault.add(Fault::write(1).after(action));
            assert_eq!(refused(rig.create(&after).await)?, code);
            assert!(rig.exists(&after).await?, "{after}");
        }
        // Reads fail too, as often as wanted, and are told when to come back.
        let busy = Action::Answer { code: 429, reason: None, retry_after: Some(7) };
        rig.apifault.add(Fault::request(1).before(busy).times(2));
        for _ in 0..2 {
            let Err(kube::Error::Api(status)) = rig.maps.list(&ListParams::default()).await else {
                anyhow::bail!("answered with success")
            };
            let seconds = status.details.context("no details")?.retry_after_seconds;
            assert_eq!((status.reason.as_str(), seconds), ("TooManyRequests", 7));
        }
        rig.maps.list(&ListParams::default()).await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_request_is_late_or_held_until_it_is_released() -> anyhow::Result<()> {
    with_control_plane(async |plane| {
        let delay = Duration::from_millis(300);
        let late = Fault::write(1).before(Action::Delay { milliseconds: 300 });
        let rig = Rig::start(plane, [late]).await?;
        let started = Instant::now();
        rig.create("late").await?;
        assert!(started.elapsed() >= delay);

        // Before the API server knows of it.
        rig.apifault.add(Fault::write(1).before(Action::Hold));
        let creates = {
            let maps = rig.maps.clone();
            move |name: &'static str| {
                let maps = maps.clone();
                tokio::spawn(async move { maps.create(&PostParams::default(), &map(name)).await })
            }
        };
        let held = creates("held");
        rig.apifault.until_fired(2, LIMIT).await?;
        assert!(!rig.exists("held").await?);
        rig.create("overtakes").await?;
        rig.apifault.release();
        tokio::time::timeout(LIMIT, held).await???;

        // Before the client knows of it.
        rig.apifault.add(Fault::write(1).after(Action::Hold));
        let unheard = creates("unheard");
        rig.apifault.until_fired(3, LIMIT).await?;
        assert!(rig.exists("unheard").await? && !unheard.is_finished());
        rig.apifault.release();
        tokio::time::timeout(LIMIT, unheard).await???;

        // The client is gone, and its write comes after all.
        rig.apifault.add(Fault::write(1).before(Action::Hold));
        let left = creates("left");
        rig.apifault.until_fired(4, LIMIT).await?;
        left.abort();
        assert!(left.await.is_err());
        rig.apifault.release();
        wait::until("the late write", LIMIT, async || {
            anyhow::ensure!(rig.exists("left").await?);
            Ok(())
        })
        .await
    })
    .await
}

#[tokio::test]
async fn a_stopped_client_sleeps_until_it_is_resumed() -> anyhow::Result<()> {
    with_control_plane(async |plane| {
        let rig = Rig::start(plane, [Fault::write(1).after(Action::Stop)]).await?;
        let victim = rig.victim()?;
        rig.create("one").await?;
        let becomes = async |state: &str| {
            wait::until("the state of the process", LIMIT, async || {
                let now = process_state(&victim)?;
                anyhow::ensure!(now == state, "it is {now}");
                Ok(())
            })
            .await
        };
        becomes("T").await?;
        rig.apifault.resume()?;
        becomes("S").await
    })
    .await
}

#[tokio::test]
async fn events_are_dropped_repeated_and_held() -> anyhow::Result<()> {
    with_control_plane(async |plane| {
        let maps = || Pattern::resource("configmaps");
        let faults = [
            Fault::event(2, maps().prefixed("map-"), Some(Kind::Added), EventAction::Drop),
            Fault::event(1, maps().named("map-3"), Some(Kind::Added), EventAction::Repeat),
            Fault::event(1, maps().named("map-1"), Some(Kind::Deleted), EventAction::Hold),
        ];
        let rig = Rig::start(plane, faults).await?;
        let version = rig.maps.list(&ListParams::default()).await?.metadata.resource_version.unwrap_or_default();
        let mut watch = pin!(rig.maps.watch(&WatchParams::default(), &version).await?);
        for name in ["map-1", "map-2", "map-3", "map-4"] {
            rig.direct.create(&PostParams::default(), &map(name)).await?;
        }
        for seen in ["map-1", "map-3", "map-3", "map-4"] {
            assert_eq!(next(&mut watch).await?, format!("added {seen}"));
        }
        rig.direct.delete("map-1", &DeleteParams::default()).await?;
        rig.direct.delete("map-2", &DeleteParams::default()).await?;
        rig.apifault.until_fired(3, LIMIT).await?;
        // The watch stands still, and nothing else does.
        rig.maps.get("map-3").await?;
        assert!(watch.try_next().now_or_never().is_none());
        rig.apifault.release();
        assert_eq!(next(&mut watch).await?, "deleted map-1");
        assert_eq!(next(&mut watch).await?, "deleted map-2");
        let dropped: Vec<_> = rig.apifault.events().into_iter().filter(|event| event.name == "map-2").collect();
        assert_eq!((dropped[0].kind, dropped[0].fault.as_deref()), (Kind::Added, Some("0 event 2: Drop")));
        assert_eq!((dropped[1].kind, dropped[1].fault.as_deref()), (Kind::Deleted, None));
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_watcher_whose_watch_has_expired_lists_anew() -> anyhow::Result<()> {
    with_control_plane(async |plane| {
        let expire = Fault::event(1, Pattern::resource("configmaps").named("unseen"), None, EventAction::Expire);
        let rig = Rig::start(plane, [expire]).await?;
        let mut watcher = pin!(watcher(rig.maps.clone(), watcher::Config::default()));
        let mut listed = async || {
            let mut names = Vec::new();
            loop {
                match tokio::time::timeout(LIMIT, watcher.try_next()).await? {
                    Ok(Some(watcher::Event::InitDone)) => return anyhow::Ok(names),
                    Ok(Some(watcher::Event::InitApply(map))) => names.push(map.name_any()),
                    Ok(Some(_)) | Err(watcher::Error::WatchError(_)) => {}
                    Ok(None) => anyhow::bail!("the watcher has ended"),
                    Err(error) => return Err(error.into()),
                }
            }
        };
        listed().await?;
        rig.direct.create(&PostParams::default(), &map("unseen")).await?;
        assert!(listed().await?.contains(&"unseen".to_owned()));
        let verbs: Vec<Verb> = rig.apifault.trace().iter().map(|entry| entry.verb).collect();
        assert_eq!(verbs[..3], [Verb::List, Verb::Watch, Verb::List]);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_list_is_answered_as_of_old() -> anyhow::Result<()> {
    with_control_plane(async |plane| {
        let of = Pattern::verb(Verb::List, "configmaps");
        let rig = Rig::start(plane, [Fault::request(2).of(of).before(Action::OldList { nth: 1 })]).await?;
        let old = rig.maps.list(&ListParams::default()).await?;
        rig.create("new").await?;
        // Of another selection nothing is remembered.
        assert_eq!(rig.maps.list(&ListParams::default().fields("metadata.name=new")).await?.items.len(), 1);
        let again = rig.maps.list(&ListParams::default()).await?;
        assert_eq!(again.metadata.resource_version, old.metadata.resource_version);
        assert_eq!(again.items.len(), old.items.len());
        // Kubernetes puts maps of its own there too, when it likes.
        let now = rig.maps.list(&ListParams::default()).await?;
        assert!(now.iter().any(|map| map.name_any() == "new"));
        Ok(())
    })
    .await
}

#[tokio::test]
async fn an_api_server_goes_away_and_comes_back() -> anyhow::Result<()> {
    with_control_plane(async |plane| {
        let rig = Rig::start(plane, []).await?;
        let version = rig.create("one").await?.resource_version().unwrap_or_default();
        let mut watch = pin!(rig.maps.watch(&WatchParams::default(), &version).await?);
        for name in ["two", "three"] {
            rig.apifault.down().await?;
            assert!(next(&mut watch).await.is_err());
            assert_eq!(refused(rig.create(name).await)?, None);
            assert!(!rig.exists(name).await?);
            rig.apifault.up().await?;
            rig.create(name).await?;
        }
        // Twice is as good as once.
        rig.apifault.up().await?;
        rig.apifault.down().await?;
        rig.apifault.down().await?;
        assert_eq!(refused(rig.create("four").await)?, None);
        // A proxy that finds no API server behind it hangs up, and says why.
        let directory = tempfile::tempdir()?;
        let kubeconfig = directory.path().join("kubeconfig");
        rig.apifault.kubeconfig(&kubeconfig, None)?;
        let second = Apifault::start(&kubeconfig, Plan::default()).await?;
        let maps: Api<ConfigMap> = Api::default_namespaced(client(&second, None).await?);
        assert_eq!(refused(maps.get("one").await)?, None);
        assert!(second.trace()[0].problem.as_deref().is_some_and(|why| why.starts_with("asking the API server")));
        rig.apifault.up().await?;
        maps.get("one").await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn the_trace_tells_what_passed() -> anyhow::Result<()> {
    with_control_plane(async |plane| {
        let rig = Rig::start(plane, [Fault::write(2).after(Action::answer(504))]).await?;
        let directory = tempfile::tempdir()?;
        let file = directory.path().join("trace.jsonl");
        rig.apifault.trace_to(&file)?;

        let made = rig.create("one").await?;
        let (uid, first) = (made.uid().unwrap_or_default(), made.resource_version().unwrap_or_default());
        let changed = json!({"metadata": {"resourceVersion": first}, "data": {"key": "value"}});
        assert_eq!(refused(rig.maps.patch("one", &PatchParams::default(), &Patch::Merge(changed)).await)?, Some(504));
        let second = rig.maps.get("one").await?.resource_version().unwrap_or_default();
        assert_eq!(refused(rig.create("one").await)?, Some(409));
        let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "leader"}});
        let leases: Api<Lease> = Api::default_namespaced(rig.client.clone());
        leases.create(&PostParams::default(), &serde_json::from_value(lease)?).await?;
        let preconditions = Preconditions { resource_version: Some(second.clone()), uid: Some(uid.clone()) };
        rig.maps.delete("one", &DeleteParams::default().preconditions(preconditions)).await?;

        let trace = rig.apifault.trace();
        let about: Vec<_> =
            trace.iter().map(|entry| (entry.verb, entry.server_code, entry.code, entry.number)).collect();
        assert_eq!(
            about,
            [
                (Verb::Create, Some(201), Some(201), Some(1)),
                (Verb::Patch, Some(200), Some(504), Some(2)),
                (Verb::Get, Some(200), Some(200), None),
                (Verb::Create, Some(409), Some(409), None),
                (Verb::Create, Some(201), Some(201), None),
                (Verb::Delete, Some(200), Some(200), Some(3)),
            ]
        );
        let Entry { resource, namespace, name, agent, .. } = &trace[4];
        assert_eq!([resource, namespace, name, agent], ["leases.coordination.k8s.io", "default", "leader", AGENT]);
        assert_eq!((trace[0].uid.as_ref(), trace[0].version_after.as_ref()), (Some(&uid), Some(&first)));
        let versions = [&trace[1].version_before, &trace[1].version_after].map(Option::as_ref);
        assert_eq!(versions, [Some(&first), Some(&second)]);
        assert_eq!((trace[5].uid_before.as_ref(), trace[5].version_before.as_ref()), (Some(&uid), Some(&second)));
        assert_eq!(trace[5].uid.as_ref(), Some(&uid));
        assert_eq!((&trace[0].body, trace[0].body.as_ref().map(String::len)), (&trace[3].body, Some(16)));
        assert_eq!(trace[1].faults, ["0 write 2: Answer { code: 504, reason: None, retry_after: None } After"]);

        let lines = std::fs::read_to_string(&file)?;
        let read: Vec<Entry> = lines.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
        assert_eq!(read, trace);

        // The API server's own record says the same.
        let stored = |agent: &str| -> anyhow::Result<usize> {
            let requests = plane.requests()?;
            Ok(requests.iter().filter(|request| request.agent == agent && request.is_write()).count())
        };
        wait::until("the audit log", LIMIT, async || {
            anyhow::ensure!(stored(AGENT)? == rig.apifault.writes().len() + 1);
            Ok(())
        })
        .await
    })
    .await
}
