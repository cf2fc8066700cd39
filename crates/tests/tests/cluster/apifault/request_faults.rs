//! Faults on requests: lost, replaced, delayed and held responses, killed and stopped clients.

use anyhow::Context as _;
use kube::ResourceExt as _;
use kube::api::{ListParams, PostParams};
use odc_tests::apifault::{Action, Fault, Pattern, Verb};
use odc_tests::{wait, with_namespace};
use std::time::{Duration, Instant};
use tokio::process::{Child, Command};

use super::{ProxyFixture, error_code, map, was_killed};
use crate::TIMEOUT;

#[tokio::test]
async fn client_is_killed_at_the_kth_write() -> anyhow::Result<()> {
    with_namespace(async |namespace| {
        // The reference run gives the crash points. Reads do not count.
        let run = async |proxy: &ProxyFixture, prefix: &str| -> anyhow::Result<()> {
            for number in 1..=3 {
                proxy.maps.list(&ListParams::default()).await?;
                proxy.create(&format!("{prefix}-{number}")).await?;
            }
            Ok(())
        };
        let reference = ProxyFixture::start(namespace, []).await?;
        run(&reference, "reference").await?;
        let writes = reference.apifault.writes().len();
        assert_eq!(writes, 3);

        for (moment, stored_by_fault) in [("before", 0), ("after", 1)] {
            for k in 1..=writes {
                let fault = Fault::write(u64::try_from(k)?);
                let fault = if moment == "before" { fault.before(Action::Kill) } else { fault.after(Action::Kill) };
                let proxy = ProxyFixture::start(namespace, [fault]).await?;
                let victim = proxy.spawn_victim()?;
                let prefix = format!("{moment}-{k}");
                assert!(run(&proxy, &prefix).await.is_err());
                assert!(was_killed(victim).await?, "{prefix}");
                let stored = proxy.direct.list(&ListParams::default()).await?;
                let stored = stored.iter().filter(|map| map.name_any().starts_with(&prefix)).count();
                assert_eq!(stored, k - 1 + stored_by_fault, "{prefix}");
                assert_eq!(proxy.apifault.writes().len(), stored, "{prefix}");
            }
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn client_process_is_killed_between_its_write_and_the_response() -> anyhow::Result<()> {
    with_namespace(async |namespace| {
        let hold = Fault::request(1).before(Action::Hold);
        let proxy = ProxyFixture::start(namespace, [hold, Fault::write(1).after(Action::Kill)]).await?;
        let directory = tempfile::tempdir()?;
        let kubeconfig = directory.path().join("kubeconfig");
        proxy.apifault.kubeconfig(&kubeconfig, None)?;
        let kube = odc_local::artifact::Executables::find()?.kube;
        let child = Command::new(kube)
            .args(["kubectl", "create", "configmap", "by-kubectl", "--namespace", &namespace.name, "--kubeconfig"])
            .arg(&kubeconfig)
            .env("HOME", directory.path())
            .kill_on_drop(true)
            .spawn()?;
        // The first request is held until the proxy has the client process.
        proxy.apifault.wait_fired(1, TIMEOUT).await?;
        proxy.apifault.set_client(child.id().unwrap_or_default())?;
        proxy.apifault.release();
        assert!(was_killed(child).await?);
        assert!(proxy.exists("by-kubectl").await?);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn response_is_lost_or_replaced_before_or_after_the_write() -> anyhow::Result<()> {
    with_namespace(async |namespace| {
        let proxy = ProxyFixture::start(namespace, []).await?;
        let codes = [409, 410, 429, 500, 503, 504].map(|code| (Action::answer(code), Some(code)));
        for (action, code) in codes.into_iter().chain([(Action::HangUp, None)]) {
            let label = code.map_or_else(|| "lost".to_owned(), |code| code.to_string());
            let (before, after) = (format!("before-{label}"), format!("after-{label}"));
            proxy.apifault.add(Fault::write(1).before(action.clone()));
            assert_eq!(error_code(proxy.create(&before).await)?, code);
            assert!(!proxy.exists(&before).await?, "{before}");
            // The fault fires once.
            proxy.create(&before).await?;
            proxy.apifault.add(Fault::write(1).after(action));
            assert_eq!(error_code(proxy.create(&after).await)?, code);
            assert!(proxy.exists(&after).await?, "{after}");
        }
        // Reads fail as well, with a Retry-After header.
        let throttle = Action::Answer { code: 429, reason: None, retry_after: Some(7) };
        proxy.apifault.add(Fault::request(1).before(throttle).times(2));
        for _ in 0..2 {
            let Err(kube::Error::Api(status)) = proxy.maps.list(&ListParams::default()).await else {
                anyhow::bail!("the request succeeded")
            };
            let seconds = status.details.context("no details")?.retry_after_seconds;
            assert_eq!((status.reason.as_str(), seconds), ("TooManyRequests", 7));
        }
        proxy.maps.list(&ListParams::default()).await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn request_is_delayed_or_held_until_released() -> anyhow::Result<()> {
    with_namespace(async |namespace| {
        let delay = Duration::from_millis(300);
        let fault = Fault::write(1).before(Action::Delay { milliseconds: 300 });
        let proxy = ProxyFixture::start(namespace, [fault]).await?;
        let started = Instant::now();
        proxy.create("delayed").await?;
        assert!(started.elapsed() >= delay);

        // Before the API server receives the request.
        proxy.apifault.add(Fault::write(1).before(Action::Hold));
        let spawn_create = {
            let maps = proxy.maps.clone();
            move |name: &'static str| {
                let maps = maps.clone();
                tokio::spawn(async move { maps.create(&PostParams::default(), &map(name)).await })
            }
        };
        let held = spawn_create("held");
        proxy.apifault.wait_fired(2, TIMEOUT).await?;
        assert!(!proxy.exists("held").await?);
        proxy.create("overtakes").await?;
        proxy.apifault.release();
        tokio::time::timeout(TIMEOUT, held).await???;

        // Before the client receives the response.
        proxy.apifault.add(Fault::write(1).after(Action::Hold));
        let unanswered = spawn_create("unanswered");
        proxy.apifault.wait_fired(3, TIMEOUT).await?;
        assert!(proxy.exists("unanswered").await? && !unanswered.is_finished());
        proxy.apifault.release();
        tokio::time::timeout(TIMEOUT, unanswered).await???;

        // The client disconnects, and its write still arrives.
        proxy.apifault.add(Fault::write(1).before(Action::Hold));
        let abandoned = spawn_create("abandoned");
        proxy.apifault.wait_fired(4, TIMEOUT).await?;
        abandoned.abort();
        assert!(abandoned.await.is_err());
        proxy.apifault.release();
        wait::until("write of a disconnected client", TIMEOUT, async || {
            anyhow::ensure!(proxy.exists("abandoned").await?);
            Ok(())
        })
        .await
    })
    .await
}

/// Returns the state in `/proc`: `S` is sleeping, `T` is stopped.
fn process_state(child: &Child) -> anyhow::Result<String> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id().unwrap_or_default()))?;
    Ok(stat.split(' ').nth(2).unwrap_or_default().to_owned())
}

#[tokio::test]
async fn stopped_client_continues_when_resumed() -> anyhow::Result<()> {
    with_namespace(async |namespace| {
        let proxy = ProxyFixture::start(namespace, [Fault::write(1).after(Action::Stop)]).await?;
        let victim = proxy.spawn_victim()?;
        proxy.create("one").await?;
        let wait_state = async |state: &str| {
            wait::until("process state", TIMEOUT, async || {
                let current = process_state(&victim)?;
                anyhow::ensure!(current == state, "the state is {current}");
                Ok(())
            })
            .await
        };
        wait_state("T").await?;
        proxy.apifault.resume()?;
        wait_state("S").await
    })
    .await
}

#[tokio::test]
async fn list_is_answered_with_an_old_response() -> anyhow::Result<()> {
    with_namespace(async |namespace| {
        let lists = Pattern::verb(Verb::List, "configmaps");
        let proxy =
            ProxyFixture::start(namespace, [Fault::request(2).matching(lists).before(Action::OldList { nth: 1 })])
                .await?;
        let old = proxy.maps.list(&ListParams::default()).await?;
        proxy.create("new").await?;
        // A list with another selector has no cached response.
        assert_eq!(proxy.maps.list(&ListParams::default().fields("metadata.name=new")).await?.items.len(), 1);
        let repeated = proxy.maps.list(&ListParams::default()).await?;
        assert_eq!(repeated.metadata.resource_version, old.metadata.resource_version);
        assert_eq!(repeated.items.len(), old.items.len());
        let current = proxy.maps.list(&ListParams::default()).await?;
        assert!(current.iter().any(|map| map.name_any() == "new"));
        Ok(())
    })
    .await
}
