//! Caches of the watched kinds: projections of objects ([`Cache`], filled by [`projected`]) and whole objects (kube's
//! `Store`, filled by [`reflector`]). Own writes are visible at once ([`assumed`]).

pub mod assumed;
pub mod claim_index;
pub mod cluster;
pub mod projected;
pub mod reflector;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use kube::Resource;
use kube::core::DeserializeGuard;
use parking_lot::RwLock;
use tokio::sync::watch;

use assumed::Watermark;

/// Namespace and name; the namespace of cluster-scoped kinds is empty.
pub type Key = (String, String);

/// An object that may fail to deserialize. Such an object counts as absent and is reported.
pub type MaybeInvalid<K> = DeserializeGuard<K>;

pub fn version<K: Resource>(object: &K) -> u64 {
    object.meta().resource_version.as_ref().and_then(|version| version.parse().ok()).unwrap_or(0)
}

pub fn key<K: Resource>(object: &K) -> Key {
    (object.meta().namespace.clone().unwrap_or_default(), object.meta().name.clone().unwrap_or_default())
}

/// The objects of one kind, by namespace and name.
#[derive(Debug)]
pub struct Cache<V> {
    inner: RwLock<Inner<V>>,
    synced: watch::Sender<bool>,
}

#[derive(Debug)]
struct Inner<V> {
    namespaces: HashMap<String, BTreeMap<String, Entry<V>>>,
    watermark: Watermark,
    /// The number of insertions and removals so far.
    changes: u64,
}

#[derive(Debug)]
struct Entry<V> {
    version: u64,
    value: Arc<V>,
    /// Set while the value is an assumed write.
    assumed: Option<Box<Assumed<V>>>,
}

#[derive(Debug)]
struct Assumed<V> {
    /// The last value the watch delivered.
    watched: Option<Arc<V>>,
    /// The watch delivered an older version since. Another client may have changed the object before our write, and no
    /// handler has seen that change.
    missed_updates: bool,
}

impl<V> Default for Cache<V> {
    fn default() -> Self {
        let inner = Inner { namespaces: HashMap::new(), watermark: Watermark::default(), changes: 0 };
        Self { inner: RwLock::new(inner), synced: watch::Sender::new(false) }
    }
}

impl<V> Cache<V> {
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<V>> {
        self.inner.read().namespaces.get(namespace)?.get(name).map(|entry| entry.value.clone())
    }

    pub fn all(&self) -> Vec<Arc<V>> {
        let inner = self.inner.read();
        inner.namespaces.values().flat_map(BTreeMap::values).map(|entry| entry.value.clone()).collect()
    }

    pub fn in_namespace(&self, namespace: &str) -> Vec<Arc<V>> {
        let inner = self.inner.read();
        let entries = inner.namespaces.get(namespace).into_iter().flat_map(BTreeMap::values);
        entries.map(|entry| entry.value.clone()).collect()
    }

    /// Waits until the first list is complete.
    pub async fn wait_for_sync(&self) {
        // The sender is part of this cache and cannot be dropped before it.
        let _ = self.synced.subscribe().wait_for(|synced| *synced).await;
    }

    /// Returns the number of completed lists. It is zero as long as the API server does not have the kind.
    pub fn relists(&self) -> u64 {
        self.inner.read().watermark.relists()
    }

    /// Returns a number that changes with the contents.
    pub fn revision(&self) -> u64 {
        self.inner.read().changes
    }

    /// Ends the wait for the first list, because the API server does not have the kind.
    pub fn mark_absent(&self) {
        self.synced.send_replace(true);
    }

    pub fn begin_list(&self) {
        self.inner.write().watermark.begin_list();
    }

    /// Inserts an object of a list. Returns the previous value.
    pub fn insert_listed(&self, key: Key, value: V, version: u64) -> Option<Arc<V>> {
        let mut inner = self.inner.write();
        inner.watermark.observe(version);
        inner.insert(key, Entry { version, value: Arc::new(value), assumed: None }).map(|entry| entry.value)
    }

    /// Removes an object that a list contains but the projection drops. Returns the previous value.
    pub fn remove_listed(&self, key: &Key, version: u64) -> Option<Arc<V>> {
        let mut inner = self.inner.write();
        inner.watermark.observe(version);
        inner.remove(key).map(|entry| entry.value)
    }

    /// Inserts an object that the watch delivered, unless the cache has a newer version by an own write.
    pub fn insert(&self, key: Key, value: V, version: u64) -> Update<V> {
        let mut inner = self.inner.write();
        inner.watermark.observe(version);
        if inner.is_stale(&key, version) {
            return Update::Stale;
        }
        let previous = inner.insert(key, Entry { version, value: Arc::new(value), assumed: None });
        Update::Applied(previous.and_then(|entry| match entry.assumed {
            Some(assumed) if assumed.missed_updates => assumed.watched,
            _ => Some(entry.value),
        }))
    }

    /// Inserts the result of an own write, subject to [`Watermark::accepts`].
    pub fn assume(&self, key: Key, value: V, version: u64, relists: u64) {
        let mut inner = self.inner.write();
        if !inner.watermark.accepts(version, relists) || inner.get(&key).is_some_and(|entry| entry.version > version) {
            return;
        }
        let assumed = match inner.remove(&key) {
            Some(Entry { assumed: Some(assumed), .. }) => assumed,
            previous => Box::new(Assumed { watched: previous.map(|entry| entry.value), missed_updates: false }),
        };
        inner.insert(key, Entry { version, value: Arc::new(value), assumed: Some(assumed) });
    }

    /// Removes an object whose deletion the watch delivered, unless the cache has a newer version by an own write.
    pub fn remove(&self, key: &Key, version: u64) -> Update<V> {
        let mut inner = self.inner.write();
        inner.watermark.observe(version);
        if inner.is_stale(key, version) {
            return Update::Stale;
        }
        Update::Applied(inner.remove(key).map(|entry| entry.value))
    }

    /// Completes a list: removes and returns all objects that are not in it.
    pub fn end_list(&self, listed: &HashSet<Key>) -> Vec<(Key, Arc<V>)> {
        let mut inner = self.inner.write();
        let mut removed = Vec::new();
        for (namespace, entries) in &mut inner.namespaces {
            entries.retain(|name, entry| {
                let key = (namespace.clone(), name.clone());
                let is_listed = listed.contains(&key);
                if !is_listed {
                    removed.push((key, entry.value.clone()));
                }
                is_listed
            });
        }
        inner.namespaces.retain(|_, entries| !entries.is_empty());
        inner.changes += 1;
        inner.watermark.end_list();
        drop(inner);
        self.synced.send_replace(true);
        removed
    }
}

impl<V> Inner<V> {
    fn get(&self, (namespace, name): &Key) -> Option<&Entry<V>> {
        self.namespaces.get(namespace)?.get(name)
    }

    fn insert(&mut self, (namespace, name): Key, entry: Entry<V>) -> Option<Entry<V>> {
        self.changes += 1;
        self.namespaces.entry(namespace).or_default().insert(name, entry)
    }

    fn remove(&mut self, (namespace, name): &Key) -> Option<Entry<V>> {
        let entries = self.namespaces.get_mut(namespace)?;
        let removed = entries.remove(name);
        self.changes += 1;
        if entries.is_empty() {
            self.namespaces.remove(namespace);
        }
        removed
    }

    /// Reports whether the cache has a newer version. If that is an assumed write, records the missed update.
    fn is_stale(&mut self, (namespace, name): &Key, version: u64) -> bool {
        let entry = self.namespaces.get_mut(namespace).and_then(|entries| entries.get_mut(name));
        let Some(entry) = entry.filter(|entry| entry.version > version) else { return false };
        if let Some(assumed) = &mut entry.assumed {
            assumed.missed_updates = true;
        }
        true
    }
}

/// The effect of a watch event on the cache.
#[derive(Debug, PartialEq, Eq)]
pub enum Update<V> {
    /// The event was applied. Contains the previous value as the handlers know it.
    Applied(Option<Arc<V>>),
    /// The cache has a newer version.
    Stale,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        ("ns".into(), name.into())
    }

    #[test]
    fn assumed_write_does_not_undo_watch_events() {
        let cache = Cache::default();
        cache.assume(key("a"), 1, 5, cache.relists());
        assert_eq!(cache.get("ns", "a").as_deref(), Some(&1));
        cache.insert(key("a"), 2, 6);
        cache.remove(&key("a"), 7);
        // The response of the write arrives after the deletion.
        cache.assume(key("a"), 1, 5, cache.relists());
        assert_eq!(cache.get("ns", "a"), None);
    }

    #[test]
    fn stale_watch_event_does_not_undo_assumed_write() {
        let cache = Cache::default();
        cache.insert(key("a"), 1, 1);
        cache.assume(key("a"), 3, 9, cache.relists());
        // A predecessor of the same name was deleted.
        assert_eq!(cache.remove(&key("a"), 8), Update::Stale);
        assert_eq!(cache.get("ns", "a").as_deref(), Some(&3));
        assert_eq!(cache.insert(key("a"), 3, 9), Update::Applied(Some(Arc::new(1))));
        assert_eq!(cache.remove(&key("a"), 10), Update::Applied(Some(Arc::new(3))));
    }

    #[test]
    fn updates_missed_because_of_assumed_write_are_reported_later() {
        let cache = Cache::default();
        cache.insert(key("a"), 1, 1);
        cache.assume(key("a"), 3, 9, cache.relists());
        // The watch delivers only our own write: no difference.
        assert_eq!(cache.insert(key("a"), 3, 9), Update::Applied(Some(Arc::new(3))));
        // Our write contains a change of another client that no handler has seen.
        cache.assume(key("a"), 5, 20, cache.relists());
        cache.assume(key("a"), 6, 22, cache.relists());
        assert_eq!(cache.insert(key("a"), 4, 19), Update::Stale);
        assert_eq!(cache.insert(key("a"), 6, 22), Update::Applied(Some(Arc::new(3))));
        assert_eq!(cache.insert(key("a"), 7, 23), Update::Applied(Some(Arc::new(6))));
    }

    #[test]
    fn object_written_and_deleted_before_a_list_is_not_restored() {
        let cache = Cache::default();
        cache.insert(key("a"), 1, 50);
        cache.insert(key("b"), 1, 90);
        let relists = cache.relists();
        // Our write is stored as 100 and deleted as 101; the newest version in the list that follows is 90.
        cache.begin_list();
        cache.insert_listed(key("b"), 1, 90);
        assert_eq!(cache.end_list(&HashSet::from([key("b")])), [(key("a"), Arc::new(1))]);
        cache.assume(key("a"), 2, 100, relists);
        assert_eq!(cache.get("ns", "a"), None);
    }

    #[test]
    fn object_written_during_a_list_without_it_is_removed() {
        let cache = Cache::default();
        cache.begin_list();
        cache.assume(key("a"), 2, 100, cache.relists());
        assert_eq!(cache.end_list(&HashSet::new()), [(key("a"), Arc::new(2))]);
    }

    #[test]
    fn list_is_authoritative_even_if_older() {
        let cache = Cache::default();
        cache.insert(key("a"), 2, 9);
        cache.begin_list();
        cache.insert_listed(key("a"), 1, 4);
        assert_eq!(cache.get("ns", "a").as_deref(), Some(&1));
        assert_eq!(cache.insert(key("a"), 3, 5), Update::Applied(Some(Arc::new(1))));
        // Later own writes are assumed again.
        cache.assume(key("a"), 4, 6, cache.relists());
        assert_eq!(cache.get("ns", "a").as_deref(), Some(&4));
    }

    #[test]
    fn list_removes_unlisted_objects() {
        let cache = Cache::default();
        cache.insert(key("a"), 1, 1);
        cache.insert(key("b"), 2, 2);
        assert!(!*cache.synced.borrow());
        assert_eq!(cache.end_list(&HashSet::from([key("b")])), [(key("a"), Arc::new(1))]);
        assert!(*cache.synced.borrow());
        assert_eq!(cache.all().len(), 1);
    }
}
