//! Changes that are not written yet. The newest object of each key is kept, so that the number of changes is bounded by
//! the number of objects, and none is lost while the database is unavailable.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashSet};
use std::io::{self, Write};

use jiff::Timestamp;
use kube::api::DynamicObject;
use kube::runtime::watcher::Event;

use super::kind::Kind;

/// The number of changes from which no further events are read, until some are written. The API server then closes the
/// watches, which list all objects later.
const MAX_CHANGES: usize = 20_000;
/// The same for the size of the objects as JSON. Users decide how large their objects are.
const MAX_BYTES: usize = 64 << 20;
/// The size of the objects that are written together.
const MAX_BATCH_BYTES: usize = 8 << 20;

/// The change of one object.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The newest state. Absent if the object was deleted while it was not watched.
    pub object: Option<Box<DynamicObject>>,
    pub deleted_at: Option<Timestamp>,
    /// The size of the object.
    bytes: usize,
}

/// The changes of all kinds.
#[derive(Debug, Default)]
pub struct Pending {
    kinds: BTreeMap<Kind, KindState>,
}

#[derive(Debug, Default)]
struct KindState {
    changes: BTreeMap<String, Change>,
    /// The size of the changed objects.
    bytes: usize,
    /// The keys of all objects, once the first list is complete.
    keys: HashSet<String>,
    /// The keys in the current list.
    listed: HashSet<String>,
    synced: bool,
    /// Whether rows of objects that are missing in the last list are to be marked as deleted.
    has_unchecked_list: bool,
}

impl Pending {
    /// Records an event of a watch.
    pub fn record(&mut self, kind: Kind, event: Event<DynamicObject>, now: Timestamp) {
        let state = self.kinds.entry(kind).or_default();
        match event {
            Event::Init => state.listed.clear(),
            Event::InitApply(object) => {
                state.listed.extend(kind.key(&object));
                state.change(kind, object, None);
            }
            Event::InitDone => {
                state.keys = std::mem::take(&mut state.listed);
                state.synced = true;
                state.has_unchecked_list = true;
            }
            Event::Apply(object) => {
                state.keys.extend(kind.key(&object));
                state.change(kind, object, None);
            }
            Event::Delete(object) => {
                if let Some(key) = kind.key(&object) {
                    state.keys.remove(&key);
                }
                state.change(kind, object, Some(now));
            }
        }
    }

    /// Reports whether the first list of a kind is complete.
    pub fn is_synced(&self, kind: Kind) -> bool {
        self.kinds.get(&kind).is_some_and(|state| state.synced)
    }

    /// Reports whether a list has to be compared with the rows of the kind.
    pub fn has_unchecked_list(&self, kind: Kind) -> bool {
        self.kinds.get(&kind).is_some_and(|state| state.has_unchecked_list)
    }

    /// Records the deletion of all objects that have one of these keys and do not exist.
    pub fn delete_missing(&mut self, kind: Kind, keys: Vec<String>, now: Timestamp) {
        let state = self.kinds.entry(kind).or_default();
        state.has_unchecked_list = false;
        for key in keys {
            if !state.keys.contains(&key) {
                let change = state.changes.entry(key).or_insert(Change { object: None, deleted_at: None, bytes: 0 });
                change.deleted_at.get_or_insert(now);
            }
        }
    }

    /// Removes up to `limit` changes of a kind, fewer if they are large.
    pub fn take(&mut self, kind: Kind, limit: usize) -> Vec<(String, Change)> {
        let Some(state) = self.kinds.get_mut(&kind) else { return vec![] };
        let (mut taken, mut bytes) = (vec![], 0);
        while taken.len() < limit && bytes < MAX_BATCH_BYTES {
            let Some((key, change)) = state.changes.pop_first() else { break };
            bytes += change.bytes;
            taken.push((key, change));
        }
        state.bytes -= bytes;
        taken
    }

    /// Returns changes that could not be written. Newer changes of the same objects take precedence.
    pub fn put_back(&mut self, kind: Kind, changes: Vec<(String, Change)>) {
        let state = self.kinds.entry(kind).or_default();
        for (key, change) in changes {
            if let Entry::Vacant(entry) = state.changes.entry(key) {
                state.bytes += change.bytes;
                entry.insert(change);
            }
        }
    }

    pub fn len(&self) -> usize {
        self.kinds.values().map(|state| state.changes.len()).sum()
    }

    /// Reports whether there is something to write or to compare.
    pub fn is_due(&self) -> bool {
        self.kinds.values().any(|state| state.has_unchecked_list || !state.changes.is_empty())
    }

    pub fn is_full(&self) -> bool {
        let bytes: usize = self.kinds.values().map(|state| state.bytes).sum();
        self.len() >= MAX_CHANGES || bytes >= MAX_BYTES
    }
}

impl KindState {
    fn change(&mut self, kind: Kind, object: DynamicObject, deleted_at: Option<Timestamp>) {
        if let Some(key) = kind.key(&object) {
            let bytes = json_size(&object);
            let change = Change { object: Some(Box::new(object)), deleted_at, bytes };
            let replaced = self.changes.insert(key, change);
            self.bytes = self.bytes + bytes - replaced.map_or(0, |change| change.bytes);
        }
    }
}

/// Returns the length of an object as JSON.
fn json_size(object: &DynamicObject) -> usize {
    struct Counter(usize);

    impl Write for Counter {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    let mut counter = Counter(0);
    // What cannot be serialized is not written either.
    let _ = serde_json::to_writer(&mut counter, object);
    counter.0
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    fn object(uid: &str, version: &str) -> DynamicObject {
        let mut object = DynamicObject::new("box", &Kind::Server.resource());
        object.metadata.uid = Some(uid.to_owned());
        object.metadata.resource_version = Some(version.to_owned());
        object
    }

    fn recorded(events: Vec<Event<DynamicObject>>) -> Pending {
        let mut pending = Pending::default();
        for event in events {
            pending.record(Kind::Server, event, NOW);
        }
        pending
    }

    /// Returns the key, version and deletion of each change.
    fn changes(pending: &mut Pending) -> Vec<(String, Option<String>, bool)> {
        let version = |change: &Change| change.object.as_ref()?.metadata.resource_version.clone();
        let changes = pending.take(Kind::Server, usize::MAX).into_iter();
        changes.map(|(key, change)| (key, version(&change), change.deleted_at.is_some())).collect()
    }

    fn expect(changes: &[(&str, Option<&str>, bool)]) -> Vec<(String, Option<String>, bool)> {
        let own = |(key, version, deleted): &(&str, Option<&str>, bool)| {
            ((*key).to_owned(), version.map(str::to_owned), *deleted)
        };
        changes.iter().map(own).collect()
    }

    #[test]
    fn newest_object_of_each_key_is_kept() {
        let mut pending = recorded(vec![
            Event::Apply(object("a", "1")),
            Event::Apply(object("b", "2")),
            Event::Apply(object("a", "3")),
            Event::Delete(object("b", "4")),
        ]);
        assert_eq!(changes(&mut pending), expect(&[("a", Some("3"), false), ("b", Some("4"), true)]));
        assert!(!pending.is_due());
    }

    #[test]
    fn rows_that_are_missing_in_a_list_are_deleted() {
        let mut pending = recorded(vec![Event::Init, Event::InitApply(object("a", "1")), Event::InitDone]);
        assert!(pending.is_synced(Kind::Server) && pending.has_unchecked_list(Kind::Server));
        pending.record(Kind::Server, Event::Apply(object("new", "2")), NOW);
        pending.delete_missing(Kind::Server, ["a", "new", "gone"].map(str::to_owned).into(), NOW);
        assert!(!pending.has_unchecked_list(Kind::Server));
        let expected = expect(&[("a", Some("1"), false), ("gone", None, true), ("new", Some("2"), false)]);
        assert_eq!(changes(&mut pending), expected);
    }

    #[test]
    fn object_that_disappeared_during_an_outage_of_the_watch_is_deleted() {
        let mut pending = recorded(vec![Event::Init, Event::InitApply(object("a", "1")), Event::InitDone]);
        pending.delete_missing(Kind::Server, vec!["a".to_owned()], NOW);
        pending.take(Kind::Server, 9);
        pending.record(Kind::Server, Event::Init, NOW);
        pending.record(Kind::Server, Event::InitDone, NOW);
        pending.delete_missing(Kind::Server, vec!["a".to_owned()], NOW);
        assert_eq!(changes(&mut pending), expect(&[("a", None, true)]));
    }

    #[test]
    fn last_state_of_a_deleted_object_is_kept() {
        let mut pending = recorded(vec![Event::Apply(object("a", "1")), Event::Delete(object("a", "2"))]);
        pending.delete_missing(Kind::Server, vec!["a".to_owned()], NOW);
        assert_eq!(changes(&mut pending), expect(&[("a", Some("2"), true)]));
    }

    #[test]
    fn large_objects_are_written_in_small_batches_and_stop_the_events() {
        let mut pending = Pending::default();
        let record = |uid: usize, pending: &mut Pending| {
            let mut large = object(&uid.to_string(), "1");
            large.data = serde_json::json!({"spec": "x".repeat(3 << 20)});
            pending.record(Kind::Server, Event::Apply(large), NOW);
        };
        for uid in 0..22 {
            assert!(!pending.is_full(), "{uid}");
            // A newer state replaces the older one.
            (0..2).for_each(|_| record(uid, &mut pending));
        }
        assert!(pending.is_full());
        let taken = pending.take(Kind::Server, 500);
        assert_eq!(taken.len(), 3);
        assert!(!pending.is_full());
        record(0, &mut pending);
        pending.put_back(Kind::Server, taken);
        assert!(pending.is_full());
        while !pending.take(Kind::Server, 500).is_empty() {}
        assert_eq!(pending.kinds[&Kind::Server].bytes, 0);
    }

    #[test]
    fn failed_write_does_not_replace_a_newer_change() {
        let mut pending = recorded(vec![Event::Apply(object("a", "1")), Event::Apply(object("b", "1"))]);
        let taken = pending.take(Kind::Server, 2);
        pending.record(Kind::Server, Event::Apply(object("a", "2")), NOW);
        pending.put_back(Kind::Server, taken);
        assert_eq!(changes(&mut pending), expect(&[("a", Some("2"), false), ("b", Some("1"), false)]));
    }
}
