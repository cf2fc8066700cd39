//! Remembers what LISTs were answered, so that a later one can be answered as of old.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::apifault::call::parameter;

/// Of each path; a test that wants an older snapshot wants one of its beginning.
const REMEMBERED: usize = 32;

#[derive(Debug, Default)]
pub struct Lists {
    answers: BTreeMap<String, Vec<Bytes>>,
}

impl Lists {
    pub fn remember(&mut self, key: String, answer: Bytes) {
        let answers = self.answers.entry(key).or_default();
        if answers.len() < REMEMBERED {
            answers.push(answer);
        }
    }

    /// From 1.
    pub fn get(&self, key: &str, nth: usize) -> Option<Bytes> {
        self.answers.get(key)?.get(nth.checked_sub(1)?).cloned()
    }
}

/// Two LISTs with the same key ask for the same, at whatever version. Later pages have none: a snapshot is its first
/// page.
pub fn key(path: &str, query: &str, accept: &str) -> Option<String> {
    if parameter(query, "continue").is_some_and(|token| !token.is_empty()) {
        return None;
    }
    let selected = ["labelSelector", "fieldSelector", "limit"].map(|name| parameter(query, name).unwrap_or_default());
    Some(format!("{path} {} {accept}", selected.join(" ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_the_same_at_any_version_but_not_of_another_selection() {
        let of = |query: &str| key("/api/v1/pods", query, "application/json");
        assert_eq!(of("limit=500"), of("limit=500&resourceVersion=7"));
        assert_ne!(of("labelSelector=a"), of("labelSelector=b"));
        assert_eq!(of("limit=500&continue=abc"), None);
    }

    #[test]
    fn answers_are_found_by_number() {
        let mut lists = Lists::default();
        lists.remember("a".to_owned(), Bytes::from("one"));
        lists.remember("a".to_owned(), Bytes::from("two"));
        assert_eq!(lists.get("a", 2), Some(Bytes::from("two")));
        assert_eq!((lists.get("a", 0), lists.get("a", 3), lists.get("b", 1)), (None, None, None));
    }
}
