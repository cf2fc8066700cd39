//! As `follow`, for kinds that are looked at whole. What we wrote ourselves is taken over while the watch is behind.

use std::collections::HashSet;
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::StreamExt as _;
use kube::api::Api;
use kube::core::error_boundary::InvalidObject;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::reflector::store::Writer;
use kube::runtime::reflector::{Lookup, ObjectRef, Store};
use kube::runtime::watcher::{self, Event};
use kube::{Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;

use crate::cache::Key;
use crate::follow::{Guarded, key, version};

/// What happened to an object.
pub enum News<'a, K> {
    /// It is there, new or changed.
    Is(&'a K),
    /// It is gone, or nobody can read any more what it says, which comes to the same.
    Gone(&'a K),
    /// It is there, and counts as not there.
    Unreadable(&'a InvalidObject),
    /// One that could not be read is gone.
    UnreadableGone(&'a Key),
}

/// A kind that can be reflected.
pub trait Whole:
    Resource<DynamicType = ()> + Lookup<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static
{
}

impl<K> Whole for K where
    K: Resource<DynamicType = ()> + Lookup<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static
{
}

/// Where objects go as we wrote them.
pub struct Own<K> {
    to: mpsc::UnboundedSender<(K, u64)>,
    lists: Arc<AtomicU64>,
}

/// Where they come from.
pub struct OwnWrites<K> {
    from: mpsc::UnboundedReceiver<(K, u64)>,
    lists: Arc<AtomicU64>,
}

pub fn own<K>() -> (Own<K>, OwnWrites<K>) {
    let (to, from) = mpsc::unbounded_channel();
    let lists = Arc::new(AtomicU64::new(0));
    (Own { to, lists: lists.clone() }, OwnWrites { from, lists })
}

impl<K> Own<K> {
    /// How often everything was listed to the end: asked before a write, told with what came of it.
    pub fn lists(&self) -> u64 {
        self.lists.load(Ordering::Acquire)
    }

    pub fn send(&self, object: K, lists: u64) {
        // The receiver lives as long as the leader.
        let _ = self.to.send((object, lists));
    }
}

/// Fills a store, for ever.
pub async fn reflect<K: Whole>(
    api: Api<Guarded<K>>,
    config: watcher::Config,
    writer: Writer<K>,
    mut own: OwnWrites<K>,
    tell: impl Fn(News<'_, K>),
) {
    let mut events = std::pin::pin!(watcher::watcher(api, config).default_backoff());
    let mut reflection = Reflection::new(writer, own.lists.clone(), tell);
    loop {
        tokio::select! {
            event = events.next() => match event {
                None => return,
                Some(Err(error)) => {
                    tracing::warn!(error = &error as &dyn std::error::Error, "a watch broke and is made anew");
                }
                Some(Ok(event)) => reflection.receive(event),
            },
            Some((object, lists)) = own.from.recv() => reflection.take_own(object, lists),
        }
    }
}

struct Reflection<K: Whole, T> {
    writer: Writer<K>,
    store: Store<K>,
    /// The newest version the watch has delivered since the last list began. What we wrote ourselves and is older has been
    /// seen already.
    newest: u64,
    lists: Arc<AtomicU64>,
    /// Objects that are there and cannot be read, and those of the list that is under way.
    unreadable: HashSet<Key>,
    listed: HashSet<Key>,
    tell: T,
}

impl<K: Whole, T: Fn(News<'_, K>)> Reflection<K, T> {
    fn new(writer: Writer<K>, lists: Arc<AtomicU64>, tell: T) -> Self {
        let store = writer.as_reader();
        Self { writer, store, newest: 0, lists, unreadable: HashSet::new(), listed: HashSet::new(), tell }
    }

    fn receive(&mut self, event: Event<Guarded<K>>) {
        match event {
            Event::Init => {
                self.newest = 0;
                self.listed.clear();
                self.writer.apply_watcher_event(&Event::Init);
            }
            Event::InitApply(guarded) => {
                self.newest = self.newest.max(version(&guarded));
                let key = key(&guarded);
                match guarded.0 {
                    Ok(object) => self.writer.apply_watcher_event(&Event::InitApply(prune(object))),
                    Err(bad) => {
                        self.listed.insert(key);
                        (self.tell)(News::Unreadable(&bad));
                    }
                }
            }
            Event::InitDone => self.end_list(),
            Event::Apply(guarded) => {
                self.newest = self.newest.max(version(&guarded));
                let key = key(&guarded);
                match guarded.0 {
                    Ok(object) => {
                        self.unreadable.remove(&key);
                        self.put(object);
                    }
                    Err(bad) => {
                        (self.tell)(News::Unreadable(&bad));
                        self.forget(&key);
                        self.unreadable.insert(key);
                    }
                }
            }
            Event::Delete(guarded) => {
                self.newest = self.newest.max(version(&guarded));
                let key = key(&guarded);
                self.forget(&key);
                if self.unreadable.remove(&key) {
                    (self.tell)(News::UnreadableGone(&key));
                }
            }
        }
    }

    /// Only now is the list to be seen, and with it what went while nobody watched, also of what we wrote ourselves since it
    /// began.
    fn end_list(&mut self) {
        let known = self.store.state();
        self.writer.apply_watcher_event(&Event::InitDone);
        self.lists.fetch_add(1, Ordering::AcqRel);
        for before in known {
            let now = self.store.get(&before.to_object_ref(()));
            if now.is_none_or(|now| now.meta().uid != before.meta().uid) {
                (self.tell)(News::Gone(&before));
            }
        }
        let before = std::mem::replace(&mut self.unreadable, std::mem::take(&mut self.listed));
        for key in before.difference(&self.unreadable).filter(|key| self.store.get(&reference(key)).is_none()) {
            (self.tell)(News::UnreadableGone(key));
        }
        for object in self.store.state() {
            (self.tell)(News::Is(&object));
        }
    }

    /// Takes over what we wrote, unless the watch has told us, and perhaps more. What was sent before the last list ended is
    /// in that list, or gone, or the watch tells: the versions in a list say nothing about what was deleted.
    fn take_own(&mut self, object: K, lists: u64) {
        if lists == self.lists.load(Ordering::Acquire) && version(&object) > self.newest {
            self.put(object);
        }
    }

    /// Our own write comes back, or what was before it: everybody knows already.
    fn put(&mut self, object: K) {
        if let Some(known) = self.store.get(&object.to_object_ref(())) {
            if version(&*known) >= version(&object) {
                return;
            }
            if known.meta().uid != object.meta().uid {
                (self.tell)(News::Gone(&known));
            }
        }
        let object = prune(object);
        self.writer.apply_watcher_event(&Event::Apply(object.clone()));
        (self.tell)(News::Is(&object));
    }

    fn forget(&mut self, key: &Key) {
        if let Some(known) = self.store.get(&reference(key)) {
            self.writer.apply_watcher_event(&Event::Delete((*known).clone()));
            (self.tell)(News::Gone(&known));
        }
    }
}

fn reference<K: Whole>((namespace, name): &Key) -> ObjectRef<K> {
    let name = ObjectRef::new(name);
    if namespace.is_empty() { name } else { name.within(namespace) }
}

/// What nobody here reads is half of an object.
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

    fn good(name: &str, uid: &str, version: u64) -> Guarded<ConfigMap> {
        DeserializeGuard(Ok(object(name, uid, version)))
    }

    fn bad(name: &str, uid: &str, version: u64) -> Guarded<ConfigMap> {
        DeserializeGuard(Err(InvalidObject { error: "no".into(), metadata: meta(name, uid, version) }))
    }

    /// A copy, and what it told.
    struct Copy<T> {
        reflection: Reflection<ConfigMap, T>,
        own: Own<ConfigMap>,
    }

    fn told(words: &RefCell<Vec<String>>) -> Copy<impl Fn(News<'_, ConfigMap>)> {
        let (_, writer) = reflector::store();
        let (own, ours) = own();
        let uid = |object: &ConfigMap| object.metadata.uid.clone().unwrap_or_default();
        let tell = move |news: News<'_, ConfigMap>| {
            words.borrow_mut().push(match news {
                News::Is(object) => format!("{} is", uid(object)),
                News::Gone(object) => format!("{} gone", uid(object)),
                News::Unreadable(bad) => format!("{} unreadable", bad.metadata.uid.clone().unwrap_or_default()),
                News::UnreadableGone((_, name)) => format!("{name} unreadable gone"),
            });
        };
        Copy { reflection: Reflection::new(writer, ours.lists, tell), own }
    }

    impl<T: Fn(News<'_, ConfigMap>)> Copy<T> {
        fn list(&mut self, objects: Vec<Guarded<ConfigMap>>) {
            self.reflection.receive(Event::Init);
            for object in objects {
                self.reflection.receive(Event::InitApply(object));
            }
            self.reflection.receive(Event::InitDone);
        }

        fn knows(&self) -> Vec<(String, u64)> {
            let all = self.reflection.store.state();
            let mut all: Vec<_> = all.iter().map(|object| (object.name_any(), version(&**object))).collect();
            all.sort();
            all
        }
    }

    #[test]
    fn what_was_written_before_a_list_and_deleted_before_it_does_not_come_back() {
        let words = RefCell::default();
        let mut copy = told(&words);
        copy.list(vec![good("a", "a1", 50), good("b", "b1", 90)]);
        let lists = copy.own.lists();
        words.take();
        // Ours is stored as 100 and deleted as 101; the list that follows knows nothing newer than 90.
        copy.list(vec![good("b", "b1", 90)]);
        copy.reflection.take_own(object("a", "a1", 100), lists);
        assert_eq!(copy.knows(), [("b".to_owned(), 90)]);
        // What is written from then on counts.
        copy.reflection.take_own(object("b", "b1", 102), copy.own.lists());
        assert_eq!(copy.knows(), [("b".to_owned(), 102)]);
        assert_eq!(words.take(), ["a1 gone", "b1 is", "b1 is"]);
    }

    #[test]
    fn what_we_wrote_during_a_list_that_does_not_have_it_is_told_to_be_gone() {
        let words = RefCell::default();
        let mut copy = told(&words);
        copy.list(vec![]);
        copy.reflection.receive(Event::Init);
        copy.reflection.take_own(object("a", "a1", 100), copy.own.lists());
        assert_eq!(copy.knows(), [("a".to_owned(), 100)]);
        copy.reflection.receive(Event::InitDone);
        assert_eq!(copy.knows(), []);
        assert_eq!(words.take(), ["a1 is", "a1 gone"]);
    }

    #[test]
    fn a_late_answer_does_not_bring_back_what_nobody_can_read_any_more() {
        let words = RefCell::default();
        let mut copy = told(&words);
        copy.list(vec![good("a", "a1", 50)]);
        copy.reflection.receive(Event::Apply(bad("a", "a1", 101)));
        copy.reflection.take_own(object("a", "a1", 100), copy.own.lists());
        assert_eq!(copy.knows(), []);
        // The same, when a list told it.
        copy.list(vec![bad("a", "a1", 103)]);
        copy.reflection.take_own(object("a", "a1", 102), copy.own.lists());
        assert_eq!(copy.knows(), []);
        assert_eq!(words.take(), ["a1 is", "a1 unreadable", "a1 gone", "a1 unreadable"]);
    }

    #[test]
    fn answers_in_the_wrong_order_do_not_set_an_object_back() {
        let words = RefCell::default();
        let mut copy = told(&words);
        copy.list(vec![good("a", "a1", 50)]);
        for version in [102, 100] {
            copy.reflection.take_own(object("a", "a1", version), copy.own.lists());
        }
        copy.reflection.receive(Event::Apply(good("a", "a1", 100)));
        assert_eq!(copy.knows(), [("a".to_owned(), 102)]);
        assert_eq!(words.take(), ["a1 is", "a1 is"]);
    }

    #[test]
    fn a_namesake_is_another() {
        let words = RefCell::default();
        let mut copy = told(&words);
        copy.list(vec![good("a", "a1", 50)]);
        copy.list(vec![good("a", "a2", 60)]);
        copy.reflection.receive(Event::Apply(good("a", "a3", 70)));
        assert_eq!(words.take(), ["a1 is", "a1 gone", "a2 is", "a2 gone", "a3 is"]);
    }

    #[test]
    fn one_that_could_not_be_read_is_missed_when_it_goes() {
        let words = RefCell::default();
        let mut copy = told(&words);
        copy.list(vec![bad("a", "a1", 1), bad("b", "b1", 2), bad("c", "c1", 3)]);
        words.take();
        copy.reflection.receive(Event::Delete(bad("a", "a1", 4)));
        copy.reflection.receive(Event::Apply(good("c", "c1", 5)));
        assert_eq!(words.take(), ["a unreadable gone", "c1 is"]);
        copy.list(vec![good("c", "c1", 5)]);
        assert_eq!(words.take(), ["b unreadable gone", "c1 is"]);
        copy.reflection.receive(Event::Delete(good("c", "c1", 6)));
        assert_eq!(words.take(), ["c1 gone"]);
    }
}
