//! Clusters for tests. GPU nodes have plenty of CPU and memory, so that only devices are short.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1 as k8s;
use k8s_openapi::jiff::Timestamp;
use odc_api::time::to_api_precision;
use odc_api::v1alpha1::{Admission, Priority, Quota};
use serde_json::json;

use super::queue_view::QueueView;
use super::volume_limits::{AttachedVolumes, VolumeLimits};
use super::{
    Account, Accounts, Action, Decision, NodeRejections, Plan, Planner, Policy, QueueIntent, Request, Server, Snapshot,
};
use crate::cluster::{CsiVolume, Effect, Node, NodeVolumeLimits, Pod, Readiness, Taint};
use crate::resources::Resources;
use crate::scheduler;

pub(crate) const GPU: &str = "nvidia.com/gpu";
/// A CSI driver with limited attachments.
pub(crate) const DISKS: &str = "disks.example.org";
const GI: i64 = 1 << 30;

/// Returns a time in seconds after the beginning of 2026.
pub(crate) fn time(second: i64) -> Timestamp {
    Timestamp::from_second(1_767_225_600_i64.saturating_add(second)).unwrap()
}

/// Returns a ready node without resources.
pub(crate) fn node(name: &str) -> Node {
    let mut node = Node::from_api(&k8s::Node::default());
    node.name = name.into();
    node.uid = format!("uid-{name}");
    node.readiness = Readiness::Ready;
    node
}

pub(crate) fn gpu_node(name: &str, gpus: i64) -> Node {
    let mut node = cpu_node(name, 256, 4096);
    node.allocatable = node.allocatable.with_device(GPU, gpus);
    node
}

pub(crate) fn cpu_node(name: &str, cores: i64, gibibytes: i64) -> Node {
    let mut node = node(name);
    node.allocatable = amounts(cores * 1_000, gibibytes * GI, 110);
    node.allocatable.storage = 1_000 * GI;
    node
}

pub(crate) fn amounts(cpu: i64, memory: i64, pods: i64) -> Resources {
    let mut amounts = Resources::default();
    (amounts.cpu, amounts.memory, amounts.pods) = (cpu, memory, pods);
    amounts
}

pub(crate) fn labelled(mut node: Node, key: &str, value: &str) -> Node {
    node.labels.insert(key.into(), value.into());
    node
}

/// Parses `key=value:Effect` or `key:Effect`.
pub(crate) fn taint(text: &str) -> Taint {
    let (rest, effect) = text.rsplit_once(':').unwrap();
    let (key, value) = rest.split_once('=').unwrap_or((rest, ""));
    let effect = match effect {
        "NoSchedule" => Effect::NoSchedule,
        "PreferNoSchedule" => Effect::PreferNoSchedule,
        "NoExecute" => Effect::NoExecute,
        other => panic!("unknown effect {other}"),
    };
    Taint { key: key.into(), value: value.into(), effect }
}

/// Returns a bound pod that belongs to no server.
pub(crate) fn foreign(name: &str, node: &str, gpus: i64) -> Pod {
    let mut pod = Pod::from_api(&k8s::Pod::default());
    pod.namespace = "others".into();
    pod.name = name.into();
    pod.uid = format!("uid-{name}");
    pod.node = Some(node.into());
    pod.requests = amounts(0, 0, 1).with_device(GPU, gpus);
    pod
}

/// Returns the limit of a node for [`DISKS`].
pub(crate) fn attach_limits(node: &str, limit: i64) -> NodeVolumeLimits {
    NodeVolumeLimits { node: node.into(), drivers: vec![(DISKS.into(), limit)] }
}

pub(crate) fn attachment(driver: &str, handle: &str) -> CsiVolume {
    let source = json!({"driver": driver, "volumeHandle": handle});
    CsiVolume::from_api(&serde_json::from_value(source).unwrap())
}

impl Server {
    /// Returns a pending server of `ada` that requests one GPU.
    pub(crate) fn test(name: &str, queued_at: i64) -> Self {
        Self {
            namespace: "dev-ada".into(),
            name: name.into(),
            uid: format!("uid-{name}"),
            owner: "ada".parse().unwrap(),
            team: None,
            flavor: "flavor-gpu".parse().unwrap(),
            request: Request { nodes: 1, ..Request::default() },
            intent: QueueIntent::Run,
            admission: None,
            queued_at: time(queued_at),
            priority: Priority::Normal,
            preemptible: false,
            not_before: None,
            max_hold_time: None,
            release_time: None,
            ended: false,
        }
        .gpus(1)
    }

    pub(crate) fn gpus(mut self, gpus: i64) -> Self {
        self.request.per_node = amounts(1_000, GI, 1).with_device(GPU, gpus);
        self.request.device = Some(GPU.into());
        self
    }

    pub(crate) fn cpus(mut self, cores: i64, gibibytes: i64) -> Self {
        self.request.per_node = amounts(cores * 1_000, gibibytes * GI, 1);
        self.request.device = None;
        self
    }

    /// Adds volumes of [`DISKS`].
    pub(crate) fn disks(mut self, disks: i64) -> Self {
        self.request.per_node = self.request.per_node.with_volumes(DISKS, disks);
        self
    }

    pub(crate) fn nodes(mut self, nodes: u32) -> Self {
        self.request.nodes = nodes;
        self
    }

    pub(crate) fn queued_at(mut self, queued_at: i64) -> Self {
        self.queued_at = time(queued_at);
        self
    }

    pub(crate) fn intent(mut self, intent: QueueIntent) -> Self {
        self.intent = intent;
        self
    }

    pub(crate) fn owner(mut self, owner: &str) -> Self {
        self.owner = owner.parse().unwrap();
        self
    }

    pub(crate) fn team(mut self, team: &str) -> Self {
        self.team = Some(team.parse().unwrap());
        self
    }

    pub(crate) fn selects(mut self, key: &str, value: &str) -> Self {
        self.request.selector.insert(key.into(), value.into());
        self
    }

    pub(crate) fn topology(mut self, label: &str) -> Self {
        self.request.topology = Some(label.into());
        self
    }

    /// Admits the server by the first leader, one minute after the beginning.
    pub(crate) fn admitted(mut self, run: i64, nodes: &[&str]) -> Self {
        self.admission = Some(Admission {
            run,
            epoch: 1,
            nodes: nodes.iter().map(|node| (*node).to_owned()).collect(),
            admitted_at: Some(to_api_precision(time(60))),
            queued_at: Some(to_api_precision(self.queued_at)),
            ..Admission::default()
        });
        self
    }

    pub(crate) fn admission(mut self, change: impl FnOnce(&mut Admission)) -> Self {
        change(self.admission.get_or_insert_default());
        self
    }
}

/// Owns the objects of a snapshot.
#[derive(Clone, Debug)]
pub(crate) struct Cluster {
    pub nodes: Vec<Node>,
    pub pods: Vec<Pod>,
    /// Each claim has a volume of the same name.
    pub limits: Vec<NodeVolumeLimits>,
    pub servers: Vec<Server>,
    pub accounts: Accounts,
    pub node_rejections: NodeRejections,
    pub inadmissible: BTreeSet<String>,
    pub policy: Policy,
    pub now: Timestamp,
}

impl Cluster {
    /// Creates a cluster one hour after the beginning, with the second leader.
    pub(crate) fn new(nodes: impl IntoIterator<Item = Node>) -> Self {
        Self {
            nodes: nodes.into_iter().collect(),
            pods: Vec::new(),
            limits: Vec::new(),
            servers: Vec::new(),
            accounts: Accounts::default(),
            node_rejections: NodeRejections::default(),
            inadmissible: BTreeSet::new(),
            // Fair shares are disabled, so that the order is that of arrival.
            policy: Policy {
                epoch: 2,
                scheduler: scheduler::Policy { fair_share_resolution: i64::MAX, ..scheduler::Policy::default() },
                ..Policy::default()
            },
            now: time(3_600),
        }
    }

    pub(crate) fn pod(mut self, pod: Pod) -> Self {
        self.pods.push(pod);
        self
    }

    pub(crate) fn limit(mut self, node: &str, limit: i64) -> Self {
        self.limits.push(attach_limits(node, limit));
        self
    }

    /// Adds a server that is queued after all others.
    pub(crate) fn server(mut self, name: &str, change: impl FnOnce(Server) -> Server) -> Self {
        let queued_at = i64::try_from(self.servers.len()).unwrap();
        self.servers.push(change(Server::test(name, queued_at)));
        self
    }

    /// Adds an unbound pod of a server.
    pub(crate) fn server_pod(mut self, server: &str, ordinal: usize, run: i64, change: impl FnOnce(&mut Pod)) -> Self {
        let server = self.servers.iter().find(|known| known.name == server).unwrap();
        let mut pod = server_pod(server, ordinal, run);
        change(&mut pod);
        self.pods.push(pod);
        self
    }

    pub(crate) fn user_quota(mut self, user: &str, quota: Quota) -> Self {
        self.accounts.users.insert(user.parse().unwrap(), Account::new(quota, None));
        self
    }

    pub(crate) fn team_quota(mut self, team: &str, quota: Quota) -> Self {
        self.accounts.teams.insert(team.parse().unwrap(), Account::new(quota, None));
        self
    }

    pub(crate) fn snapshot(&self) -> Snapshot<'_> {
        Snapshot {
            nodes: self.nodes.iter().collect(),
            pods: self.pods.iter().collect(),
            attached_volumes: Arc::new(AttachedVolumes::new(
                VolumeLimits::new(&self.limits),
                &self.pods,
                |_, claim| Some(attachment(DISKS, claim)),
            )),
            runtimes: vec![],
            servers: self.servers.iter().collect(),
            accounts: self.accounts.clone(),
            node_rejections: self.node_rejections.clone(),
            inadmissible: self.inadmissible.clone(),
            flavors: vec![],
        }
    }

    /// Plans with a new leader.
    pub(crate) fn plan(&self) -> Plan {
        self.plan_with(&mut Planner::default())
    }

    /// Returns the queue after the plan of a new leader.
    pub(crate) fn queue_view(&self) -> QueueView {
        let mut planner = Planner::default();
        self.plan_with(&mut planner);
        planner.queue_view().clone()
    }

    pub(crate) fn plan_with(&self, planner: &mut Planner) -> Plan {
        planner.plan(&self.snapshot(), &self.policy, self.now, &mut |_| ())
    }

    /// Applies a plan.
    pub(crate) fn after(mut self, plan: &Plan) -> Self {
        for decision in &plan.decisions {
            let server = self.servers.iter_mut().find(|server| server.uid == decision.uid).unwrap();
            server.admission = Some(decision.admission.clone());
        }
        self.node_rejections = plan.node_rejections.clone();
        self
    }
}

pub(crate) fn server_pod(server: &Server, ordinal: usize, run: i64) -> Pod {
    let pod = json!({
        "metadata": {
            "namespace": server.namespace,
            "name": format!("{}-{ordinal}", server.name),
            "uid": format!("uid-{}-{ordinal}-{run}", server.name),
            "labels": {"odc.dev/server": server.name},
            "annotations": {"odc.dev/run": run.to_string(), "odc.dev/server-uid": server.uid},
            "ownerReferences": [{
                "apiVersion": "odc.dev/v1alpha1", "kind": "DevServer", "name": server.name, "uid": server.uid,
                "controller": true,
            }],
        },
    });
    let mut pod = Pod::from_api(&serde_json::from_value(pod).unwrap());
    let disks: i64 = server.request.per_node.volumes().map(|(_, disks)| disks).sum();
    pod.claims = (0..disks).map(|disk| format!("{}-disk-{disk}", server.name).into()).collect();
    pod.requests = server.request.per_node.clone().with_volumes(DISKS, 0);
    pod
}

/// Formats a decision as a line.
pub(crate) fn line(decision: &Decision) -> String {
    let Decision { name, action, admission, .. } = decision;
    let message = admission.message.as_ref().map_or("", |message| message.as_str());
    let position = admission.position.map_or_else(String::new, |position| format!(" #{position}"));
    match action {
        Action::Release => format!("release {name}"),
        Action::Revoke(reason) => format!("revoke {name}{position} {reason}: {message}"),
        Action::Admit => format!("admit {name} on {}", admission.nodes.join(", ")),
        Action::Preempt => format!("preempt {name}: {message}"),
        Action::ConfirmBooking => format!("confirm {name}"),
        Action::UpdatePending => format!(
            "pending {name}{position} {}: \
            {message}",
            admission.reason.as_deref().unwrap_or_default()
        ),
    }
}

/// Compares the decisions of a plan, and applies it.
#[track_caller]
pub(crate) fn check(cluster: Cluster, expect: &[&str]) -> Cluster {
    let plan = cluster.plan();
    let lines: Vec<String> = plan.decisions.iter().map(line).collect();
    assert_eq!(lines, expect);
    cluster.after(&plan)
}
