//! The simulated kube-scheduler, kubelets and nodes. Kubelets make one step per call.

use odc_api::time::to_api_precision;

use super::{Cluster, Machine, Pod, Process, node};
use crate::cluster::{Container, ContainerState, Exit, Node, PodPhase, Readiness};

impl Cluster {
    pub(super) fn machine(&self, name: &str) -> &Machine {
        self.machines.iter().find(|machine| machine.name == name).unwrap()
    }

    fn machine_mut(&mut self, index: usize) -> &mut Machine {
        let count = self.machines.len();
        &mut self.machines[index % count]
    }

    /// Advances each pod by one step and reports whether any changed.
    pub(super) fn kubelet(&mut self) -> bool {
        let before = self.processes.len();
        // A recovered kubelet terminates processes without a pod.
        let (machines, pods) = (&self.machines, &self.pods);
        self.processes.retain(|process| {
            let up = machines.iter().any(|machine| machine.name == process.machine && machine.up);
            !up || pods.iter().any(|pod| pod.object.uid == process.pod_uid)
        });
        let mut progressed = self.processes.len() != before;
        let uids: Vec<String> = self.pods.iter().map(|pod| pod.object.uid.clone()).collect();
        for uid in uids {
            if self.step(&uid) {
                progressed = true;
                self.changed();
            }
        }
        progressed
    }

    fn step(&mut self, uid: &str) -> bool {
        let Some(index) = self.pods.iter().position(|pod| pod.object.uid == uid) else { return false };
        let Some(machine) = self.pods[index].object.node.clone() else { return self.bind(index) };
        if !self.machine(&machine).up {
            return false;
        }
        if self.pods[index].object.deletion_timestamp.is_some() {
            if self.processes.iter().any(|process| process.pod_uid == uid) {
                self.terminate_agent(uid);
            }
            let before = self.processes.len();
            self.processes.retain(|process| process.pod_uid != uid);
            if self.has_finalizers(uid) {
                return self.processes.len() != before;
            }
            self.pods.remove(index);
            return true;
        }
        if self.pods[index].object.is_terminated() {
            return false;
        }
        if self.processes.iter().any(|process| process.pod_uid == uid) { self.ready(index) } else { self.start(index) }
    }

    /// Reports whether finalizers block the deletion of the pod.
    pub(super) fn has_finalizers(&self, uid: &str) -> bool {
        self.pods.iter().any(|pod| pod.object.uid == uid && !pod.details().blocking_finalizers.is_empty())
    }

    /// Binds a pod to the node it is pinned to.
    fn bind(&mut self, index: usize) -> bool {
        let now = to_api_precision(self.now).0;
        let pinned = self.pods[index].pinned.clone();
        let ready = self.machine(&pinned).node.as_ref().is_some_and(Node::is_ready);
        let pod = &mut self.pods[index].object;
        let details = pod.server.as_mut().unwrap();
        if ready {
            pod.node = Some(pinned);
            details.unschedulable_since = None;
        } else if details.unschedulable_since.is_none() {
            details.unschedulable_since = Some(now);
        } else {
            return false;
        }
        true
    }

    fn start(&mut self, index: usize) -> bool {
        let waiting = match (&self.secret, self.image_error) {
            (None, _) => Some(("PodInitializing", "")),
            (Some(_), Some(message)) => {
                let first = self.pods[index]
                    .details()
                    .containers
                    .iter()
                    .all(|container| is_waiting(container, "PodInitializing"));
                Some((if first { "ErrImagePull" } else { "ImagePullBackOff" }, message))
            }
            (Some(_), None) => None,
        };
        let Some((reason, message)) = waiting else {
            let address = format!("10.0.0.{}", self.number());
            let pod = &mut self.pods[index];
            pod.object.phase = PodPhase::Running;
            pod.object.server.as_mut().unwrap().ip = Some(address.into());
            pod.set(ContainerState::Running);
            let process = Process {
                pod_uid: pod.object.uid.clone(),
                pod_name: pod.object.name.clone(),
                machine: pod.object.node.clone().unwrap(),
            };
            self.check_process(&process, index);
            self.processes.push(process);
            return true;
        };
        self.pods[index].set(ContainerState::Waiting { reason: reason.into(), message: message.into() })
    }

    /// Restarts a terminated container, or makes a running one ready.
    fn ready(&mut self, index: usize) -> bool {
        let details = self.pods[index].object.server.as_mut().unwrap();
        let Some(container) = details.containers.first_mut() else { return false };
        if let ContainerState::Terminated(exit) = container.state.clone() {
            container.last = Some(Box::new(exit));
            container.restarts += 1;
            container.state = ContainerState::Running;
            return true;
        }
        !std::mem::replace(&mut details.ready, true)
    }

    pub(super) fn crash_container(&mut self, index: usize, reason: &str) {
        let running: Vec<String> = self.processes.iter().map(|process| process.pod_uid.clone()).collect();
        let Some(pod) = self.pods.get_mut(index).filter(|pod| running.contains(&pod.object.uid)) else { return };
        pod.set(ContainerState::Terminated(Exit { code: 137, reason: reason.into(), message: "killed".into() }));
        pod.object.server.as_mut().unwrap().ready = false;
        self.changed();
    }

    pub(super) fn evict(&mut self, index: usize) {
        let up: Vec<String> = self.machines.iter().filter(|machine| machine.up).map(|one| one.name.clone()).collect();
        let Some(pod) = self.pods.get_mut(index) else { return };
        let bound = pod.object.node.as_ref().is_some_and(|node| up.contains(node));
        if !bound || pod.object.is_terminated() || pod.object.deletion_timestamp.is_some() {
            return;
        }
        pod.object.phase = PodPhase::Failed;
        let details = pod.object.server.as_mut().unwrap();
        (details.ready, details.reason) = (false, Some("Evicted".into()));
        let uid = pod.object.uid.clone();
        self.processes.retain(|process| process.pod_uid != uid);
        self.changed();
    }

    /// Makes a node unreachable; its processes continue.
    pub(super) fn lose_contact(&mut self, index: usize) {
        let now = to_api_precision(self.now).0;
        let machine = self.machine_mut(index);
        let Some(node) = machine.node.as_mut().filter(|_| machine.up) else { return };
        node.readiness = Readiness::Unready(now);
        machine.up = false;
        let name = machine.name.clone();
        for pod in self.pods.iter_mut().filter(|pod| pod.object.node.as_ref() == Some(&name)) {
            pod.object.server.as_mut().unwrap().ready = false;
        }
        self.changed();
    }

    /// Makes a node ready again. A deleted one is registered with a new uid.
    pub(super) fn recover(&mut self, index: usize) {
        let number = self.number();
        let machine = self.machine_mut(index);
        machine.up = true;
        machine.missing = None;
        match &mut machine.node {
            Some(node) => node.readiness = Readiness::Ready,
            None => machine.node = Some(node(&machine.name, number)),
        }
        let name = machine.name.clone();
        // Pods whose processes continued are ready again.
        for process in self.processes.iter().filter(|process| process.machine == name) {
            if let Some(pod) = self.pods.iter_mut().find(|pod| pod.object.uid == process.pod_uid) {
                pod.object.server.as_mut().unwrap().ready = true;
            }
        }
        self.changed();
    }

    /// Removes the node object, but the machine runs.
    pub(super) fn hide_node(&mut self, index: usize) {
        let now = self.now;
        let machine = self.machine_mut(index);
        machine.node = None;
        machine.missing = Some(now);
        self.changed();
    }

    /// Deletes a node as an administrator does after powering it off. Its pods are deleted.
    pub(super) fn delete_node(&mut self, index: usize) {
        let machine = self.machine_mut(index);
        machine.up = false;
        (machine.node, machine.missing) = (None, None);
        let name = machine.name.clone();
        self.processes.retain(|process| process.machine != name);
        self.pods.retain(|pod| pod.object.node.as_ref() != Some(&name));
        self.changed();
    }
}

impl Pod {
    pub(super) fn details(&self) -> &crate::cluster::ServerPod {
        self.object.server.as_ref().unwrap()
    }

    /// Sets the state of its container and reports whether it changed.
    fn set(&mut self, state: ContainerState) -> bool {
        let containers = &mut self.object.server.as_mut().unwrap().containers;
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

fn is_waiting(container: &Container, expect: &str) -> bool {
    matches!(&container.state, ContainerState::Waiting { reason, .. } if reason == expect)
}
