//! Fills a kube `Store` with whole objects of a watched kind, including the operator's own writes.

use std::collections::HashSet;
use std::fmt::Debug;

use futures_util::StreamExt as _;
use kube::api::Api;
use kube::core::error_boundary::InvalidObject;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::reflector::store::Writer;
use kube::runtime::reflector::{Lookup, ObjectRef, Store};
use kube::runtime::watcher::{self, Event};
use kube::{Resource, ResourceExt};
use serde::de::DeserializeOwned;

use super::assumed::{AssumedReceiver, Watermark};
use super::{Key, MaybeInvalid, key, version};

/// A change of a watched object.
pub enum WatchEvent<'a, K> {
    /// The object was created or changed.
    Applied(&'a K),
    /// The object was deleted, or can no longer be deserialized.
    Deleted(&'a K),
    /// The object exists but cannot be deserialized. It counts as absent.
    Invalid(&'a InvalidObject),
    /// An object that could not be deserialized was deleted.
    InvalidDeleted(&'a Key),
}

/// Kinds that can be reflected.
pub trait ReflectedKind:
    Resource<DynamicType = ()> + Lookup<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static
{
}

impl<K> ReflectedKind for K where
    K: Resource<DynamicType = ()> + Lookup<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static
{
}

/// Watches a kind and keeps the store up to date. Never returns.
pub async fn watch<K: ReflectedKind>(
    api: Api<MaybeInvalid<K>>,
    config: watcher::Config,
    writer: Writer<K>,
    mut assumed: AssumedReceiver<K>,
    on_event: impl Fn(WatchEvent<'_, K>),
) {
    let mut events = std::pin::pin!(watcher::watcher(api, config).default_backoff());
    let mut reflector = Reflector::new(writer, Watermark::with_counter(assumed.relists.clone()), on_event);
    loop {
        tokio::select! {
            event = events.next() => match event {
                None => return,
                Some(Err(error)) => {
                    tracing::warn!(error = &error as &dyn std::error::Error, "watch failed, restarting");
                }
                Some(Ok(event)) => reflector.handle(event),
            },
            Some((object, relists)) = assumed.receiver.recv() => reflector.assume(object, relists),
        }
    }
}

struct Reflector<K: ReflectedKind, F> {
    writer: Writer<K>,
    store: Store<K>,
    watermark: Watermark,
    /// Existing objects that cannot be deserialized.
    invalid: HashSet<Key>,
    /// Those of the list in progress.
    listed_invalid: HashSet<Key>,
    on_event: F,
}

impl<K: ReflectedKind, F: Fn(WatchEvent<'_, K>)> Reflector<K, F> {
    fn new(writer: Writer<K>, watermark: Watermark, on_event: F) -> Self {
        let store = writer.as_reader();
        Self { writer, store, watermark, invalid: HashSet::new(), listed_invalid: HashSet::new(), on_event }
    }

    fn handle(&mut self, event: Event<MaybeInvalid<K>>) {
        match event {
            Event::Init => {
                self.watermark.begin_list();
                self.listed_invalid.clear();
                self.writer.apply_watcher_event(&Event::Init);
            }
            Event::InitApply(guarded) => {
                self.watermark.observe(version(&guarded));
                let key = key(&guarded);
                match guarded.0 {
                    Ok(object) => self.writer.apply_watcher_event(&Event::InitApply(prune(object))),
                    Err(invalid) => {
                        self.listed_invalid.insert(key);
                        (self.on_event)(WatchEvent::Invalid(&invalid));
                    }
                }
            }
            Event::InitDone => self.end_list(),
            Event::Apply(guarded) => {
                self.watermark.observe(version(&guarded));
                let key = key(&guarded);
                match guarded.0 {
                    Ok(object) => {
                        self.invalid.remove(&key);
                        self.insert(object);
                    }
                    Err(invalid) => {
                        (self.on_event)(WatchEvent::Invalid(&invalid));
                        self.remove(&key);
                        self.invalid.insert(key);
                    }
                }
            }
            Event::Delete(guarded) => {
                self.watermark.observe(version(&guarded));
                let key = key(&guarded);
                self.remove(&key);
                if self.invalid.remove(&key) {
                    (self.on_event)(WatchEvent::InvalidDeleted(&key));
                }
            }
        }
    }

    /// Completes a list. The store replaces its contents at this point, so deletions that the watch missed become
    /// visible, including those of objects that were assumed since the list began.
    fn end_list(&mut self) {
        let previous = self.store.state();
        self.writer.apply_watcher_event(&Event::InitDone);
        self.watermark.end_list();
        for old in previous {
            let new = self.store.get(&old.to_object_ref(()));
            if new.is_none_or(|new| new.meta().uid != old.meta().uid) {
                (self.on_event)(WatchEvent::Deleted(&old));
            }
        }
        let previous = std::mem::replace(&mut self.invalid, std::mem::take(&mut self.listed_invalid));
        for key in previous.difference(&self.invalid).filter(|key| self.store.get(&object_ref(key)).is_none()) {
            (self.on_event)(WatchEvent::InvalidDeleted(key));
        }
        for object in self.store.state() {
            (self.on_event)(WatchEvent::Applied(&object));
        }
    }

    /// Inserts the result of an own write, subject to [`Watermark::accepts`].
    fn assume(&mut self, object: K, relists: u64) {
        if self.watermark.accepts(version(&object), relists) {
            self.insert(object);
        }
    }

    /// Inserts an object unless the store has this or a newer version, as after an assumed write.
    fn insert(&mut self, object: K) {
        if let Some(old) = self.store.get(&object.to_object_ref(())) {
            if version(&*old) >= version(&object) {
                return;
            }
            if old.meta().uid != object.meta().uid {
                (self.on_event)(WatchEvent::Deleted(&old));
            }
        }
        let object = prune(object);
        self.writer.apply_watcher_event(&Event::Apply(object.clone()));
        (self.on_event)(WatchEvent::Applied(&object));
    }

    fn remove(&mut self, key: &Key) {
        if let Some(old) = self.store.get(&object_ref(key)) {
            self.writer.apply_watcher_event(&Event::Delete((*old).clone()));
            (self.on_event)(WatchEvent::Deleted(&old));
        }
    }
}

fn object_ref<K: ReflectedKind>((namespace, name): &Key) -> ObjectRef<K> {
    let reference = ObjectRef::new(name);
    if namespace.is_empty() { reference } else { reference.within(namespace) }
}

/// Drops metadata that is never read and makes up half of an object.
fn prune<K: ResourceExt>(mut object: K) -> K {
    object.managed_fields_mut().clear();
    object.meta_mut().managed_fields = None;
    if let Some(annotations) = object.meta_mut().annotations.as_mut() {
        annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
    }
    object
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use k8s_openapi::api::core::v1::ConfigMap;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
    use kube::core::DeserializeGuard;
    use kube::runtime::reflector;

    use super::*;
    use crate::cache::assumed::{AssumedSender, assumed_channel};

    fn meta(name: &str, uid: &str, version: u64) -> ObjectMeta {
        ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some("ns".to_owned()),
            uid: Some(uid.to_owned()),
            resource_version: Some(version.to_string()),
            ..ObjectMeta::default()
        }
    }

    fn object(name: &str, uid: &str, version: u64) -> ConfigMap {
        ConfigMap { metadata: meta(name, uid, version), ..ConfigMap::default() }
    }

    fn valid(name: &str, uid: &str, version: u64) -> MaybeInvalid<ConfigMap> {
        DeserializeGuard(Ok(object(name, uid, version)))
    }

    fn invalid(name: &str, uid: &str, version: u64) -> MaybeInvalid<ConfigMap> {
        DeserializeGuard(Err(InvalidObject { error: "invalid".into(), metadata: meta(name, uid, version) }))
    }

    struct Fixture<F> {
        reflector: Reflector<ConfigMap, F>,
        sender: AssumedSender<ConfigMap>,
    }

    /// Returns a reflector that records its events as text.
    fn fixture(events: &RefCell<Vec<String>>) -> Fixture<impl Fn(WatchEvent<'_, ConfigMap>)> {
        let (_, writer) = reflector::store();
        let (sender, receiver) = assumed_channel();
        let uid = |object: &ConfigMap| object.metadata.uid.clone().unwrap_or_default();
        let on_event = move |event: WatchEvent<'_, ConfigMap>| {
            events.borrow_mut().push(match event {
                WatchEvent::Applied(object) => format!("{} applied", uid(object)),
                WatchEvent::Deleted(object) => format!("{} deleted", uid(object)),
                WatchEvent::Invalid(invalid) => format!("{} invalid", invalid.metadata.uid.clone().unwrap_or_default()),
                WatchEvent::InvalidDeleted((_, name)) => format!("{name} invalid deleted"),
            });
        };
        Fixture { reflector: Reflector::new(writer, Watermark::with_counter(receiver.relists), on_event), sender }
    }

    impl<F: Fn(WatchEvent<'_, ConfigMap>)> Fixture<F> {
        fn list(&mut self, objects: Vec<MaybeInvalid<ConfigMap>>) {
            self.reflector.handle(Event::Init);
            for object in objects {
                self.reflector.handle(Event::InitApply(object));
            }
            self.reflector.handle(Event::InitDone);
        }

        fn state(&self) -> Vec<(String, u64)> {
            let all = self.reflector.store.state();
            let mut all: Vec<_> = all.iter().map(|object| (object.name_any(), version(&**object))).collect();
            all.sort();
            all
        }
    }

    #[test]
    fn object_written_and_deleted_before_a_list_is_not_restored() {
        let events = RefCell::default();
        let mut fixture = fixture(&events);
        fixture.list(vec![valid("a", "a1", 50), valid("b", "b1", 90)]);
        let relists = fixture.sender.relists();
        events.take();
        // Our write is stored as 100 and deleted as 101; the newest version in the list that follows is 90.
        fixture.list(vec![valid("b", "b1", 90)]);
        fixture.reflector.assume(object("a", "a1", 100), relists);
        assert_eq!(fixture.state(), [("b".to_owned(), 90)]);
        // Later own writes are assumed again.
        fixture.reflector.assume(object("b", "b1", 102), fixture.sender.relists());
        assert_eq!(fixture.state(), [("b".to_owned(), 102)]);
        assert_eq!(events.take(), ["a1 deleted", "b1 applied", "b1 applied"]);
    }

    #[test]
    fn object_written_during_a_list_without_it_is_removed() {
        let events = RefCell::default();
        let mut fixture = fixture(&events);
        fixture.list(vec![]);
        fixture.reflector.handle(Event::Init);
        fixture.reflector.assume(object("a", "a1", 100), fixture.sender.relists());
        assert_eq!(fixture.state(), [("a".to_owned(), 100)]);
        fixture.reflector.handle(Event::InitDone);
        assert_eq!(fixture.state(), []);
        assert_eq!(events.take(), ["a1 applied", "a1 deleted"]);
    }

    #[test]
    fn late_write_response_does_not_restore_invalid_object() {
        let events = RefCell::default();
        let mut fixture = fixture(&events);
        fixture.list(vec![valid("a", "a1", 50)]);
        fixture.reflector.handle(Event::Apply(invalid("a", "a1", 101)));
        fixture.reflector.assume(object("a", "a1", 100), fixture.sender.relists());
        assert_eq!(fixture.state(), []);
        // The same after a list.
        fixture.list(vec![invalid("a", "a1", 103)]);
        fixture.reflector.assume(object("a", "a1", 102), fixture.sender.relists());
        assert_eq!(fixture.state(), []);
        assert_eq!(events.take(), ["a1 applied", "a1 invalid", "a1 deleted", "a1 invalid"]);
    }

    #[test]
    fn reordered_write_responses_keep_the_newest_version() {
        let events = RefCell::default();
        let mut fixture = fixture(&events);
        fixture.list(vec![valid("a", "a1", 50)]);
        for version in [102, 100] {
            fixture.reflector.assume(object("a", "a1", version), fixture.sender.relists());
        }
        fixture.reflector.handle(Event::Apply(valid("a", "a1", 100)));
        assert_eq!(fixture.state(), [("a".to_owned(), 102)]);
        assert_eq!(events.take(), ["a1 applied", "a1 applied"]);
    }

    #[test]
    fn object_recreated_under_the_same_name_reports_a_deletion() {
        let events = RefCell::default();
        let mut fixture = fixture(&events);
        fixture.list(vec![valid("a", "a1", 50)]);
        fixture.list(vec![valid("a", "a2", 60)]);
        fixture.reflector.handle(Event::Apply(valid("a", "a3", 70)));
        assert_eq!(events.take(), ["a1 applied", "a1 deleted", "a2 applied", "a2 deleted", "a3 applied"]);
    }

    #[test]
    fn deletion_of_invalid_object_is_reported() {
        let events = RefCell::default();
        let mut fixture = fixture(&events);
        fixture.list(vec![invalid("a", "a1", 1), invalid("b", "b1", 2), invalid("c", "c1", 3)]);
        events.take();
        fixture.reflector.handle(Event::Delete(invalid("a", "a1", 4)));
        fixture.reflector.handle(Event::Apply(valid("c", "c1", 5)));
        assert_eq!(events.take(), ["a invalid deleted", "c1 applied"]);
        fixture.list(vec![valid("c", "c1", 5)]);
        assert_eq!(events.take(), ["b invalid deleted", "c1 applied"]);
        fixture.reflector.handle(Event::Delete(valid("c", "c1", 6)));
        assert_eq!(events.take(), ["c1 deleted"]);
    }
}
