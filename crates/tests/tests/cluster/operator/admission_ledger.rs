//! Checks the admissions in a history against the limits: one leader never admits more than there is, and if two leaders
//! admit the same devices, one admission is withdrawn before pods use them twice.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use odc_api::v1alpha1::DevServer;

use super::watch_history::Revision;

/// A node, or [`USER`].
pub type Account = String;

/// Admission of a server by its status.
#[derive(Clone, Debug)]
struct AdmittedServer {
    server: String,
    run: i64,
    epoch: i64,
    /// Stored after the epoch of its leader has ended.
    late: bool,
    /// Devices by account.
    usage: BTreeMap<Account, i64>,
}

/// Replays a history and records violations.
#[derive(Debug, Default)]
pub struct AdmissionLedger {
    limits: BTreeMap<Account, i64>,
    /// Epoch of the current leader.
    epoch: i64,
    /// By the uid of the server.
    admitted: BTreeMap<String, AdmittedServer>,
    /// Devices of bound pods by account, by the uid of the pod.
    bound: BTreeMap<String, BTreeMap<Account, i64>>,
    /// Accounts over their limit, with the resource version since which they are.
    over_limit: BTreeMap<Account, u64>,
    pub admissions: usize,
    /// Number of pods that were bound.
    pub pods: usize,
    /// Maximum usage by account.
    pub max_usage: BTreeMap<Account, i64>,
    pub violations: Vec<String>,
}

/// Account of all devices of the user.
pub const USER: &str = "the user";
const DEVICE: &str = "nvidia.com/gpu";

impl AdmissionLedger {
    pub fn new(limits: impl IntoIterator<Item = (Account, i64)>) -> Self {
        Self { limits: limits.into_iter().collect(), ..Self::default() }
    }

    pub fn replay(&mut self, history: &[(u64, Revision)]) {
        for (version, revision) in history {
            match revision {
                Revision::Lease(lease) => {
                    let epoch = lease.spec.as_ref().and_then(|spec| spec.lease_transitions).unwrap_or_default();
                    self.epoch = self.epoch.max(epoch.into());
                }
                Revision::Server(server) => self.update_server(*version, server),
                Revision::ServerDeleted(server) => self.remove_server(&server.uid().unwrap_or_default()),
                Revision::Pod(pod) => self.update_pod(*version, pod),
                Revision::PodDeleted(pod) => drop(self.bound.remove(&pod.uid().unwrap_or_default())),
                _ => {}
            }
        }
        for (account, since) in std::mem::take(&mut self.over_limit) {
            self.violations.push(format!("{account} is over its limit from version {since} to the end"));
        }
    }

    fn update_server(&mut self, version: u64, server: &DevServer) {
        let uid = server.uid().unwrap_or_default();
        let admission = server.status.as_ref().and_then(|status| status.admission.clone()).unwrap_or_default();
        if admission.nodes.is_empty() {
            return self.remove_server(&uid);
        }
        if self.admitted.get(&uid).is_some_and(|before| before.run == admission.run) {
            return;
        }
        self.remove_server(&uid);
        let count = i64::from(server.spec.count.unwrap_or(1));
        let mut usage = BTreeMap::new();
        for node in &admission.nodes {
            for account in [node.as_str(), USER] {
                *usage.entry(account.to_owned()).or_default() += count;
            }
        }
        let late = admission.epoch < self.epoch;
        let (name, run, epoch) = (server.name_any(), admission.run, admission.epoch);
        let admitted = AdmittedServer { server: name, run, epoch, late, usage };
        self.admissions += 1;
        self.admitted.insert(uid, admitted.clone());
        for account in admitted.usage.keys() {
            let used = self.usage(account);
            let max = self.max_usage.entry(account.clone()).or_default();
            *max = used.max(*max);
            if used > self.limit(account) {
                self.record_excess(version, account, &admitted, used);
            }
        }
    }

    /// Records an account over its limit. This is a violation unless one of the admissions was stored by a former leader.
    fn record_excess(&mut self, version: u64, account: &str, cause: &AdmittedServer, used: i64) {
        let servers = self.admitted.values().filter(|admitted| admitted.usage.contains_key(account));
        if !servers.clone().any(|admitted| admitted.late) {
            let servers: Vec<_> = servers.map(|admitted| (&admitted.server, admitted.epoch, &admitted.usage)).collect();
            self.violations.push(format!(
                "version {version}: leader {} admits {}, {used} used of {account}: {servers:?}",
                cause.epoch, cause.server
            ));
        }
        self.over_limit.entry(account.to_owned()).or_insert(version);
    }

    fn remove_server(&mut self, uid: &str) {
        let Some(admitted) = self.admitted.remove(uid) else { return };
        for account in admitted.usage.keys() {
            if self.usage(account) <= self.limit(account) {
                self.over_limit.remove(account);
            }
        }
    }

    /// Bound pods must never exceed a limit, not even during a change of leaders.
    fn update_pod(&mut self, version: u64, pod: &Pod) {
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
        let usage = BTreeMap::from([(node.clone(), devices), (USER.to_owned(), devices)]);
        if self.bound.insert(uid, usage).is_some() {
            return;
        }
        self.pods += 1;
        for account in [node.as_str(), USER] {
            let used: i64 = self.bound.values().filter_map(|usage| usage.get(account)).sum();
            if used > self.limit(account) {
                let name = pod.name_any();
                self.violations.push(format!("version {version}: pods use {used} of {account} with {name}"));
            }
        }
    }

    fn usage(&self, account: &str) -> i64 {
        self.admitted.values().filter_map(|admitted| admitted.usage.get(account)).sum()
    }

    fn limit(&self, account: &str) -> i64 {
        self.limits.get(account).copied().unwrap_or(i64::MAX)
    }
}
