//! Which nodes are right for a request, apart from what is free on them.

use std::collections::BTreeMap;

use odc_api::v1alpha1::Toleration;

use super::event::{Ask, Node, Service};
use super::taint::{lets_in, would_let_in};

/// Nodes with a label whose key begins so are for those who ask for that label, and for nobody else.
const ON_REQUEST: &str = "on-request.odc.dev/";

/// Its labels, lasting taints and reach are right.
pub(super) fn alike(ask: &Ask, node: &Node) -> bool {
    is_selected(&node.labels, &ask.selector)
        && would_let_in(&node.taints, &ask.tolerations)
        && ask.reach.iter().all(|reach| reach.includes(&node.labels))
}

/// Whether a node with these labels is for servers with this selector: it has what they ask for, and they ask for it where
/// it is used on request only.
pub(crate) fn is_selected(labels: &BTreeMap<String, String>, selector: &BTreeMap<String, String>) -> bool {
    has_labels(labels, selector) && unasked(labels, selector).next().is_none()
}

/// The labels by which a node is kept for others.
pub(super) fn unasked<'a>(
    labels: &'a BTreeMap<String, String>,
    selector: &'a BTreeMap<String, String>,
) -> impl Iterator<Item = &'a str> {
    labels.keys().map(String::as_str).filter(|key| key.starts_with(ON_REQUEST) && !selector.contains_key(*key))
}

pub(super) fn has_labels(labels: &BTreeMap<String, String>, selector: &BTreeMap<String, String>) -> bool {
    selector.iter().all(|(key, value)| labels.get(key) == Some(value))
}

/// Whether it takes new pods with these tolerations now.
pub(super) fn is_open(node: &Node, tolerations: &[Toleration]) -> bool {
    node.service == Service::Open && lets_in(&node.taints, tolerations)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_on_request_is_for_those_who_name_its_label() {
        let map = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        let (plain, profiling) = (("gpu", "h100"), ("on-request.odc.dev/profiling", "yes"));
        let other = ("on-request.odc.dev/debug", "yes");
        let node = map(&[plain, profiling]);
        for (selector, is_for) in [
            (vec![], false),
            (vec![plain], false),
            (vec![profiling], true),
            (vec![plain, profiling], true),
            (vec![other], false),
            (vec![("on-request.odc.dev/profiling", "no")], false),
        ] {
            assert_eq!(is_selected(&node, &map(&selector)), is_for, "{selector:?}");
        }
        assert!(is_selected(&map(&[plain]), &map(&[])));
        assert!(!is_selected(&map(&[plain, profiling, other]), &map(&[profiling])));
    }
}
