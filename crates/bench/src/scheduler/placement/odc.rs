//! Placement by the scheduler, one pod at a time.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use odc_api::v1alpha1::Priority;
use odc_core::resources::Resources;
use odc_core::scheduler::{self, ClusterState, Event, Policy, Request, RunInfo, Server, ServerState};

use super::super::openb::{Node, Pod};
use super::super::workload::lifetime;

const DEVICE: &str = "gpu";
const YES: &str = "yes";
const MEBIBYTE: i64 = 1 << 20;

pub(super) struct OdcPlacement {
    state: ClusterState,
    policy: Policy,
    /// Indices of nodes by name.
    indices: HashMap<String, usize>,
}

impl OdcPlacement {
    pub fn new(nodes: &[Node], pods: &[&Pod]) -> Self {
        let (policy, mut state, mut indices) = (Policy::default(), ClusterState::new(), HashMap::new());
        // A node has a label for each set of models that contains its model.
        let sets: BTreeSet<&str> = pods.iter().map(|pod| pod.models.as_str()).filter(|set| !set.is_empty()).collect();
        for (index, node) in nodes.iter().enumerate() {
            indices.insert(node.name.clone(), index);
            let matching = sets.iter().filter(|set| set.split('|').any(|model| model == node.model));
            let labels = matching.map(|set| ((*set).to_owned(), YES.to_owned())).collect();
            let mut capacity = Resources::default().with_device(DEVICE, node.devices);
            (capacity.cpu, capacity.memory, capacity.pods) = (node.cpu, node.memory * MEBIBYTE, 110);
            let node = scheduler::Node { name: node.name.clone(), labels, capacity, ..scheduler::Node::default() };
            state.apply(Event::Node(node), policy.usage_half_life, 0);
        }
        Self { state, policy, indices }
    }

    pub fn place(&mut self, number: usize, pod: &Pod, now: i64) -> Option<usize> {
        let mut server = server(number, pod, now);
        self.apply(Event::Server(Box::new(server.clone())), now);
        let plan = self.state.plan(&self.policy, now);
        let mut assignments = plan.assignments.into_iter();
        let Some(node) = assignments.find_map(|assignment| assignment.nodes.into_iter().next()) else {
            self.remove(number, now);
            return None;
        };
        let index = self.indices.get(&node).copied();
        let end = server.max_hold_time.map(|hold_time| now + hold_time);
        let nodes = vec![(node, server.request.per_node.clone())];
        server.state = ServerState::Running(RunInfo { nodes, started_at: now, end, terminating: false });
        self.apply(Event::Server(Box::new(server)), now);
        index
    }

    pub fn remove(&mut self, number: usize, now: i64) {
        self.apply(Event::ServerDeleted(number.to_string()), now);
    }

    fn apply(&mut self, event: Event, now: i64) {
        self.state.apply(event, self.policy.usage_half_life, now);
    }
}

fn server(number: usize, pod: &Pod, now: i64) -> Server {
    let mut per_node = Resources::default().with_device(DEVICE, pod.runtime.devices);
    (per_node.cpu, per_node.memory, per_node.pods) = (pod.cpu, pod.memory * MEBIBYTE, 1);
    let selector = if pod.models.is_empty() { None } else { Some((pod.models.clone(), YES.to_owned())) };
    Server {
        id: number.to_string(),
        name: number.to_string(),
        owner: "all".to_owned(),
        team: None,
        flavor: DEVICE.to_owned(),
        request: Request {
            nodes: 1,
            per_node,
            device: Some(DEVICE.to_owned()),
            selector: selector.into_iter().collect(),
            ..Request::default()
        },
        priority: Priority::Normal,
        preemptible: false,
        queued_at: now,
        not_before: None,
        booking_confirmed: false,
        max_hold_time: Some(lifetime(pod.runtime.seconds)),
        preemptions: 0,
        rejected_by: BTreeMap::new(),
        excluded_this_cycle: false,
        state: ServerState::Pending,
    }
}
