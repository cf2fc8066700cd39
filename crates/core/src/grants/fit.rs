//! Whether a node takes a server, as far as can be seen.

use odc_api::v1alpha1::Toleration;

use super::Request;
use super::room::Place;
use crate::scheduler::{is_selected, lets_in, would_let_in};
use crate::seen::Node;

/// Whether a node takes new pods with these tolerations.
pub(crate) fn is_open(node: &Node, tolerations: &[Toleration]) -> bool {
    node.is_ready() && !node.cordoned && lets_in(&node.taints, tolerations)
}

/// Whether a pod of the request could be on this node now.
pub(super) fn takes(request: &Request, place: &Place<'_>) -> bool {
    let node = place.node;
    is_selected(&node.labels, &request.selector)
        && would_let_in(&node.taints, &request.tolerations)
        && request.reach.iter().all(|reach| reach.includes(&node.labels))
        && is_open(node, &request.tolerations)
        && place.free.holds(&request.each)
}
