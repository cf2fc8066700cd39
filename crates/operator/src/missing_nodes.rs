//! Nodes that pods are bound to and that the node cache does not have.
//!
//! A list may be stale and a deleted node may register again, so a missing node is treated like an unreachable one:
//! lost after it was missing for long enough. The start of that time is kept in memory only, so a
//! restart can only delay the decision.

use std::collections::{HashMap, HashSet};

use jiff::Timestamp;
use parking_lot::Mutex;

#[derive(Default)]
pub struct MissingNodes(Mutex<HashMap<String, Timestamp>>);

impl MissingNodes {
    /// Returns since when a node is missing, starting with `now` if it was not.
    pub fn missing_since(&self, node: &str, now: Timestamp) -> Timestamp {
        *self.0.lock().entry(node.to_owned()).or_insert(now)
    }

    pub fn remove(&self, node: &str) {
        self.0.lock().remove(node);
    }

    /// Drops all nodes that are no longer referenced by a pod.
    pub fn retain(&self, referenced: &HashSet<&str>) {
        self.0.lock().retain(|node, _| referenced.contains(node.as_str()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_is_missing_from_first_lookup_until_removed() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let missing = MissingNodes::default();
        assert_eq!(missing.missing_since("node-1", at(1)), at(1));
        assert_eq!(missing.missing_since("node-1", at(5)), at(1));
        missing.remove("node-1");
        assert_eq!(missing.missing_since("node-1", at(9)), at(9));
        missing.retain(&HashSet::from(["node-1"]));
        assert_eq!(missing.missing_since("node-1", at(10)), at(9));
        missing.retain(&HashSet::new());
        assert_eq!(missing.missing_since("node-1", at(20)), at(20));
    }
}
