//! Faults on watch events.

use std::pin::pin;

use futures_util::{FutureExt as _, TryStreamExt as _};
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams, PostParams, WatchParams};
use kube::runtime::watcher;
use odc_tests::apifault::{EventAction, EventKind, Fault, Pattern, Verb};
use odc_tests::with_namespace;

use super::{ProxyFixture, map, next};
use crate::TIMEOUT;

#[tokio::test]
async fn events_are_dropped_repeated_and_held() -> anyhow::Result<()> {
    with_namespace(async |namespace| {
        let maps = || Pattern::resource("configmaps");
        let faults = [
            Fault::event(2, maps().with_name_prefix("map-"), Some(EventKind::Added), EventAction::Drop),
            Fault::event(1, maps().with_name("map-3"), Some(EventKind::Added), EventAction::Repeat),
            Fault::event(1, maps().with_name("map-1"), Some(EventKind::Deleted), EventAction::Hold),
        ];
        let proxy = ProxyFixture::start(namespace, faults).await?;
        let version = proxy.maps.list(&ListParams::default()).await?.metadata.resource_version.unwrap_or_default();
        let mut watch = pin!(proxy.maps.watch(&WatchParams::default(), &version).await?);
        for name in ["map-1", "map-2", "map-3", "map-4"] {
            proxy.direct.create(&PostParams::default(), &map(name)).await?;
        }
        for name in ["map-1", "map-3", "map-3", "map-4"] {
            assert_eq!(next(&mut watch).await?, format!("added {name}"));
        }
        proxy.direct.delete("map-1", &DeleteParams::default()).await?;
        proxy.direct.delete("map-2", &DeleteParams::default()).await?;
        proxy.apifault.wait_fired(3, TIMEOUT).await?;
        // Only the watch is blocked.
        proxy.maps.get("map-3").await?;
        assert!(watch.try_next().now_or_never().is_none());
        proxy.apifault.release();
        assert_eq!(next(&mut watch).await?, "deleted map-1");
        assert_eq!(next(&mut watch).await?, "deleted map-2");
        let dropped: Vec<_> = proxy.apifault.events().into_iter().filter(|event| event.name == "map-2").collect();
        assert_eq!((dropped[0].kind, dropped[0].fault.as_deref()), (EventKind::Added, Some("0 event 2: Drop")));
        assert_eq!((dropped[1].kind, dropped[1].fault.as_deref()), (EventKind::Deleted, None));
        Ok(())
    })
    .await
}

#[tokio::test]
async fn watcher_lists_again_after_an_expired_watch() -> anyhow::Result<()> {
    with_namespace(async |namespace| {
        let expire = Fault::event(1, Pattern::resource("configmaps").with_name("unseen"), None, EventAction::Expire);
        let proxy = ProxyFixture::start(namespace, [expire]).await?;
        let mut watcher = pin!(watcher(proxy.maps.clone(), watcher::Config::default()));
        let mut next_list = async || {
            let mut names = Vec::new();
            loop {
                match tokio::time::timeout(TIMEOUT, watcher.try_next()).await? {
                    Ok(Some(watcher::Event::InitDone)) => return anyhow::Ok(names),
                    Ok(Some(watcher::Event::InitApply(map))) => names.push(map.name_any()),
                    Ok(Some(_)) | Err(watcher::Error::WatchError(_)) => {}
                    Ok(None) => anyhow::bail!("the watcher stopped"),
                    Err(error) => return Err(error.into()),
                }
            }
        };
        next_list().await?;
        proxy.direct.create(&PostParams::default(), &map("unseen")).await?;
        assert!(next_list().await?.contains(&"unseen".to_owned()));
        let verbs: Vec<Verb> = proxy.apifault.trace().iter().map(|entry| entry.verb).collect();
        assert_eq!(verbs[..3], [Verb::List, Verb::Watch, Verb::List]);
        Ok(())
    })
    .await
}
