//! The servers of a watch. During a relist the previous servers stay visible.

use std::collections::BTreeMap;

use crate::client::WatchEvent;
use crate::model::server::ServerSummary;

/// Namespace and name.
pub type Key = (String, String);

#[derive(Default)]
pub struct WatchCache {
    servers: Option<BTreeMap<Key, ServerSummary>>,
    /// The servers of a list in progress.
    incoming: BTreeMap<Key, ServerSummary>,
    listing: bool,
}

impl WatchCache {
    pub fn apply(&mut self, event: WatchEvent) {
        match event {
            WatchEvent::Init => (self.incoming, self.listing) = (BTreeMap::new(), true),
            WatchEvent::Apply(server) => {
                let servers = if self.listing { &mut self.incoming } else { self.servers.get_or_insert_default() };
                servers.insert(key(&server), *server);
            }
            WatchEvent::Delete(server) => {
                self.servers.get_or_insert_default().remove(&key(&server));
            }
            WatchEvent::InitDone => {
                (self.servers, self.listing) = (Some(std::mem::take(&mut self.incoming)), false);
            }
            WatchEvent::Interrupted(_) => {}
        }
    }

    /// Returns the servers; `None` until the first list is complete.
    pub fn snapshot(&self) -> Option<&BTreeMap<Key, ServerSummary>> {
        self.servers.as_ref()
    }
}

pub fn key(server: &ServerSummary) -> Key {
    (server.namespace().to_owned(), server.name().to_owned())
}

#[cfg(test)]
mod tests {
    use odc_api::v1alpha1::{DevServer, Phase};

    use super::*;

    fn apply(name: &str) -> WatchEvent {
        let server = DevServer::test().named(name).in_phase(Phase::Running);
        WatchEvent::Apply(Box::new(ServerSummary::try_from(&server).unwrap()))
    }

    fn names(cache: &WatchCache) -> Option<Vec<String>> {
        cache.snapshot().map(|servers| servers.values().map(|server| server.name().to_owned()).collect())
    }

    #[test]
    fn snapshot_is_complete_and_survives_a_relist() {
        let mut cache = WatchCache::default();
        cache.apply(WatchEvent::Init);
        cache.apply(apply("a"));
        assert_eq!(names(&cache), None);
        cache.apply(WatchEvent::InitDone);
        cache.apply(apply("b"));
        assert_eq!(names(&cache).unwrap(), ["a", "b"]);
        cache.apply(WatchEvent::Init);
        cache.apply(apply("b"));
        assert_eq!(names(&cache).unwrap(), ["a", "b"]);
        cache.apply(WatchEvent::InitDone);
        assert_eq!(names(&cache).unwrap(), ["b"]);
    }
}
