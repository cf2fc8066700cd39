//! The kube-scheduler, the kubelets and what becomes of nodes. Kubelets take a step when they are asked to.

use odc_api::time::stored;

use super::{Cluster, Machine, Pod, Process, node};
use crate::seen::{Container, ContainerState, Exit, Node, PodPhase, Readiness};

impl Cluster {
    pub(super) fn machine(&self, name: &str) -> &Machine {
        self.machines.iter().find(|machine| machine.name == name).unwrap()
    }

    fn machine_mut(&mut self, at: usize) -> &mut Machine {
        let count = self.machines.len();
        &mut self.machines[at % count]
    }

    /// Every pod comes one step further; whether any did.
    pub(super) fn kubelet(&mut self) -> bool {
        let before = self.processes.len();
        // A kubelet that is back ends what no longer has a pod.
        let (machines, pods) = (&self.machines, &self.pods);
        self.processes.retain(|process| {
            let up = machines.iter().any(|machine| machine.name == process.machine && machine.up);
            !up || pods.iter().any(|pod| pod.seen.uid == process.pod_uid)
        });
        let mut moved = self.processes.len() != before;
        let uids: Vec<String> = self.pods.iter().map(|pod| pod.seen.uid.clone()).collect();
        for uid in uids {
            if self.step(&uid) {
                moved = true;
                self.changed();
            }
        }
        moved
    }

    fn step(&mut self, uid: &str) -> bool {
        let Some(at) = self.pods.iter().position(|pod| pod.seen.uid == uid) else { return false };
        let Some(machine) = self.pods[at].seen.node.clone() else { return self.place(at) };
        if !self.machine(&machine).up {
            return false;
        }
        if self.pods[at].seen.deleting.is_some() {
            if self.processes.iter().any(|process| process.pod_uid == uid) {
                self.agent_ends(uid);
            }
            let before = self.processes.len();
            self.processes.retain(|process| process.pod_uid != uid);
            if self.is_held(uid) {
                return self.processes.len() != before;
            }
            self.pods.remove(at);
            return true;
        }
        if self.pods[at].seen.is_over() {
            return false;
        }
        if self.processes.iter().any(|process| process.pod_uid == uid) { self.ready(at) } else { self.begin(at) }
    }

    /// Whether somebody's finalizer keeps it.
    pub(super) fn is_held(&self, uid: &str) -> bool {
        self.pods.iter().any(|pod| pod.seen.uid == uid && !pod.details().held_by.is_empty())
    }

    /// The kube-scheduler binds a pod to the only node it may have.
    fn place(&mut self, at: usize) -> bool {
        let now = stored(self.now).0;
        let pinned = self.pods[at].pinned.clone();
        let takes = self.machine(&pinned).node.as_ref().is_some_and(Node::is_ready);
        let pod = &mut self.pods[at].seen;
        let details = pod.server.as_mut().unwrap();
        if takes {
            pod.node = Some(pinned);
            details.unschedulable = None;
        } else if details.unschedulable.is_none() {
            details.unschedulable = Some(now);
        } else {
            return false;
        }
        true
    }

    fn begin(&mut self, at: usize) -> bool {
        let waiting = match (&self.secret, self.image_trouble) {
            (None, _) => Some(("PodInitializing", "")),
            (Some(_), Some(message)) => {
                let first =
                    self.pods[at].details().containers.iter().all(|container| is_waiting(container, "PodInitializing"));
                Some((if first { "ErrImagePull" } else { "ImagePullBackOff" }, message))
            }
            (Some(_), None) => None,
        };
        let Some((reason, message)) = waiting else {
            let address = format!("10.0.0.{}", self.number());
            let pod = &mut self.pods[at];
            pod.seen.phase = PodPhase::Running;
            pod.seen.server.as_mut().unwrap().ip = Some(address.into());
            pod.set(ContainerState::Running);
            let process = Process {
                pod_uid: pod.seen.uid.clone(),
                pod_name: pod.seen.name.clone(),
                machine: pod.seen.node.clone().unwrap(),
            };
            self.check_process(&process, at);
            self.processes.push(process);
            return true;
        };
        self.pods[at].set(ContainerState::Waiting { reason: reason.into(), message: message.into() })
    }

    /// A container that died is started again, and one that runs becomes ready.
    fn ready(&mut self, at: usize) -> bool {
        let details = self.pods[at].seen.server.as_mut().unwrap();
        let Some(container) = details.containers.first_mut() else { return false };
        if let ContainerState::Ended(exit) = container.state.clone() {
            container.last = Some(Box::new(exit));
            container.restarts += 1;
            container.state = ContainerState::Running;
            return true;
        }
        !std::mem::replace(&mut details.ready, true)
    }

    pub(super) fn container_dies(&mut self, at: usize, reason: &str) {
        let running: Vec<String> = self.processes.iter().map(|process| process.pod_uid.clone()).collect();
        let Some(pod) = self.pods.get_mut(at).filter(|pod| running.contains(&pod.seen.uid)) else { return };
        pod.set(ContainerState::Ended(Exit { code: 137, reason: reason.into(), message: "killed".into() }));
        pod.seen.server.as_mut().unwrap().ready = false;
        self.changed();
    }

    /// The node sends a pod away.
    pub(super) fn evict(&mut self, at: usize) {
        let up: Vec<String> = self.machines.iter().filter(|machine| machine.up).map(|one| one.name.clone()).collect();
        let Some(pod) = self.pods.get_mut(at) else { return };
        let bound = pod.seen.node.as_ref().is_some_and(|node| up.contains(node));
        if !bound || pod.seen.is_over() || pod.seen.deleting.is_some() {
            return;
        }
        pod.seen.phase = PodPhase::Failed;
        let details = pod.seen.server.as_mut().unwrap();
        (details.ready, details.reason) = (false, Some("Evicted".into()));
        let uid = pod.seen.uid.clone();
        self.processes.retain(|process| process.pod_uid != uid);
        self.changed();
    }

    /// A node falls silent. What runs on it goes on.
    pub(super) fn silence(&mut self, at: usize) {
        let now = stored(self.now).0;
        let machine = self.machine_mut(at);
        let Some(node) = machine.node.as_mut().filter(|_| machine.up) else { return };
        node.readiness = Readiness::Unready(now);
        machine.up = false;
        let name = machine.name.clone();
        for pod in self.pods.iter_mut().filter(|pod| pod.seen.node.as_ref() == Some(&name)) {
            pod.seen.server.as_mut().unwrap().ready = false;
        }
        self.changed();
    }

    /// It answers again; one that was removed comes as another.
    pub(super) fn back(&mut self, at: usize) {
        let number = self.number();
        let machine = self.machine_mut(at);
        machine.up = true;
        machine.missing = None;
        match &mut machine.node {
            Some(node) => node.readiness = Readiness::Ready,
            None => machine.node = Some(node(&machine.name, number)),
        }
        let name = machine.name.clone();
        // What went on running is as it was; the kubelet says so together with its own return.
        for process in self.processes.iter().filter(|process| process.machine == name) {
            if let Some(pod) = self.pods.iter_mut().find(|pod| pod.seen.uid == process.pod_uid) {
                pod.seen.server.as_mut().unwrap().ready = true;
            }
        }
        self.changed();
    }

    /// Nothing in the API tells of it any more, and it goes on.
    pub(super) fn miss_node(&mut self, at: usize) {
        let now = self.now;
        let machine = self.machine_mut(at);
        machine.node = None;
        machine.missing = Some(now);
        self.changed();
    }

    /// An administrator made sure that it is off, and removed it. Its pods go with it.
    pub(super) fn remove_node(&mut self, at: usize) {
        let machine = self.machine_mut(at);
        machine.up = false;
        (machine.node, machine.missing) = (None, None);
        let name = machine.name.clone();
        self.processes.retain(|process| process.machine != name);
        self.pods.retain(|pod| pod.seen.node.as_ref() != Some(&name));
        self.changed();
    }
}

impl Pod {
    pub(super) fn details(&self) -> &crate::seen::ServerPod {
        self.seen.server.as_ref().unwrap()
    }

    /// Gives its container this state; whether that is another.
    fn set(&mut self, state: ContainerState) -> bool {
        let containers = &mut self.seen.server.as_mut().unwrap().containers;
        match containers.first_mut() {
            Some(container) if container.state == state => false,
            Some(container) => {
                container.state = state;
                true
            }
            None => {
                containers.push(Container { name: "dev".into(), restarts: 0, state, last: None });
                true
            }
        }
    }
}

fn is_waiting(container: &Container, for_this: &str) -> bool {
    matches!(&container.state, ContainerState::Waiting { reason, .. } if reason == for_this)
}
