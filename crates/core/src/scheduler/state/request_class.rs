//! Request classes: equal requests share one sorted index of feasible nodes, which is updated incrementally. A cycle
//! therefore costs O(pending), not O(pending * nodes).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::arena::{Arena, ClassIdx, DenseMap, NodeIdx};
use super::node::{IMMEDIATELY, NodeInfo};
use crate::resources::Resources;
use crate::scheduler::event::{NodeState, Request};
use crate::scheduler::node_match::{is_schedulable, matches};

/// Classes without pending servers are kept up to date for reuse, at most this many.
const MAX_UNUSED_CLASSES: usize = 32;

#[derive(Clone, Debug, Default)]
pub(crate) struct RequestClasses {
    classes: Arena<ClassIdx, RequestClass>,
    by_key: BTreeMap<ClassKey, Vec<ClassIdx>>,
    /// Classes without pending servers, least recently used first.
    unused: Vec<ClassIdx>,
}

/// The parts of a request that differ most often. Only requests with equal keys are compared in full.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ClassKey {
    nodes: u32,
    device: Option<String>,
    cpu: i64,
    memory: i64,
    selector: BTreeMap<String, String>,
}

#[derive(Clone, Debug)]
pub(crate) struct RequestClass {
    pub request: Arc<Request>,
    /// Number of pending servers.
    pending: usize,
    /// By the value of the topology label; a single domain if the request has no topology.
    pub domains: BTreeMap<Arc<str>, TopologyDomain>,
    node_fits: DenseMap<NodeIdx, NodeFit>,
    /// How many pods of the request fit on all nodes without servers.
    max_pods: i64,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct TopologyDomain {
    /// Nodes with a known time from which on the request fits. Those where it fits now come first, best score first.
    pub nodes: BTreeSet<RankedNode>,
    /// Number of nodes on which the request fits now.
    pub available_now: usize,
    /// Number of nodes with [`NodeFit::fits_without_servers`].
    pub fits_without_servers: usize,
    /// Number of nodes with [`NodeFit::fits_empty`].
    pub fits_empty: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RankedNode {
    pub available_from: i64,
    score: NodeScore,
    pub name: Arc<str>,
    pub node: NodeIdx,
}

/// How well a node suits a request; the smallest is the best.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NodeScore {
    /// The node has devices that the request does not need. They would be unusable without CPU.
    pub wastes_devices: bool,
    /// No part of the node is used. Empty nodes are kept for servers that need a whole node.
    pub empty_node: bool,
    free_devices: i64,
    free_cpu: i64,
}

/// The relation of a node to a request. Only nodes that match the request have one.
#[derive(Clone, Debug)]
pub(crate) struct NodeFit {
    /// The request fits on the node if it is empty and schedulable.
    pub fits_empty: bool,
    /// The request fits if only servers leave. Other nodes are not worth waiting for: when an unschedulable node or foreign
    /// pods change is unknown, and capacity held for them would be wasted.
    pub fits_without_servers: bool,
    /// The node accepts pods now, whatever is free on it.
    pub schedulable: bool,
    /// `None` if the gang needs a topology label that the node does not have.
    pub domain: Option<Arc<str>>,
    /// How many pods of the request fit without servers.
    max_pods: i64,
    ranked: Option<RankedNode>,
}

impl ClassKey {
    fn new(request: &Request) -> Self {
        Self {
            nodes: request.nodes,
            device: request.device.clone(),
            cpu: request.per_node.cpu,
            memory: request.per_node.memory,
            selector: request.selector.clone(),
        }
    }
}

impl RequestClasses {
    /// Returns the class of a request for one more pending server. Creates the class if needed.
    pub fn acquire<'a>(&mut self, request: &Request, nodes: impl Iterator<Item = (NodeIdx, &'a NodeInfo)>) -> ClassIdx {
        let candidates = self.by_key.entry(ClassKey::new(request)).or_default();
        let existing = candidates
            .iter()
            .copied()
            .find(|class| self.classes.get(*class).is_some_and(|class| *class.request == *request));
        if let Some(class) = existing {
            self.unused.retain(|unused| *unused != class);
            if let Some(class) = self.classes.get_mut(class) {
                class.pending += 1;
            }
            return class;
        }
        let (domains, node_fits) = (BTreeMap::new(), DenseMap::default());
        let request = Arc::new(request.clone());
        let mut class = RequestClass { request, pending: 1, domains, node_fits, max_pods: 0 };
        for (node, info) in nodes {
            class.refresh_node(node, Some(info));
        }
        let index = self.classes.allocate();
        candidates.push(index);
        self.classes.insert(index, class);
        index
    }

    /// Removes one pending server from a class.
    pub fn release(&mut self, index: ClassIdx) {
        let Some(class) = self.classes.get_mut(index) else { return };
        class.pending = class.pending.saturating_sub(1);
        if class.pending > 0 {
            return;
        }
        self.unused.push(index);
        if self.unused.len() > MAX_UNUSED_CLASSES {
            let evicted = self.unused.remove(0);
            if let Some(class) = self.classes.release(evicted) {
                let key = ClassKey::new(&class.request);
                if let Some(candidates) = self.by_key.get_mut(&key) {
                    candidates.retain(|candidate| *candidate != evicted);
                    if candidates.is_empty() {
                        self.by_key.remove(&key);
                    }
                }
            }
        }
    }

    pub fn get(&self, index: ClassIdx) -> Option<&RequestClass> {
        self.classes.get(index)
    }

    /// Updates all classes after a node was added, changed or removed.
    pub fn refresh_node(&mut self, node: NodeIdx, info: Option<&NodeInfo>) {
        self.classes.values_mut().for_each(|class| class.refresh_node(node, info));
    }

    /// Updates all classes after the usage of a node changed.
    pub fn update_availability(&mut self, node: NodeIdx, info: &NodeInfo) {
        self.classes.values_mut().for_each(|class| class.update_availability(node, info));
    }
}

impl RequestClass {
    pub fn node_fit(&self, node: NodeIdx) -> Option<&NodeFit> {
        self.node_fits.get(node)
    }

    /// Returns all nodes that match the request.
    pub fn node_fits(&self) -> impl Iterator<Item = (NodeIdx, &NodeFit)> {
        self.node_fits.iter()
    }

    /// Returns how much servers of this class can use at once, in millidevices.
    pub fn usage_capacity(&self) -> i128 {
        let nodes = i128::try_from(self.request.nodes()).unwrap_or(i128::MAX);
        i128::from(self.request.usage_rate()) * i128::from(self.max_pods) / nodes
    }

    fn refresh_node(&mut self, node: NodeIdx, info: Option<&NodeInfo>) {
        let old = self.node_fits.remove(node);
        self.max_pods = self.max_pods.saturating_sub(old.as_ref().map_or(0, |old| old.max_pods));
        if let Some(old) = old
            && let Some(value) = old.domain.as_ref()
            && let Some(domain) = self.domains.get_mut(value)
        {
            domain.fits_without_servers -= usize::from(old.fits_without_servers);
            domain.fits_empty -= usize::from(old.fits_empty);
            if let Some(ranked) = &old.ranked {
                domain.remove(ranked);
            }
            if domain.fits_empty == 0 {
                self.domains.remove(value);
            }
        }
        let request = &self.request;
        let Some(info) = info.filter(|info| matches(request, &info.node.labels, &info.node.taints)) else { return };
        let fits_empty = info.node.capacity.fits(&request.per_node);
        let fits_without_servers =
            fits_empty && info.node.state != NodeState::Unschedulable && info.max_available.fits(&request.per_node);
        let schedulable = is_schedulable(&info.node, &request.tolerations);
        let domain: Option<Arc<str>> = match request.topology_label() {
            None => Some("".into()),
            Some(label) => info.node.labels.get(label).map(|value| value.as_str().into()),
        };
        if let Some(value) = domain.clone().filter(|_| fits_empty) {
            let domain = self.domains.entry(value).or_default();
            domain.fits_empty += 1;
            domain.fits_without_servers += usize::from(fits_without_servers);
        }
        let max_pods = if fits_without_servers { max_pods(&info.max_available, &request.per_node) } else { 0 };
        self.max_pods = self.max_pods.saturating_add(max_pods);
        let fit = NodeFit { fits_empty, fits_without_servers, schedulable, domain, max_pods, ranked: None };
        self.node_fits.insert(node, fit);
        self.update_availability(node, info);
    }

    fn update_availability(&mut self, node: NodeIdx, info: &NodeInfo) {
        let Some(fit) = self.node_fits.get_mut(node).filter(|fit| fit.fits_without_servers) else { return };
        let Some(domain) = fit.domain.as_ref().and_then(|value| self.domains.get_mut(value)) else { return };
        let is_expected = fit.schedulable || matches!(info.node.state, NodeState::UnavailableUntil(_));
        let available_from = info.available_from(&self.request.per_node).filter(|_| is_expected);
        let is_available = available_from == Some(IMMEDIATELY);
        let score = if is_available { NodeScore::new(&self.request, info) } else { NodeScore::default() };
        let ranked = available_from.map(|available_from| (available_from, score));
        if fit.ranked.as_ref().map(|ranked| (ranked.available_from, ranked.score)) == ranked {
            return;
        }
        if let Some(ranked) = fit.ranked.take() {
            domain.remove(&ranked);
        }
        fit.ranked =
            available_from.map(|available_from| RankedNode { available_from, score, name: info.name.clone(), node });
        if let Some(ranked) = &fit.ranked {
            domain.available_now += usize::from(ranked.available_from == IMMEDIATELY);
            domain.nodes.insert(ranked.clone());
        }
    }
}

impl NodeFit {
    /// Returns the time from which on the request fits, if known.
    pub fn available_from(&self) -> Option<i64> {
        self.ranked.as_ref().map(|ranked| ranked.available_from)
    }
}

impl TopologyDomain {
    fn remove(&mut self, ranked: &RankedNode) {
        if self.nodes.remove(ranked) {
            self.available_now -= usize::from(ranked.available_from == IMMEDIATELY);
        }
    }
}

impl NodeScore {
    pub fn new(request: &Request, info: &NodeInfo) -> Self {
        let device = request.device.as_deref().filter(|device| request.per_node.device(device) > 0);
        let free_devices = device.map_or(0, |device| info.free.device(device));
        Self {
            wastes_devices: device.is_none() && info.node.capacity.devices().next().is_some(),
            empty_node: match device {
                Some(device) => free_devices >= info.node.capacity.device(device),
                None => !info.has_servers(),
            },
            free_devices,
            free_cpu: info.free.cpu,
        }
    }
}

/// Returns how many pods fit; 0 if the request is empty.
fn max_pods(available: &Resources, per_node: &Resources) -> i64 {
    let basic = [
        (available.cpu, per_node.cpu),
        (available.memory, per_node.memory),
        (available.storage, per_node.storage),
        (available.pods, per_node.pods),
    ];
    let devices = per_node.devices().chain(per_node.volumes());
    let devices = devices.map(|(name, requested)| (available.device(name), requested));
    let all = basic.into_iter().chain(devices).filter(|(_, requested)| *requested > 0);
    all.map(|(available, requested)| available.max(0) / requested).min().unwrap_or_default()
}
