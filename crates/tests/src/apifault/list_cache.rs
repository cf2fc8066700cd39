//! Cache of LIST responses, for faults that answer with a stale list.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::apifault::request::parameter;

/// Responses kept per key. Later ones are dropped: tests refer to the first lists of a run.
const MAX_PER_KEY: usize = 32;

#[derive(Debug, Default)]
pub struct ListCache {
    responses: BTreeMap<String, Vec<Bytes>>,
}

impl ListCache {
    pub fn insert(&mut self, key: String, response: Bytes) {
        let responses = self.responses.entry(key).or_default();
        if responses.len() < MAX_PER_KEY {
            responses.push(response);
        }
    }

    /// Returns the `nth` response, counted from 1.
    pub fn get(&self, key: &str, nth: usize) -> Option<Bytes> {
        self.responses.get(key)?.get(nth.checked_sub(1)?).cloned()
    }
}

/// Returns the key of a LIST. LISTs that differ only in the resource version share a key. Continuation pages have none.
pub fn key(path: &str, query: &str, accept: &str) -> Option<String> {
    if parameter(query, "continue").is_some_and(|token| !token.is_empty()) {
        return None;
    }
    let selection = ["labelSelector", "fieldSelector", "limit"].map(|name| parameter(query, name).unwrap_or_default());
    Some(format!("{path} {} {accept}", selection.join(" ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_ignores_the_resource_version_but_not_the_selector() {
        let key = |query: &str| key("/api/v1/pods", query, "application/json");
        assert_eq!(key("limit=500"), key("limit=500&resourceVersion=7"));
        assert_ne!(key("labelSelector=a"), key("labelSelector=b"));
        assert_eq!(key("limit=500&continue=abc"), None);
    }

    #[test]
    fn responses_are_found_by_number() {
        let mut cache = ListCache::default();
        cache.insert("a".to_owned(), Bytes::from("one"));
        cache.insert("a".to_owned(), Bytes::from("two"));
        assert_eq!(cache.get("a", 2), Some(Bytes::from("two")));
        assert_eq!((cache.get("a", 0), cache.get("a", 3), cache.get("b", 1)), (None, None, None));
    }
}
