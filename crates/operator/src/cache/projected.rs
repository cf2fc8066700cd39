//! Fills a [`Cache`] with projections of a watched kind.

use std::collections::HashSet;
use std::fmt::Debug;

use futures_util::StreamExt as _;
use kube::Resource;
use kube::api::Api;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event};
use serde::de::DeserializeOwned;

use super::{Cache, Key, Update, key, version};

/// A change of a cached object.
pub struct Change<'a, V> {
    pub key: &'a Key,
    pub old: Option<&'a V>,
    pub new: Option<&'a V>,
}

/// Watches a kind and keeps the cache up to date. Objects for which `project` returns `None` are not cached. Never
/// returns.
pub async fn watch<K, V>(
    api: Api<K>,
    config: watcher::Config,
    cache: &Cache<V>,
    project: impl Fn(K) -> Option<V>,
    on_change: impl Fn(Change<'_, V>),
) where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let mut events = std::pin::pin!(watcher::watcher(api, config).default_backoff());
    let mut listed = HashSet::new();
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => handle(event, &mut listed, cache, &project, &on_change),
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "watch failed, restarting");
            }
        }
    }
}

/// Applies one event. `listed` collects the keys of the list in progress.
fn handle<K, V>(
    event: Event<K>,
    listed: &mut HashSet<Key>,
    cache: &Cache<V>,
    project: &impl Fn(K) -> Option<V>,
    on_change: &impl Fn(Change<'_, V>),
) where
    K: Resource,
{
    let notify = |key: &Key, update: Update<V>| {
        let Update::Applied(old) = update else { return };
        let new = cache.get(&key.0, &key.1);
        on_change(Change { key, old: old.as_deref(), new: new.as_deref() });
    };
    match event {
        Event::Init => {
            listed.clear();
            cache.begin_list();
        }
        Event::InitApply(object) => {
            let (key, version) = (key(&object), version(&object));
            let Some(new) = project(object) else {
                notify(&key, Update::Applied(cache.remove_listed(&key, version)));
                return;
            };
            notify(&key, Update::Applied(cache.insert_listed(key.clone(), new, version)));
            listed.insert(key);
        }
        Event::InitDone => {
            for (key, old) in cache.end_list(&std::mem::take(listed)) {
                on_change(Change { key: &key, old: Some(&old), new: None });
            }
        }
        Event::Apply(object) => {
            let (key, version) = (key(&object), version(&object));
            let update = match project(object) {
                Some(new) => cache.insert(key.clone(), new, version),
                None => cache.remove(&key, version),
            };
            notify(&key, update);
        }
        Event::Delete(object) => {
            let (key, version) = (key(&object), version(&object));
            notify(&key, cache.remove(&key, version));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use k8s_openapi::api::core::v1::ConfigMap;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

    use super::*;

    fn object(name: &str, version: u64, value: &str) -> ConfigMap {
        let metadata = ObjectMeta {
            name: Some(name.to_owned()),
            resource_version: Some(version.to_string()),
            ..ObjectMeta::default()
        };
        let data = Some([("value".to_owned(), value.to_owned())].into());
        ConfigMap { metadata, data, ..ConfigMap::default() }
    }

    /// Returns the reported changes as text, old and new value. Objects with the value `-` are not projected.
    fn changes(cache: &Cache<String>, events: Vec<Event<ConfigMap>>) -> Vec<String> {
        let (changes, mut listed) = (RefCell::new(Vec::new()), HashSet::new());
        let project = |object: ConfigMap| {
            let value = object.data.unwrap_or_default().remove("value");
            value.filter(|value| value != "-")
        };
        let on_change = |change: Change<'_, String>| {
            let text = |value: Option<&String>| value.map_or("none", |value| value).to_owned();
            changes.borrow_mut().push(format!("{}: {} > {}", change.key.1, text(change.old), text(change.new)));
        };
        for event in events {
            handle(event, &mut listed, cache, &project, &on_change);
        }
        changes.into_inner()
    }

    fn list_events(objects: impl IntoIterator<Item = ConfigMap>) -> Vec<Event<ConfigMap>> {
        let objects = objects.into_iter().map(Event::InitApply);
        [Event::Init].into_iter().chain(objects).chain([Event::InitDone]).collect()
    }

    #[test]
    fn changes_report_old_and_new_value() {
        let cache = Cache::default();
        let first = list_events([object("a", 1, "x"), object("b", 2, "x"), object("c", 3, "-")]);
        assert_eq!(changes(&cache, first), ["a: none > x", "b: none > x", "c: none > none"]);
        let then = vec![
            Event::Apply(object("a", 4, "y")),
            Event::Apply(object("b", 5, "-")),
            Event::Delete(object("a", 6, "y")),
        ];
        assert_eq!(changes(&cache, then), ["a: x > y", "b: x > none", "a: y > none"]);
    }

    #[test]
    fn relist_reports_removed_and_dropped_objects() {
        let cache = Cache::default();
        changes(&cache, list_events([object("a", 1, "x"), object("b", 2, "x"), object("c", 3, "x")]));
        let relist = list_events([object("a", 9, "-"), object("c", 3, "x")]);
        assert_eq!(changes(&cache, relist), ["a: x > none", "c: x > x", "b: x > none"]);
    }

    #[test]
    fn change_missed_because_of_assumed_write_is_reported_later() {
        let cache = Cache::default();
        changes(&cache, list_events([object("a", 1, "x")]));
        cache.assume((String::new(), "a".to_owned()), "other and own".to_owned(), 9, cache.relists());
        assert_eq!(changes(&cache, vec![Event::Apply(object("a", 7, "other"))]), Vec::<String>::new());
        let echo = vec![Event::Apply(object("a", 9, "other and own"))];
        assert_eq!(changes(&cache, echo), ["a: x > other and own"]);
    }
}
