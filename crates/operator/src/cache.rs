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
    spaces: HashMap<String, BTreeMap<String, Arc<V>>>,
    /// The newest version the watch has delivered. What we wrote ourselves and is older has been seen already.
    version: u64,
}

impl<V> Default for Cache<V> {
    fn default() -> Self {
        Self { inner: RwLock::new(Inner { spaces: HashMap::new(), version: 0 }), ready: watch::Sender::new(false) }
    }
}

impl<V> Cache<V> {
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<V>> {
        let inner = self.inner.read().unwrap_or_else(PoisonError::into_inner);
        inner.spaces.get(namespace)?.get(name).cloned()
    }

    pub fn all(&self) -> Vec<Arc<V>> {
        let inner = self.inner.read().unwrap_or_else(PoisonError::into_inner);
        inner.spaces.values().flat_map(BTreeMap::values).cloned().collect()
    }

    pub fn in_namespace(&self, namespace: &str) -> Vec<Arc<V>> {
        let inner = self.inner.read().unwrap_or_else(PoisonError::into_inner);
        inner.spaces.get(namespace).into_iter().flat_map(BTreeMap::values).cloned().collect()
    }

    /// Waits until everything was listed once.
    pub async fn ready(&self) {
        // The sender is ours and lives as long as we do.
        let _ = self.ready.subscribe().wait_for(|ready| *ready).await;
    }

    /// Gives what was there before.
    pub fn insert(&self, (namespace, name): Key, value: V, version: u64) -> Option<Arc<V>> {
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        inner.version = inner.version.max(version);
        inner.spaces.entry(namespace).or_default().insert(name, Arc::new(value))
    }

    /// Puts in what we wrote ourselves, before the watch tells us; unless it has told us, and perhaps more.
    pub fn insert_own(&self, key: Key, value: V, version: u64) {
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        if version > inner.version {
            inner.spaces.entry(key.0).or_default().insert(key.1, Arc::new(value));
        }
    }

    pub fn remove(&self, (namespace, name): &Key, version: u64) -> Option<Arc<V>> {
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        inner.version = inner.version.max(version);
        let space = inner.spaces.get_mut(namespace)?;
        let gone = space.remove(name);
        if space.is_empty() {
            inner.spaces.remove(namespace);
        }
        gone
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
