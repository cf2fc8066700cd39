//! Small worlds for tests.

use super::event::{Ask, Server, State};
use crate::amounts::Amounts;
use odc_api::v1alpha1::Priority;

/// A server of `ada` that asks for one GPU.
pub(super) fn server(name: &str, queued: i64) -> Server {
    let mut each = Amounts::default().with_device("gpu", 1);
    (each.cpu, each.pods) = (1_000, 1);
    Server {
        id: name.into(),
        name: name.into(),
        owner: "ada".into(),
        team: None,
        flavor: "flavor-gpu".into(),
        ask: Ask { nodes: 1, each, device: Some("gpu".into()), ..Ask::default() },
        priority: Priority::Normal,
        preemptible: false,
        queued,
        not_before: None,
        booked: false,
        lifetime: None,
        preemptions: 0,
        unfit: std::collections::BTreeMap::new(),
        barred: false,
        state: State::Waiting,
    }
}
