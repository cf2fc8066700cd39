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
    /// How often everything was listed to the end.
    lists: u64,
}

#[derive(Debug)]
struct Entry<V> {
    version: u64,
    value: Arc<V>,
    /// Of what we wrote ourselves, until the watch says the same.
    own: Option<Box<Own<V>>>,
}

#[derive(Debug)]
struct Own<V> {
    /// What the watch said last.
    told: Option<Arc<V>>,
    /// It said something since that we did not take. Perhaps others changed it before us, and nobody was told.
    passed_over: bool,
}

impl<V> Default for Cache<V> {
    fn default() -> Self {
        let inner = Inner { spaces: HashMap::new(), version: 0, lists: 0 };
        Self { inner: RwLock::new(inner), ready: watch::Sender::new(false) }
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

    /// How often everything was listed to the end: asked before a write, told with what came of it.
    pub fn lists(&self) -> u64 {
        self.inner.read().unwrap_or_else(PoisonError::into_inner).lists
    }

    /// A list begins, which is believed even when it is older than what is known: a cluster can be set back.
    pub fn begin_list(&self) {
        self.inner.write().unwrap_or_else(PoisonError::into_inner).version = 0;
    }

    /// As a list says. Gives what was there before.
    pub fn insert_listed(&self, key: Key, value: V, version: u64) -> Option<Arc<V>> {
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        inner.version = inner.version.max(version);
        inner.put(key, Entry { version, value: Arc::new(value), own: None }).map(|entry| entry.value)
    }

    /// As a list says of what is of no interest any more.
    pub fn remove_listed(&self, key: &Key, version: u64) -> Option<Arc<V>> {
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        inner.version = inner.version.max(version);
        inner.take(key).map(|entry| entry.value)
    }

    /// As the watch says. While it is behind what we wrote ourselves it has nothing to say.
    pub fn insert(&self, key: Key, value: V, version: u64) -> Told<V> {
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        inner.version = inner.version.max(version);
        if inner.passes_over(&key, version) {
            return Told::Stale;
        }
        let old = inner.put(key, Entry { version, value: Arc::new(value), own: None });
        Told::News(old.and_then(|entry| match entry.own {
            Some(own) if own.passed_over => own.told,
            _ => Some(entry.value),
        }))
    }

    /// Puts in what we wrote ourselves, before the watch tells us; unless it has told us, and perhaps more. What was sent
    /// before the last list ended is in that list, or gone, or the watch tells: the versions in a list say nothing about
    /// what was deleted.
    pub fn insert_own(&self, key: Key, value: V, version: u64, lists: u64) {
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        if lists != inner.lists
            || version <= inner.version
            || inner.get(&key).is_some_and(|known| known.version > version)
        {
            return;
        }
        let own = match inner.take(&key) {
            Some(Entry { own: Some(own), .. }) => own,
            before => Box::new(Own { told: before.map(|entry| entry.value), passed_over: false }),
        };
        inner.put(key, Entry { version, value: Arc::new(value), own: Some(own) });
    }

    pub fn remove(&self, key: &Key, version: u64) -> Told<V> {
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        inner.version = inner.version.max(version);
        // One that went before we made the one we know.
        if inner.passes_over(key, version) {
            return Told::Stale;
        }
        Told::News(inner.take(key).map(|entry| entry.value))
    }

    /// Ends a list: whatever is not in it is gone. Gives those.
    pub fn retain(&self, listed: &HashSet<Key>) -> Vec<(Key, Arc<V>)> {
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        let mut gone = Vec::new();
        for (namespace, space) in &mut inner.spaces {
            space.retain(|name, entry| {
                let key = (namespace.clone(), name.clone());
                let kept = listed.contains(&key);
                if !kept {
                    gone.push((key, entry.value.clone()));
                }
                kept
            });
        }
        inner.spaces.retain(|_, space| !space.is_empty());
        inner.lists += 1;
        drop(inner);
        self.ready.send_replace(true);
        gone
    }
}

impl<V> Inner<V> {
    fn get(&self, (namespace, name): &Key) -> Option<&Entry<V>> {
        self.spaces.get(namespace)?.get(name)
    }

    fn put(&mut self, (namespace, name): Key, entry: Entry<V>) -> Option<Entry<V>> {
        self.spaces.entry(namespace).or_default().insert(name, entry)
    }

    fn take(&mut self, (namespace, name): &Key) -> Option<Entry<V>> {
        let space = self.spaces.get_mut(namespace)?;
        let gone = space.remove(name);
        if space.is_empty() {
            self.spaces.remove(namespace);
        }
        gone
    }

    /// Whether we know more than this version, which is noted.
    fn passes_over(&mut self, (namespace, name): &Key, version: u64) -> bool {
        let known = self.spaces.get_mut(namespace).and_then(|space| space.get_mut(name));
        let Some(known) = known.filter(|known| known.version > version) else { return false };
        if let Some(own) = &mut known.own {
            own.passed_over = true;
        }
        true
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
        cache.insert_own(key("a"), 1, 5, cache.lists());
        assert_eq!(cache.get("ns", "a").as_deref(), Some(&1));
        cache.insert(key("a"), 2, 6);
        cache.remove(&key("a"), 7);
        // Our own answer comes late: the object is gone already.
        cache.insert_own(key("a"), 1, 5, cache.lists());
        assert_eq!(cache.get("ns", "a"), None);
    }

    #[test]
    fn a_watch_that_is_behind_does_not_undo_our_own_writes() {
        let cache = Cache::default();
        cache.insert(key("a"), 1, 1);
        cache.insert_own(key("a"), 3, 9, cache.lists());
        // The one before ours went; ours is there.
        assert_eq!(cache.remove(&key("a"), 8), Told::Stale);
        assert_eq!(cache.get("ns", "a").as_deref(), Some(&3));
        assert_eq!(cache.insert(key("a"), 3, 9), Told::News(Some(Arc::new(1))));
        assert_eq!(cache.remove(&key("a"), 10), Told::News(Some(Arc::new(3))));
    }

    #[test]
    fn what_others_changed_before_us_is_news_when_the_watch_has_caught_up() {
        let cache = Cache::default();
        cache.insert(key("a"), 1, 1);
        cache.insert_own(key("a"), 3, 9, cache.lists());
        // Only our own write comes back: no difference.
        assert_eq!(cache.insert(key("a"), 3, 9), Told::News(Some(Arc::new(3))));
        // Ours holds what somebody wrote before it, of which nobody was told.
        cache.insert_own(key("a"), 5, 20, cache.lists());
        cache.insert_own(key("a"), 6, 22, cache.lists());
        assert_eq!(cache.insert(key("a"), 4, 19), Told::Stale);
        assert_eq!(cache.insert(key("a"), 6, 22), Told::News(Some(Arc::new(3))));
        assert_eq!(cache.insert(key("a"), 7, 23), Told::News(Some(Arc::new(6))));
    }

    #[test]
    fn what_was_written_before_a_list_and_deleted_before_it_does_not_come_back() {
        let cache = Cache::default();
        cache.insert(key("a"), 1, 50);
        cache.insert(key("b"), 1, 90);
        let lists = cache.lists();
        // Ours is stored as 100 and deleted as 101; the list that follows knows nothing newer than 90.
        cache.begin_list();
        cache.insert_listed(key("b"), 1, 90);
        assert_eq!(cache.retain(&HashSet::from([key("b")])), [(key("a"), Arc::new(1))]);
        cache.insert_own(key("a"), 2, 100, lists);
        assert_eq!(cache.get("ns", "a"), None);
    }

    #[test]
    fn what_we_wrote_during_a_list_that_does_not_have_it_is_told_to_be_gone() {
        let cache = Cache::default();
        cache.begin_list();
        cache.insert_own(key("a"), 2, 100, cache.lists());
        assert_eq!(cache.retain(&HashSet::new()), [(key("a"), Arc::new(2))]);
    }

    #[test]
    fn a_list_is_believed_even_when_it_is_older() {
        let cache = Cache::default();
        cache.insert(key("a"), 2, 9);
        cache.begin_list();
        cache.insert_listed(key("a"), 1, 4);
        assert_eq!(cache.get("ns", "a").as_deref(), Some(&1));
        assert_eq!(cache.insert(key("a"), 3, 5), Told::News(Some(Arc::new(1))));
        // What we write from then on counts again.
        cache.insert_own(key("a"), 4, 6, cache.lists());
        assert_eq!(cache.get("ns", "a").as_deref(), Some(&4));
    }

    #[test]
    fn a_new_list_removes_what_is_not_in_it() {
        let cache = Cache::default();
        cache.insert(key("a"), 1, 1);
        cache.insert(key("b"), 2, 2);
        assert!(!*cache.ready.borrow());
        assert_eq!(cache.retain(&HashSet::from([key("b")])), [(key("a"), Arc::new(1))]);
        assert!(*cache.ready.borrow());
        assert_eq!(cache.all().len(), 1);
    }
}
