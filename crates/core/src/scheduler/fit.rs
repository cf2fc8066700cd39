//! Which nodes are right for a request, apart from what is free on them.

use std::collections::BTreeMap;

use odc_api::v1alpha1::Toleration;

use super::event::{Ask, Node, Service};
use super::taint::{lets_in, would_let_in};

/// Its labels, lasting taints and reach are right.
pub(super) fn alike(ask: &Ask, node: &Node) -> bool {
    has_labels(&node.labels, &ask.selector)
        && would_let_in(&node.taints, &ask.tolerations)
        && ask.reach.iter().all(|reach| reach.includes(&node.labels))
}

pub(crate) fn has_labels(labels: &BTreeMap<String, String>, selector: &BTreeMap<String, String>) -> bool {
    selector.iter().all(|(key, value)| labels.get(key) == Some(value))
}

/// Whether it takes new pods with these tolerations now.
pub(super) fn is_open(node: &Node, tolerations: &[Toleration]) -> bool {
    node.service == Service::Open && lets_in(&node.taints, tolerations)
}
