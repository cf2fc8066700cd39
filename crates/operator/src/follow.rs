//! Keeps a copy of a kind by watching it: lists once, then follows, and lists anew when the thread is lost.

use std::collections::HashSet;
use std::fmt::Debug;

use futures_util::StreamExt as _;
use kube::Resource;
use kube::api::Api;
use kube::core::DeserializeGuard;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event};
use serde::de::DeserializeOwned;

use crate::cache::{Cache, Key, Told};

/// An object no part of ours can read harms only itself: it counts as not there, and somebody is told.
pub type Guarded<K> = DeserializeGuard<K>;

pub fn version<K: Resource>(object: &K) -> u64 {
    object.meta().resource_version.as_ref().and_then(|version| version.parse().ok()).unwrap_or(0)
}

pub fn key<K: Resource>(object: &K) -> Key {
    (object.meta().namespace.clone().unwrap_or_default(), object.meta().name.clone().unwrap_or_default())
}

/// What happened to an object: how it was and how it is.
pub struct Change<'a, V> {
    pub key: &'a Key,
    pub old: Option<&'a V>,
    pub new: Option<&'a V>,
}

/// Fills a cache with projections of a kind, for ever.
pub async fn follow<K, V>(
    api: Api<K>,
    config: watcher::Config,
    cache: &Cache<V>,
    project: impl Fn(K) -> Option<V>,
    changed: impl Fn(Change<'_, V>),
) where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let mut events = std::pin::pin!(watcher::watcher(api, config).default_backoff());
    let mut listed = HashSet::new();
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => receive(event, &mut listed, cache, &project, &changed),
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "a watch broke and is made anew");
            }
        }
    }
}

/// `listed` is what the list that is under way has named.
fn receive<K, V>(
    event: Event<K>,
    listed: &mut HashSet<Key>,
    cache: &Cache<V>,
    project: &impl Fn(K) -> Option<V>,
    changed: &impl Fn(Change<'_, V>),
) where
    K: Resource,
{
    let tell = |key: &Key, old: Told<V>| {
        let Told::News(old) = old else { return };
        let new = cache.get(&key.0, &key.1);
        changed(Change { key, old: old.as_deref(), new: new.as_deref() });
    };
    match event {
        Event::Init => {
            listed.clear();
            cache.begin_list();
        }
        Event::InitApply(object) => {
            let (key, version) = (key(&object), version(&object));
            let Some(new) = project(object) else {
                tell(&key, Told::News(cache.remove_listed(&key, version)));
                return;
            };
            tell(&key, Told::News(cache.insert_listed(key.clone(), new, version)));
            listed.insert(key);
        }
        Event::InitDone => {
            for (key, old) in cache.retain(&std::mem::take(listed)) {
                changed(Change { key: &key, old: Some(&old), new: None });
            }
        }
        Event::Apply(object) => {
            let (key, version) = (key(&object), version(&object));
            let old = match project(object) {
                Some(new) => cache.insert(key.clone(), new, version),
                None => cache.remove(&key, version),
            };
            tell(&key, old);
        }
        Event::Delete(object) => {
            let (key, version) = (key(&object), version(&object));
            tell(&key, cache.remove(&key, version));
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

    /// What was told of each event: how it was, and how it is. `-` is of no interest.
    fn told(cache: &Cache<String>, events: Vec<Event<ConfigMap>>) -> Vec<String> {
        let (told, mut listed) = (RefCell::new(Vec::new()), HashSet::new());
        let project = |object: ConfigMap| {
            let value = object.data.unwrap_or_default().remove("value");
            value.filter(|value| value != "-")
        };
        let changed = |change: Change<'_, String>| {
            let word = |value: Option<&String>| value.map_or("nothing", |value| value).to_owned();
            told.borrow_mut().push(format!("{}: {} > {}", change.key.1, word(change.old), word(change.new)));
        };
        for event in events {
            receive(event, &mut listed, cache, &project, &changed);
        }
        told.into_inner()
    }

    fn listing(objects: impl IntoIterator<Item = ConfigMap>) -> Vec<Event<ConfigMap>> {
        let objects = objects.into_iter().map(Event::InitApply);
        [Event::Init].into_iter().chain(objects).chain([Event::InitDone]).collect()
    }

    #[test]
    fn everything_is_told_with_how_it_was() {
        let cache = Cache::default();
        let first = listing([object("a", 1, "x"), object("b", 2, "x"), object("c", 3, "-")]);
        assert_eq!(told(&cache, first), ["a: nothing > x", "b: nothing > x", "c: nothing > nothing"]);
        let then = vec![
            Event::Apply(object("a", 4, "y")),
            Event::Apply(object("b", 5, "-")),
            Event::Delete(object("a", 6, "y")),
        ];
        assert_eq!(told(&cache, then), ["a: x > y", "b: x > nothing", "a: y > nothing"]);
    }

    #[test]
    fn what_went_or_became_of_no_interest_while_nobody_watched_is_told() {
        let cache = Cache::default();
        told(&cache, listing([object("a", 1, "x"), object("b", 2, "x"), object("c", 3, "x")]));
        let again = listing([object("a", 9, "-"), object("c", 3, "x")]);
        assert_eq!(told(&cache, again), ["a: x > nothing", "c: x > x", "b: x > nothing"]);
    }

    #[test]
    fn what_is_older_than_our_own_write_is_told_once_the_watch_has_caught_up() {
        let cache = Cache::default();
        told(&cache, listing([object("a", 1, "x")]));
        cache.insert_own((String::new(), "a".to_owned()), "theirs and ours".to_owned(), 9, cache.lists());
        assert_eq!(told(&cache, vec![Event::Apply(object("a", 7, "theirs"))]), Vec::<String>::new());
        let echo = vec![Event::Apply(object("a", 9, "theirs and ours"))];
        assert_eq!(told(&cache, echo), ["a: x > theirs and ours"]);
    }
}
