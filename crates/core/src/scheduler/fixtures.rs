//! Servers for unit tests.

use super::event::{Request, Server, ServerState};
use crate::resources::Resources;
use odc_api::v1alpha1::Priority;

/// Returns a pending server of `ada` that requests one GPU.
pub(super) fn server(name: &str, queued_at: i64) -> Server {
    let mut per_node = Resources::default().with_device("gpu", 1);
    (per_node.cpu, per_node.pods) = (1_000, 1);
    Server {
        id: name.into(),
        name: name.into(),
        owner: "ada".into(),
        team: None,
        flavor: "flavor-gpu".into(),
        request: Request { nodes: 1, per_node, device: Some("gpu".into()), ..Request::default() },
        priority: Priority::Normal,
        preemptible: false,
        queued_at,
        not_before: None,
        booking_confirmed: false,
        max_hold_time: None,
        preemptions: 0,
        rejected_by: std::collections::BTreeMap::new(),
        excluded_this_cycle: false,
        state: ServerState::Pending,
    }
}
