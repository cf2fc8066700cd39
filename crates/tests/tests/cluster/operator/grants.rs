//! What was granted at every revision, held against what there is: under one leader never more, and what two leaders gave
//! twice is taken back before pods have it twice.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use odc_api::v1alpha1::DevServer;

use super::history::Happened;

/// A node, or everything of the user.
pub type Place = String;

/// What a server holds by its status.
#[derive(Clone, Debug)]
struct Grant {
    server: String,
    run: i64,
    epoch: i64,
    /// Stored when somebody else led already.
    late: bool,
    /// Devices by place.
    takes: BTreeMap<Place, i64>,
}

/// Plays a history, and notes whatever must not be.
#[derive(Debug, Default)]
pub struct Ledger {
    limits: BTreeMap<Place, i64>,
    /// The epoch of the leader.
    epoch: i64,
    /// By the server's uid.
    grants: BTreeMap<String, Grant>,
    /// Devices of bound pods by place, by the pod's uid.
    bound: BTreeMap<String, BTreeMap<Place, i64>>,
    /// Where more is granted than there is, and since when.
    excess: BTreeMap<Place, u64>,
    pub granted: usize,
    /// Pods that were bound.
    pub pods: usize,
    /// The most that was granted, by place.
    pub most: BTreeMap<Place, i64>,
    pub broken: Vec<String>,
}

/// Stands for all that the user holds, beside the nodes.
pub const USER: &str = "the user";
const DEVICE: &str = "nvidia.com/gpu";

impl Ledger {
    pub fn new(limits: impl IntoIterator<Item = (Place, i64)>) -> Self {
        Self { limits: limits.into_iter().collect(), ..Self::default() }
    }

    pub fn play(&mut self, history: &[(u64, Happened)]) {
        for (at, happened) in history {
            match happened {
                Happened::Lease(lease) => {
                    let epoch = lease.spec.as_ref().and_then(|spec| spec.lease_transitions).unwrap_or_default();
                    self.epoch = self.epoch.max(epoch.into());
                }
                Happened::Server(server) => self.server(*at, server),
                Happened::ServerGone(server) => self.leave(&server.uid().unwrap_or_default()),
                Happened::Pod(pod) => self.pod(*at, pod),
                Happened::PodGone(pod) => drop(self.bound.remove(&pod.uid().unwrap_or_default())),
            }
        }
        for (place, since) in std::mem::take(&mut self.excess) {
            self.broken.push(format!("too much of {place} is granted from {since} to the end"));
        }
    }

    fn server(&mut self, at: u64, server: &DevServer) {
        let uid = server.uid().unwrap_or_default();
        let admission = server.status.as_ref().and_then(|status| status.admission.clone()).unwrap_or_default();
        if admission.nodes.is_empty() {
            return self.leave(&uid);
        }
        if self.grants.get(&uid).is_some_and(|before| before.run == admission.run) {
            return;
        }
        self.leave(&uid);
        let count = i64::from(server.spec.count.unwrap_or(1));
        let mut takes = BTreeMap::new();
        for node in &admission.nodes {
            for place in [node.as_str(), USER] {
                *takes.entry(place.to_owned()).or_default() += count;
            }
        }
        let late = admission.epoch < self.epoch;
        let grant = Grant { server: server.name_any(), run: admission.run, epoch: admission.epoch, late, takes };
        self.granted += 1;
        self.grants.insert(uid, grant.clone());
        for place in grant.takes.keys() {
            let all = self.taken(place);
            let most = self.most.entry(place.clone()).or_default();
            *most = all.max(*most);
            if all > self.limit(place) {
                self.exceed(at, place, &grant, all);
            }
        }
    }

    /// It must have been a change of leaders: one of the grants here was stored by somebody who did not lead any more.
    fn exceed(&mut self, at: u64, place: &str, grant: &Grant, taken: i64) {
        let here = self.grants.values().filter(|grant| grant.takes.contains_key(place));
        if !here.clone().any(|grant| grant.late) {
            let here: Vec<_> = here.map(|grant| (&grant.server, grant.epoch, &grant.takes)).collect();
            self.broken.push(format!(
                "at {at} the leader {} grants {taken} of {place} with {}: {here:?}",
                grant.epoch, grant.server
            ));
        }
        self.excess.entry(place.to_owned()).or_insert(at);
    }

    /// A server holds nothing any more.
    fn leave(&mut self, uid: &str) {
        let Some(grant) = self.grants.remove(uid) else { return };
        for place in grant.takes.keys() {
            if self.taken(place) <= self.limit(place) {
                self.excess.remove(place);
            }
        }
    }

    /// What was granted twice is taken back before it is used twice.
    fn pod(&mut self, at: u64, pod: &Pod) {
        let uid = pod.uid().unwrap_or_default();
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default();
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
        let Some(node) = node.filter(|_| !matches!(phase, "Succeeded" | "Failed")) else {
            self.bound.remove(&uid);
            return;
        };
        let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
        let devices = containers.filter_map(|container| {
            let requests = container.resources.as_ref()?.requests.as_ref()?;
            requests.get(DEVICE)?.0.parse::<i64>().ok()
        });
        let devices: i64 = devices.sum();
        let takes = BTreeMap::from([(node.clone(), devices), (USER.to_owned(), devices)]);
        if self.bound.insert(uid, takes).is_some() {
            return;
        }
        self.pods += 1;
        for place in [node.as_str(), USER] {
            let all: i64 = self.bound.values().filter_map(|takes| takes.get(place)).sum();
            if all > self.limit(place) {
                self.broken.push(format!("at {at} pods have {all} of {place} with {}", pod.name_any()));
            }
        }
    }

    fn taken(&self, place: &str) -> i64 {
        self.grants.values().filter_map(|grant| grant.takes.get(place)).sum()
    }

    fn limit(&self, place: &str) -> i64 {
        self.limits.get(place).copied().unwrap_or(i64::MAX)
    }
}
