//! Clusters for tests: nodes, pods and servers, changed by what a test is about. GPU nodes have plenty of CPU and
//! memory, so that only what a test names is short.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1 as k8s;
use k8s_openapi::jiff::Timestamp;
use odc_api::time::stored;
use odc_api::v1alpha1::{Admission, Priority, Quota};
use serde_json::json;

use super::attach::{Attached, Limits};
use super::outlook::Outlook;
use super::{Account, Accounts, Decision, Facts, Plan, Planner, Policy, Refusals, Request, Server, Want, What};
use crate::amounts::Amounts;
use crate::scheduler;
use crate::seen::{AttachLimits, Attachment, Effect, Node, Pod, Readiness, Taint};

pub(crate) const GPU: &str = "nvidia.com/gpu";
/// A driver whose volumes are attached.
pub(crate) const DISKS: &str = "disks.example.org";
const GI: i64 = 1 << 30;

/// So many seconds after the beginning of 2026.
pub(crate) fn time(second: i64) -> Timestamp {
    Timestamp::from_second(1_767_225_600_i64.saturating_add(second)).unwrap()
}

/// A ready node that has nothing.
pub(crate) fn node(name: &str) -> Node {
    let mut node = Node::of(&k8s::Node::default());
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

pub(crate) fn amounts(cpu: i64, memory: i64, pods: i64) -> Amounts {
    let mut amounts = Amounts::default();
    (amounts.cpu, amounts.memory, amounts.pods) = (cpu, memory, pods);
    amounts
}

pub(crate) fn labelled(mut node: Node, key: &str, value: &str) -> Node {
    node.labels.insert(key.into(), value.into());
    node
}

/// From `key=value:Effect` or `key:Effect`.
pub(crate) fn taint(text: &str) -> Taint {
    let (rest, effect) = text.rsplit_once(':').unwrap();
    let (key, value) = rest.split_once('=').unwrap_or((rest, ""));
    let effect = match effect {
        "NoSchedule" => Effect::NoSchedule,
        "PreferNoSchedule" => Effect::PreferNoSchedule,
        "NoExecute" => Effect::NoExecute,
        other => panic!("{other} is no effect"),
    };
    Taint { key: key.into(), value: value.into(), effect }
}

/// Somebody else's pod on a node.
pub(crate) fn foreign(name: &str, node: &str, gpus: i64) -> Pod {
    let mut pod = Pod::of(&k8s::Pod::default());
    pod.namespace = "others".into();
    pod.name = name.into();
    pod.uid = format!("uid-{name}");
    pod.node = Some(node.into());
    pod.requests = amounts(0, 0, 1).with_device(GPU, gpus);
    pod
}

/// A node that can attach so many.
pub(crate) fn attach_limits(node: &str, most: i64) -> AttachLimits {
    AttachLimits { node: node.into(), drivers: vec![(DISKS.into(), most)] }
}

pub(crate) fn attachment(driver: &str, handle: &str) -> Attachment {
    let source = json!({"driver": driver, "volumeHandle": handle});
    Attachment::of(&serde_json::from_value(source).unwrap())
}

impl Server {
    /// A server of `ada` that asks for one GPU.
    pub(crate) fn test(name: &str, since: i64) -> Self {
        Self {
            namespace: "dev-ada".into(),
            name: name.into(),
            uid: format!("uid-{name}"),
            owner: "ada".parse().unwrap(),
            team: None,
            flavor: "flavor-gpu".parse().unwrap(),
            request: Request { nodes: 1, ..Request::default() },
            want: Want::Run,
            admission: None,
            since: time(since),
            priority: Priority::Normal,
            preemptible: false,
            not_before: None,
            lifetime: None,
            ends: None,
            ended: false,
        }
        .gpus(1)
    }

    pub(crate) fn gpus(mut self, gpus: i64) -> Self {
        self.request.each = amounts(1_000, GI, 1).with_device(GPU, gpus);
        self.request.device = Some(GPU.into());
        self
    }

    pub(crate) fn cpus(mut self, cores: i64, gibibytes: i64) -> Self {
        self.request.each = amounts(cores * 1_000, gibibytes * GI, 1);
        self.request.device = None;
        self
    }

    /// With so many disks of its own.
    pub(crate) fn disks(mut self, disks: i64) -> Self {
        self.request.each = self.request.each.with_volumes(DISKS, disks);
        self
    }

    pub(crate) fn nodes(mut self, nodes: u32) -> Self {
        self.request.nodes = nodes;
        self
    }

    pub(crate) fn since(mut self, since: i64) -> Self {
        self.since = time(since);
        self
    }

    pub(crate) fn want(mut self, want: Want) -> Self {
        self.want = want;
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

    /// By the first leader, a minute after the beginning.
    pub(crate) fn granted(mut self, run: i64, nodes: &[&str]) -> Self {
        self.admission = Some(Admission {
            run,
            epoch: 1,
            nodes: nodes.iter().map(|node| (*node).to_owned()).collect(),
            granted_at: Some(stored(time(60))),
            queued_at: Some(stored(self.since)),
            ..Admission::default()
        });
        self
    }

    pub(crate) fn admission(mut self, change: impl FnOnce(&mut Admission)) -> Self {
        change(self.admission.get_or_insert_default());
        self
    }
}

/// The owner of a world's facts.
#[derive(Clone, Debug)]
pub(crate) struct Cluster {
    pub nodes: Vec<Node>,
    pub pods: Vec<Pod>,
    /// Behind each claim is a disk that is called like it.
    pub limits: Vec<AttachLimits>,
    pub servers: Vec<Server>,
    pub accounts: Accounts,
    pub unfit: Refusals,
    pub aside: BTreeSet<String>,
    pub policy: Policy,
    pub now: Timestamp,
}

impl Cluster {
    /// An hour after the beginning, under the second leader.
    pub(crate) fn new(nodes: impl IntoIterator<Item = Node>) -> Self {
        Self {
            nodes: nodes.into_iter().collect(),
            pods: Vec::new(),
            limits: Vec::new(),
            servers: Vec::new(),
            accounts: Accounts::default(),
            unfit: Refusals::default(),
            aside: BTreeSet::new(),
            // Nobody's share counts, so that the order is that of arrival.
            policy: Policy {
                epoch: 2,
                queue: scheduler::Policy { share_step: i64::MAX, ..scheduler::Policy::default() },
                ..Policy::default()
            },
            now: time(3_600),
        }
    }

    pub(crate) fn pod(mut self, pod: Pod) -> Self {
        self.pods.push(pod);
        self
    }

    pub(crate) fn limit(mut self, node: &str, most: i64) -> Self {
        self.limits.push(attach_limits(node, most));
        self
    }

    /// One more server, that came after all others.
    pub(crate) fn server(mut self, name: &str, change: impl FnOnce(Server) -> Server) -> Self {
        let since = i64::try_from(self.servers.len()).unwrap();
        self.servers.push(change(Server::test(name, since)));
        self
    }

    /// A pod of a server that is not bound yet.
    pub(crate) fn server_pod(mut self, server: &str, ordinal: usize, run: i64, change: impl FnOnce(&mut Pod)) -> Self {
        let of = self.servers.iter().find(|known| known.name == server).unwrap();
        let mut pod = server_pod(of, ordinal, run);
        change(&mut pod);
        self.pods.push(pod);
        self
    }

    pub(crate) fn user_quota(mut self, user: &str, quota: Quota) -> Self {
        self.accounts.users.insert(user.parse().unwrap(), Account::of(quota, None));
        self
    }

    pub(crate) fn team_quota(mut self, team: &str, quota: Quota) -> Self {
        self.accounts.teams.insert(team.parse().unwrap(), Account::of(quota, None));
        self
    }

    pub(crate) fn world(&self) -> Facts<'_> {
        Facts {
            nodes: self.nodes.iter().collect(),
            pods: self.pods.iter().collect(),
            attached: Arc::new(Attached::of(Limits::of(&self.limits), &self.pods, |_, claim| {
                Some(attachment(DISKS, claim))
            })),
            runtimes: vec![],
            servers: self.servers.iter().collect(),
            accounts: self.accounts.clone(),
            unfit: self.unfit.clone(),
            aside: self.aside.clone(),
            flavors: vec![],
        }
    }

    /// Of a leader that has just begun.
    pub(crate) fn plan(&self) -> Plan {
        self.plan_with(&mut Planner::default())
    }

    /// How the queue stands after that.
    pub(crate) fn outlook(&self) -> Outlook {
        let mut planner = Planner::default();
        self.plan_with(&mut planner);
        planner.outlook().clone()
    }

    pub(crate) fn plan_with(&self, planner: &mut Planner) -> Plan {
        planner.plan(&self.world(), &self.policy, self.now, &mut |_| ())
    }

    /// The same after the plan was carried out.
    pub(crate) fn after(mut self, plan: &Plan) -> Self {
        for decision in &plan.decisions {
            let server = self.servers.iter_mut().find(|server| server.uid == decision.uid).unwrap();
            server.admission = Some(decision.admission.clone());
        }
        self.unfit = plan.unfit.clone();
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
    let mut pod = Pod::of(&serde_json::from_value(pod).unwrap());
    let disks: i64 = server.request.each.volumes().map(|(_, disks)| disks).sum();
    pod.claims = (0..disks).map(|disk| format!("{}-disk-{disk}", server.name).into()).collect();
    pod.requests = server.request.each.clone().with_volumes(DISKS, 0);
    pod
}

/// A decision in one line, as a person would tell it.
pub(crate) fn told(decision: &Decision) -> String {
    let Decision { name, what, admission, .. } = decision;
    let message = admission.message.as_ref().map_or("", |message| message.as_str());
    let place = admission.position.map_or_else(String::new, |position| format!(" #{position}"));
    match what {
        What::Release => format!("release {name}"),
        What::Revoke(reason) => format!("revoke {name}{place} {reason}: {message}"),
        What::Grant => format!("grant {name} on {}", admission.nodes.join(", ")),
        What::Preempt => format!("preempt {name}: {message}"),
        What::Book => format!("book {name}"),
        What::Wait => format!("wait {name}{place} {}: {message}", admission.reason.as_deref().unwrap_or_default()),
    }
}

/// What is decided, line by line.
#[track_caller]
pub(crate) fn check(cluster: Cluster, expect: &[&str]) -> Cluster {
    let plan = cluster.plan();
    let lines: Vec<String> = plan.decisions.iter().map(told).collect();
    assert_eq!(lines, expect);
    cluster.after(&plan)
}
