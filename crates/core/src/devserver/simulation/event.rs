//! External events of the simulation as an enum, so that tests can generate and shrink them.

use std::time::Duration;

use odc_api::name::FlavorName;
use odc_api::v1alpha1::{Desired, HibernationCause};
use proptest::prelude::*;

use super::Cluster;
use super::api::Fault;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Event {
    Desire(Desired),
    /// A user connects.
    Wake,
    /// In minutes.
    Lifetime(u16),
    Activity,
    /// The server is idle, or its node is drained.
    Hibernate(HibernationCause),
    /// With this notice period in seconds.
    Preempt(u64),
    DeletePod(usize),
    OrphanPod(usize),
    EvictPod(usize),
    CrashContainer(usize),
    /// The node becomes unreachable.
    LoseContact(usize),
    Recover(usize),
    DeleteNode(usize),
    /// The node object disappears, but the machine runs.
    HideNode(usize),
    DeleteFlavor,
    RestoreFlavor,
    /// The flavor offers only count 2.
    EditFlavor,
    DeleteSecret,
    DeleteService,
    EditService,
    /// The kubelets make one step.
    Kubelet,
    /// Milliseconds pass without the kubelets.
    Tick(u64),
    /// Minutes pass.
    Pass(u64),
    SetOperatorDown(bool),
    /// The write after this many fails.
    Fault(usize, Fault),
    /// An event happens right before the write after this many.
    Interleave(usize, Box<Event>),
}

impl Cluster {
    /// Applies an event without running the operator.
    pub(super) fn apply(&mut self, event: &Event) {
        match event {
            Event::Desire(desired) => drop(self.edit(|spec| spec.desired = *desired)),
            Event::Wake => {
                let id = format!("wake-{}", self.number());
                self.edit(|spec| spec.wake = Some(id));
            }
            Event::Lifetime(minutes) => {
                let lifetime = format!("{minutes}m").parse().unwrap();
                self.edit(|spec| spec.lifetime = lifetime);
            }
            Event::Activity => self.record_activity(),
            Event::Hibernate(cause) => self.request_hibernation(*cause),
            Event::Preempt(seconds) => self.preempt(Duration::from_secs(*seconds)),
            Event::DeletePod(index) => {
                if let Some(uid) = self.pods.get(*index).map(|pod| pod.object.uid.clone()) {
                    self.remove_pod(&uid, None);
                }
            }
            Event::OrphanPod(index) => {
                if let Some(pod) = self.pods.get_mut(*index) {
                    pod.object.server.as_mut().unwrap().owner = None;
                    self.changed();
                }
            }
            Event::EvictPod(index) => self.evict(*index),
            Event::CrashContainer(index) => self.crash_container(*index, "Error"),
            Event::LoseContact(index) => self.lose_contact(*index),
            Event::Recover(index) => self.recover(*index),
            Event::DeleteNode(index) => self.delete_node(*index),
            Event::HideNode(index) => self.hide_node(*index),
            Event::DeleteFlavor => self.delete_flavor(),
            Event::RestoreFlavor => self.set_flavor(|_| {}),
            Event::EditFlavor => self.set_flavor(|flavor| flavor.device.as_mut().unwrap().counts = vec![2]),
            Event::DeleteSecret => self.secret = None,
            Event::DeleteService => {
                self.service = None;
                self.changed();
            }
            Event::EditService => {
                if let Some(service) = &mut self.service {
                    service["spec"]["selector"] = serde_json::json!({});
                    self.changed();
                }
            }
            Event::Kubelet => drop(self.kubelet()),
            Event::Tick(milliseconds) => self.tick(Duration::from_millis(*milliseconds)),
            Event::Pass(minutes) => self.pass(Duration::from_secs(60 * minutes)),
            Event::SetOperatorDown(true) => {
                self.operator.crash();
                self.operator.down = true;
            }
            Event::SetOperatorDown(false) => {
                // The kubelets continued while the operator was down.
                while self.operator.down && self.kubelet() {}
                self.operator.down = false;
            }
            Event::Fault(after, fault) => self.fault = Some((self.writes + 1 + after, *fault)),
            Event::Interleave(after, event) => self.interleaved = Some((self.writes + 1 + after, (**event).clone())),
        }
    }

    /// Requests hibernation of a running server with a persistent home.
    fn request_hibernation(&mut self, cause: HibernationCause) {
        // With agents, idleness is detected from their signals.
        let detected = cause == HibernationCause::Idle && self.agents.is_some();
        if !detected
            && self.phase() == Some(odc_api::v1alpha1::Phase::Running)
            && self.has_volume()
            && !self.operator.down
        {
            self.operator.hibernate = Some(cause);
            self.changed();
        }
    }

    fn delete_flavor(&mut self) {
        let name: FlavorName = "flavor-gpu".parse().unwrap();
        self.request.flavors.remove(&name);
        self.changed();
    }

    pub(super) fn set_flavor(&mut self, change: impl FnOnce(&mut odc_api::v1alpha1::DevServerFlavorSpec)) {
        let mut flavor = odc_api::v1alpha1::DevServerFlavor::test();
        change(&mut flavor.spec);
        self.request = self.request.clone().with_flavor(flavor);
        self.changed();
    }

    /// Repairs all faults and lets the cluster converge.
    pub(super) fn heal(&mut self) {
        self.fault = None;
        self.interleaved = None;
        self.image_error = None;
        for index in 0..self.machines.len() {
            self.recover(index);
        }
        self.apply(&Event::RestoreFlavor);
        self.apply(&Event::SetOperatorDown(false));
        // Longer than the interval of Secret checks, and shorter than any lifetime here.
        self.pass(Duration::from_secs(300));
    }
}

fn plain() -> impl Strategy<Value = Event> {
    use HibernationCause::{Drain, Idle};
    let desired = prop_oneof![3 => Just(Desired::Running), 3 => Just(Desired::Hibernated), 1 => Just(Desired::Ended)];
    prop_oneof![
        4 => desired.prop_map(Event::Desire),
        3 => Just(Event::Wake),
        2 => (30..600_u16).prop_map(Event::Lifetime),
        2 => Just(Event::Activity),
        3 => prop_oneof![Just(Idle), Just(Drain)].prop_map(Event::Hibernate),
        2 => (0..180_u64).prop_map(Event::Preempt),
        2 => (0..2_usize).prop_map(Event::DeletePod),
        2 => (0..2_usize).prop_map(Event::OrphanPod),
        1 => (0..2_usize).prop_map(Event::EvictPod),
        1 => (0..2_usize).prop_map(Event::CrashContainer),
        2 => (0..3_usize).prop_map(Event::LoseContact),
        2 => (0..3_usize).prop_map(Event::Recover),
        1 => (0..3_usize).prop_map(Event::DeleteNode),
        1 => Just(Event::DeleteFlavor),
        1 => Just(Event::RestoreFlavor),
        1 => Just(Event::EditFlavor),
        1 => Just(Event::DeleteSecret),
        1 => Just(Event::DeleteService),
        1 => Just(Event::EditService),
    ]
}

pub(super) fn event() -> impl Strategy<Value = Event> {
    let fault = prop_oneof![Just(Fault::Crash), Just(Fault::LoseReply), Just(Fault::Reject)];
    prop_oneof![
        10 => plain(),
        4 => Just(Event::Kubelet),
        3 => (1..2_500_u64).prop_map(Event::Tick),
        3 => (1..90_u64).prop_map(Event::Pass),
        1 => prop::bool::ANY.prop_map(Event::SetOperatorDown),
        3 => (0..4_usize, fault).prop_map(|(after, fault)| Event::Fault(after, fault)),
        2 => (0..4_usize, plain()).prop_map(|(after, event)| Event::Interleave(after, Box::new(event))),
    ]
}
