//! What a watch has told so far. While it tells everything anew, what it told before stays.

use std::collections::BTreeMap;

use crate::backend::Change;
use crate::glance::Glance;

/// Namespace and name.
pub type Key = (String, String);

#[derive(Default)]
pub struct Known {
    servers: Option<BTreeMap<Key, Glance>>,
    anew: BTreeMap<Key, Glance>,
    listing: bool,
}

impl Known {
    pub fn take(&mut self, change: Change) {
        match change {
            Change::Relisted => (self.anew, self.listing) = (BTreeMap::new(), true),
            Change::Put(server) => {
                let into = if self.listing { &mut self.anew } else { self.servers.get_or_insert_default() };
                into.insert(key(&server), *server);
            }
            Change::Gone(server) => {
                self.servers.get_or_insert_default().remove(&key(&server));
            }
            Change::Listed => (self.servers, self.listing) = (Some(std::mem::take(&mut self.anew)), false),
            Change::Interrupted(_) => {}
        }
    }

    /// Nothing before everything is known.
    pub fn complete(&self) -> Option<&BTreeMap<Key, Glance>> {
        self.servers.as_ref()
    }
}

pub fn key(server: &Glance) -> Key {
    (server.namespace().to_owned(), server.name().to_owned())
}

#[cfg(test)]
mod tests {
    use odc_api::v1alpha1::{DevServer, Phase};

    use super::*;

    fn put(name: &str) -> Change {
        Change::Put(Box::new(Glance::try_from(&DevServer::test().named(name).in_phase(Phase::Running)).unwrap()))
    }

    fn names(known: &Known) -> Option<Vec<String>> {
        known.complete().map(|servers| servers.values().map(|server| server.name().to_owned()).collect())
    }

    #[test]
    fn nothing_is_shown_before_everything_is_known_and_nothing_vanishes_meanwhile() {
        let mut known = Known::default();
        known.take(Change::Relisted);
        known.take(put("a"));
        assert_eq!(names(&known), None);
        known.take(Change::Listed);
        known.take(put("b"));
        assert_eq!(names(&known).unwrap(), ["a", "b"]);
        known.take(Change::Relisted);
        known.take(put("b"));
        assert_eq!(names(&known).unwrap(), ["a", "b"]);
        known.take(Change::Listed);
        assert_eq!(names(&known).unwrap(), ["b"]);
    }
}
