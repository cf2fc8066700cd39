//! What the operator keeps of a kind, by name: projections, filled by a watch.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, PoisonError, RwLock};

use tokio::sync::watch;

/// Namespace and name; the namespace of kinds of the whole cluster is empty.
pub type Key = (String, String);

#[derive(Debug)]
pub struct Cache<V> {
    inner: RwLock<Inner<V>>,
    ready: watch::Sender<bool>,
}

#[derive(Debug)]
struct Inner<V> {
    spaces: HashMap<String, BTreeMap<String, Entry<V>>>,
    /// The newest version the watch has delivered. What we wrote ourselves and is older has been seen already.
    version: u64,
}

#[derive(Debug)]
struct Entry<V> {
    version: u64,
    value: Arc<V>,
}

impl<V> Default for Cache<V> {
    fn default() -> Self {
        Self { inner: RwLock::new(Inner { spaces: HashMap::new(), version: 0 }), ready: watch::Sender::new(false) }
    }
}

impl<V> Cache<V> {
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<V>> {
        let inner = self.inner.read().unwrap_or_else(PoisonError::into_inner);
        inner.spaces.get(namespace)?.get(name).map(|entry| entry.value.clone())
    }

    pub fn all(&self) -> Vec<Arc<V>> {
        let inner = self.inner.read().unwrap_or_else(PoisonError::into_inner);
        inner.spaces.values().flat_map(BTreeMap::values).map(|entry| entry.value.clone()).collect()
    }

    pub fn in_namespace(&self, namespace: &str) -> Vec<Arc<V>> {
        let inner = self.inner.read().unwrap_or_else(PoisonError::into_inner);
        inner.spaces.get(namespace).into_iter().flat_map(BTreeMap::values).map(|entry| entry.value.clone()).collect()
    }

    /// Waits until everything was listed once.
    pub async fn ready(&self) {
        // The sender is ours and lives as long as we do.
        let _ = self.ready.subscribe().wait_for(|ready| *ready).await;
    }

    /// As a list says, which may be older than what is known: a cluster can be set back. Gives what was there before.
    pub fn insert_listed(&self, key: Key, value: V, version: u64) -> Option<Arc<V>> {
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        inner.version = inner.version.max(version);
        inner.put(key, value, version)
    }

    /// As the watch says. While it is behind what we wrote ourselves it has nothing to say. Gives what was there before.
    pub fn insert(&self, key: Key, value: V, version: u64) -> Told<V> {
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        inner.version = inner.version.max(version);
        if inner.knows_more(&key, version) {
            return Told::Stale;
        }
        Told::News(inner.put(key, value, version))
    }

    /// Puts in what we wrote ourselves, before the watch tells us; unless it has told us, and perhaps more.
    pub fn insert_own(&self, key: Key, value: V, version: u64) {
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        if version > inner.version && !inner.knows_more(&key, version) {
            inner.put(key, value, version);
        }
    }

    pub fn remove(&self, key: &Key, version: u64) -> Told<V> {
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        inner.version = inner.version.max(version);
        // One that went before we made the one we know.
        if inner.knows_more(key, version) {
            return Told::Stale;
        }
        let (namespace, name) = key;
        let Some(space) = inner.spaces.get_mut(namespace) else { return Told::News(None) };
        let gone = space.remove(name);
        if space.is_empty() {
            inner.spaces.remove(namespace);
        }
        Told::News(gone.map(|entry| entry.value))
    }

    /// Ends a list: whatever is not in it is gone. Gives the keys of those.
    pub fn retain(&self, listed: &HashSet<Key>) -> Vec<Key> {
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        let mut gone = Vec::new();
        for (namespace, space) in &mut inner.spaces {
            space.retain(|name, _| {
                let key = (namespace.clone(), name.clone());
                let kept = listed.contains(&key);
                if !kept {
                    gone.push(key);
                }
                kept
            });
        }
        inner.spaces.retain(|_, space| !space.is_empty());
        drop(inner);
        self.ready.send_replace(true);
        gone
    }
}

impl<V> Inner<V> {
    fn put(&mut self, (namespace, name): Key, value: V, version: u64) -> Option<Arc<V>> {
        let entry = Entry { version, value: Arc::new(value) };
        self.spaces.entry(namespace).or_default().insert(name, entry).map(|entry| entry.value)
    }

    fn knows_more(&self, (namespace, name): &Key, version: u64) -> bool {
        self.spaces.get(namespace).and_then(|space| space.get(name)).is_some_and(|known| known.version > version)
    }
}

/// What a watch's word was to us.
#[derive(Debug, PartialEq, Eq)]
pub enum Told<V> {
    /// With what was there before.
    News(Option<Arc<V>>),
    /// We knew more.
    Stale,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        ("ns".into(), name.into())
    }

    #[test]
    fn our_own_writes_do_not_undo_what_the_watch_said() {
        let cache = Cache::default();
        cache.insert_own(key("a"), 1, 5);
        assert_eq!(cache.get("ns", "a").as_deref(), Some(&1));
        cache.insert(key("a"), 2, 6);
        cache.remove(&key("a"), 7);
        // Our own answer comes late: the object is gone already.
        cache.insert_own(key("a"), 1, 5);
        assert_eq!(cache.get("ns", "a"), None);
    }

    #[test]
    fn a_watch_that_is_behind_does_not_undo_our_own_writes() {
        let cache = Cache::default();
        cache.insert(key("a"), 1, 1);
        cache.insert_own(key("a"), 3, 9);
        assert_eq!(cache.insert(key("a"), 2, 7), Told::Stale);
        // The one before ours went; ours is there.
        assert_eq!(cache.remove(&key("a"), 8), Told::Stale);
        assert_eq!(cache.get("ns", "a").as_deref(), Some(&3));
        assert_eq!(cache.insert(key("a"), 3, 9), Told::News(Some(Arc::new(3))));
        assert_eq!(cache.remove(&key("a"), 10), Told::News(Some(Arc::new(3))));
    }

    #[test]
    fn a_list_is_believed_even_when_it_is_older() {
        let cache = Cache::default();
        cache.insert(key("a"), 2, 9);
        cache.insert_listed(key("a"), 1, 4);
        assert_eq!(cache.get("ns", "a").as_deref(), Some(&1));
        assert_eq!(cache.insert(key("a"), 3, 5), Told::News(Some(Arc::new(1))));
    }

    #[test]
    fn a_new_list_removes_what_is_not_in_it() {
        let cache = Cache::default();
        cache.insert(key("a"), 1, 1);
        cache.insert(key("b"), 2, 2);
        assert!(!*cache.ready.borrow());
        assert_eq!(cache.retain(&HashSet::from([key("b")])), [key("a")]);
        assert!(*cache.ready.borrow());
        assert_eq!(cache.all().len(), 1);
    }
}
