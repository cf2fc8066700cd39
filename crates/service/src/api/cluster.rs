//! The objects of the cluster in memory, kept current by watches, so that reads need neither the API server nor the
//! database.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::api::Api;
use kube::core::DeserializeGuard;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Resource, ResourceExt as _};
use odc_api::v1alpha1::{DevServer, DevServerFlavor, DevServerUser, Disk, DiskOperation, Team};
use parking_lot::RwLock;
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use super::events::Events;

/// After an error of a watch, the time without another one after which it is current again. The watch is retried at least
/// that often.
const RECOVERY_TIME: Duration = Duration::from_secs(60);

/// All watched kinds.
pub struct Cluster {
    pub devservers: Watched<DevServer>,
    pub disks: Watched<Disk>,
    pub operations: Watched<DiskOperation>,
    pub flavors: Watched<DevServerFlavor>,
    pub users: Watched<DevServerUser>,
    pub teams: Watched<Team>,
    pub nodes: Watched<Node>,
    events: Events,
}

impl Cluster {
    pub fn new(events: Events) -> Self {
        Self {
            devservers: Watched::new(),
            disks: Watched::new(),
            operations: Watched::new(),
            flavors: Watched::new(),
            users: Watched::new(),
            teams: Watched::new(),
            nodes: Watched::new(),
            events,
        }
    }

    /// Keeps the objects current. Does not return.
    pub async fn run(&self, client: &kube::Client) {
        tokio::join!(
            self.devservers.run(client, |user, old, new| self.events.publish_changes(user, old, new)),
            self.disks.run(client, |_, _, _| {}),
            self.operations.run(client, |_, _, _| {}),
            self.flavors.run(client, |_, _, _| {}),
            self.users.run(client, |_, _, _| {}),
            self.teams.run(client, |_, _, _| {}),
            self.nodes.run(client, |_, _, _| {}),
        );
    }

    /// Reports whether all kinds were listed.
    pub fn is_synced(&self) -> bool {
        let synced = [
            self.devservers.is_synced(),
            self.disks.is_synced(),
            self.operations.is_synced(),
            self.flavors.is_synced(),
            self.users.is_synced(),
            self.teams.is_synced(),
            self.nodes.is_synced(),
        ];
        synced.into_iter().all(|synced| synced)
    }
}

/// The user (empty for objects of the cluster) and the name of an object.
type Key = (String, String);

/// The objects of one kind.
pub struct Watched<K> {
    objects: RwLock<BTreeMap<Key, Arc<K>>>,
    synced: watch::Sender<bool>,
    /// Notified after every change of the objects.
    changes: watch::Sender<()>,
    outage: RwLock<Option<Outage>>,
}

/// Errors of a watch.
#[derive(Clone, Copy)]
struct Outage {
    started: Timestamp,
    last_error: Timestamp,
}

impl<K> Watched<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    fn new() -> Self {
        Self {
            objects: RwLock::default(),
            synced: watch::Sender::new(false),
            changes: watch::Sender::new(()),
            outage: RwLock::default(),
        }
    }

    pub fn is_synced(&self) -> bool {
        *self.synced.borrow()
    }

    /// Returns an object of a user, or of the cluster if the user is empty.
    pub fn get(&self, user: &str, name: &str) -> Option<Arc<K>> {
        self.objects.read().get(&(user.to_owned(), name.to_owned())).cloned()
    }

    /// Waits until an object satisfies a condition, or until the timeout. Returns the object, if it exists.
    pub async fn wait_for(
        &self,
        user: &str,
        name: &str,
        timeout: Duration,
        condition: impl Fn(Option<&K>) -> bool,
    ) -> Option<Arc<K>> {
        let mut changes = self.changes.subscribe();
        let satisfied = async {
            loop {
                let object = self.get(user, name);
                // The sender is never dropped.
                if condition(object.as_deref()) || changes.changed().await.is_err() {
                    return object;
                }
            }
        };
        // Without a result in time, the current object counts.
        tokio::time::timeout(timeout, satisfied).await.unwrap_or_else(|_| self.get(user, name))
    }

    /// Returns up to `limit` objects of one user, or of all, sorted by user and name, that come after a key and match.
    pub fn list(
        &self,
        user: Option<&str>,
        after: Option<&(String, String)>,
        limit: usize,
        matches: impl Fn(&K) -> bool,
    ) -> Vec<(Key, Arc<K>)> {
        use std::ops::Bound;
        let first = (user.unwrap_or_default().to_owned(), String::new());
        let start = match after {
            Some(key) if *key >= first => Bound::Excluded(key.clone()),
            Some(_) | None => Bound::Included(first),
        };
        let objects = self.objects.read();
        let items = objects.range((start, Bound::Unbounded));
        let own = items.take_while(|((owner, _), _)| user.is_none_or(|user| owner == user));
        own.filter(|(_, object)| matches(object))
            .take(limit)
            .map(|(key, object)| (key.clone(), object.clone()))
            .collect()
    }

    pub fn len(&self) -> usize {
        self.objects.read().len()
    }

    pub fn is_empty(&self) -> bool {
        self.objects.read().is_empty()
    }

    /// Calls a function with every object.
    pub fn for_each(&self, mut visit: impl FnMut(&K)) {
        self.objects.read().values().for_each(|object| visit(object));
    }

    /// Returns when the objects were known to be current: now, or the time since when the watch fails.
    pub fn observed_at(&self) -> Timestamp {
        let now = Timestamp::now();
        match *self.outage.read() {
            Some(outage) if now.duration_since(outage.last_error).unsigned_abs() < RECOVERY_TIME => outage.started,
            Some(_) | None => now,
        }
    }

    /// Keeps the objects current and reports changes. Does not return.
    async fn run(&self, client: &kube::Client, on_change: impl Fn(&str, Option<&K>, Option<&K>)) {
        let api: Api<DeserializeGuard<K>> = Api::all_with(client.clone(), &());
        let config = watcher::Config::default().streaming_lists();
        let events = watcher(api, config).default_backoff();
        let mut events = std::pin::pin!(events);
        let mut listed: Option<BTreeMap<Key, Arc<K>>> = None;
        while let Some(event) = events.next().await {
            match event {
                Err(error) => self.note_error(&error),
                Ok(event) => {
                    *self.outage.write() = None;
                    self.apply(event, &mut listed, &on_change);
                    self.changes.send_replace(());
                }
            }
        }
    }

    fn note_error(&self, error: &watcher::Error) {
        tracing::warn!(kind = %K::kind(&()), %error, "the watch failed and is retried");
        let now = Timestamp::now();
        let mut outage = self.outage.write();
        let started = outage.map_or(now, |outage| outage.started);
        *outage = Some(Outage { started, last_error: now });
    }

    fn apply(
        &self,
        event: watcher::Event<DeserializeGuard<K>>,
        listed: &mut Option<BTreeMap<Key, Arc<K>>>,
        on_change: &impl Fn(&str, Option<&K>, Option<&K>),
    ) {
        match event {
            watcher::Event::Init => *listed = Some(BTreeMap::new()),
            watcher::Event::InitApply(object) => {
                if let (Some((key, object)), Some(listed)) = (entry(object), listed) {
                    listed.insert(key, object);
                }
            }
            watcher::Event::InitDone => {
                let new = listed.take().unwrap_or_default();
                let old = std::mem::replace(&mut *self.objects.write(), new.clone());
                // The objects of the first list are not changes.
                if self.is_synced() {
                    for (key, object) in &new {
                        on_change(&key.0, old.get(key).map(|old| &**old), Some(object));
                    }
                    for (key, object) in old.iter().filter(|(key, _)| !new.contains_key(*key)) {
                        on_change(&key.0, Some(object), None);
                    }
                }
                self.synced.send_replace(true);
            }
            watcher::Event::Apply(object) => {
                if let Some((key, object)) = entry(object) {
                    let old = self.objects.write().insert(key.clone(), object.clone());
                    on_change(&key.0, old.as_deref(), Some(&object));
                }
            }
            watcher::Event::Delete(object) => {
                let old = key(&object).and_then(|key| Some((self.objects.write().remove(&key)?, key)));
                if let Some((old, key)) = old {
                    on_change(&key.0, Some(&old), None);
                }
            }
        }
    }

    /// Replaces an object, for tests.
    #[cfg(test)]
    pub fn insert(&self, user: &str, object: K) {
        self.objects.write().insert((user.to_owned(), object.name_any()), Arc::new(object));
        self.synced.send_replace(true);
        self.changes.send_replace(());
    }
}

/// Returns an object with its key. Invalid objects and those outside of user namespaces are ignored.
fn entry<K: Resource<DynamicType = ()>>(object: DeserializeGuard<K>) -> Option<(Key, Arc<K>)> {
    let key = key(&object)?;
    match object.0 {
        Ok(mut object) => {
            object.meta_mut().managed_fields = None;
            Some((key, Arc::new(object)))
        }
        Err(error) => {
            tracing::warn!(kind = %K::kind(&()), name = key.1, error = %error.error, "ignored an invalid object");
            None
        }
    }
}

fn key<K: Resource<DynamicType = ()>>(object: &DeserializeGuard<K>) -> Option<Key> {
    let user = match object.namespace() {
        Some(namespace) => odc_api::namespace::owner(&namespace)?.into(),
        None => String::new(),
    };
    Some((user, object.name_any()))
}

#[cfg(test)]
mod tests {
    use odc_api::v1alpha1::TeamSpec;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn wait_ends_with_the_condition_or_the_timeout() {
        let watched = Watched::<Team>::new();
        let spec: TeamSpec = serde_json::from_value(serde_json::json!({})).unwrap();
        let seconds = Duration::from_secs;
        assert!(watched.wait_for("", "a", seconds(1), |team| team.is_some()).await.is_none());
        let (found, ()) = tokio::join!(watched.wait_for("", "a", seconds(60), |team| team.is_some()), async {
            tokio::time::sleep(seconds(1)).await;
            watched.insert("", Team::new("a", spec.clone()));
        });
        assert!(found.is_some());
        assert!(watched.wait_for("", "a", seconds(1), |team| team.is_none()).await.is_some());
    }

    #[test]
    fn list_continues_after_a_key_and_filters_users() {
        let watched = Watched::<Team>::new();
        let spec: TeamSpec = serde_json::from_value(serde_json::json!({})).unwrap();
        for (user, name) in [("ada", "a"), ("ada", "b"), ("bob", "a"), ("ada-2", "x")] {
            watched.insert(user, Team::new(name, spec.clone()));
        }
        let keys = |user: Option<&str>, after: Option<(&str, &str)>, limit| -> Vec<String> {
            let after = after.map(|(user, name)| (user.to_owned(), name.to_owned()));
            let list = watched.list(user, after.as_ref(), limit, |_| true);
            list.into_iter().map(|((user, name), _)| format!("{user}/{name}")).collect()
        };
        assert_eq!(keys(None, None, 9), ["ada/a", "ada/b", "ada-2/x", "bob/a"]);
        assert_eq!(keys(None, Some(("ada", "b")), 1), ["ada-2/x"]);
        assert_eq!(keys(Some("ada"), None, 9), ["ada/a", "ada/b"]);
        assert_eq!(keys(Some("ada"), Some(("ada", "a")), 9), ["ada/b"]);
        assert_eq!(keys(Some("bob"), Some(("ada", "a")), 9), ["bob/a"]);
        assert!(keys(Some("eve"), None, 9).is_empty());
    }
}
