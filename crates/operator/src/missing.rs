//! Nodes that pods are on and that our copy does not have.
//!
//! A list may be old, and a node that was deleted may register anew, so a missing node counts as a silent one: lost when it
//! has been missing for long enough. Since when is a hint of this process, so a restart can only make that later.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;

#[derive(Default)]
pub struct Missing(Mutex<HashMap<String, Timestamp>>);

impl Missing {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Timestamp>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Since when a node is missing that is so now.
    pub fn since(&self, node: &str, now: Timestamp) -> Timestamp {
        *self.lock().entry(node.to_owned()).or_insert(now)
    }

    /// It is there.
    pub fn found(&self, node: &str) {
        self.lock().remove(node);
    }

    /// Of all others nobody asks any more.
    pub fn retain(&self, asked: &HashSet<&str>) {
        self.lock().retain(|node, _| asked.contains(node.as_str()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_missing_from_the_first_look_until_it_is_found() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let missing = Missing::default();
        assert_eq!(missing.since("node-1", at(1)), at(1));
        assert_eq!(missing.since("node-1", at(5)), at(1));
        missing.found("node-1");
        assert_eq!(missing.since("node-1", at(9)), at(9));
        missing.retain(&HashSet::from(["node-1"]));
        assert_eq!(missing.since("node-1", at(10)), at(9));
        missing.retain(&HashSet::new());
        assert_eq!(missing.since("node-1", at(20)), at(20));
    }
}
