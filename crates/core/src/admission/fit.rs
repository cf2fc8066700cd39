//! Whether a pod fits on a node now, by readiness, taints, labels and free resources.

use odc_api::v1alpha1::Toleration;

use super::Request;
use super::capacity::NodeCapacity;
use crate::cluster::Node;
use crate::scheduler::{matches, tolerates};

/// Reports whether a node accepts new pods with these tolerations.
pub(crate) fn is_schedulable(node: &Node, tolerations: &[Toleration]) -> bool {
    node.is_ready() && !node.cordoned && tolerates(&node.taints, tolerations)
}

/// Reports whether a pod of the request fits on the node now.
pub(super) fn fits(request: &Request, capacity: &NodeCapacity<'_>) -> bool {
    let node = capacity.node;
    matches(request, &node.labels, &node.taints)
        && is_schedulable(node, &request.tolerations)
        && capacity.free.fits(&request.per_node)
}
