//! What can happen to a server from outside, as data.

use std::time::Duration;

use odc_api::name::FlavorName;
use odc_api::v1alpha1::{Desired, HibernationCause};
use proptest::prelude::*;

use super::Cluster;
use super::api::Fault;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Event {
    Desire(Desired),
    /// Somebody connects.
    Wake,
    /// In minutes.
    Lifetime(u16),
    /// Somebody works in it.
    Use,
    /// Nobody used it, or its node is to be emptied.
    Sleep(HibernationCause),
    /// The queue wants it to leave within so many seconds.
    AskedAway(u64),
    DeletePod(usize),
    StripOwner(usize),
    Evict(usize),
    ContainerDies(usize),
    Silence(usize),
    Back(usize),
    RemoveNode(usize),
    /// The API does not tell of it any more, and it goes on.
    MissNode(usize),
    FlavorGone,
    FlavorBack,
    /// It offers two devices and no longer one.
    FlavorEdited,
    SecretGone,
    ServiceGone,
    ServiceEdited,
    /// The kubelets take a step.
    Kubelet,
    /// Milliseconds pass in which no kubelet does anything.
    Tick(u64),
    /// Minutes pass.
    Pass(u64),
    /// The operator is gone, or there again.
    Down(bool),
    /// A write after this many goes wrong.
    Fault(usize, Fault),
    /// Something happens right before a write after this many.
    Between(usize, Box<Event>),
}

impl Cluster {
    /// It happens, and nobody has looked yet.
    pub(super) fn happen(&mut self, event: &Event) {
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
            Event::Use => self.used(),
            Event::Sleep(cause) => self.falls_idle(*cause),
            Event::AskedAway(seconds) => self.asked_away(Duration::from_secs(*seconds)),
            Event::DeletePod(at) => {
                if let Some(uid) = self.pods.get(*at).map(|pod| pod.seen.uid.clone()) {
                    self.remove_pod(&uid, None);
                }
            }
            Event::StripOwner(at) => {
                if let Some(pod) = self.pods.get_mut(*at) {
                    pod.seen.server.as_mut().unwrap().owner = None;
                    self.changed();
                }
            }
            Event::Evict(at) => self.evict(*at),
            Event::ContainerDies(at) => self.container_dies(*at, "Error"),
            Event::Silence(at) => self.silence(*at),
            Event::Back(at) => self.back(*at),
            Event::RemoveNode(at) => self.remove_node(*at),
            Event::MissNode(at) => self.miss_node(*at),
            Event::FlavorGone => self.flavor_gone(),
            Event::FlavorBack => self.flavor_is(|_| {}),
            Event::FlavorEdited => self.flavor_is(|flavor| flavor.device.as_mut().unwrap().counts = vec![2]),
            Event::SecretGone => self.secret = None,
            Event::ServiceGone => {
                self.service = None;
                self.changed();
            }
            Event::ServiceEdited => {
                if let Some(service) = &mut self.service {
                    service["spec"]["selector"] = serde_json::json!({});
                    self.changed();
                }
            }
            Event::Kubelet => drop(self.kubelet()),
            Event::Tick(milliseconds) => self.tick(Duration::from_millis(*milliseconds)),
            Event::Pass(minutes) => self.pass(Duration::from_secs(60 * minutes)),
            Event::Down(true) => {
                self.operator.die();
                self.operator.down = true;
            }
            Event::Down(false) => {
                // Kubelets do not wait for us: what they could do meanwhile is done.
                while self.operator.down && self.kubelet() {}
                self.operator.down = false;
            }
            Event::Fault(after, fault) => self.fault = Some((self.writes + 1 + after, *fault)),
            Event::Between(after, event) => self.between = Some((self.writes + 1 + after, (**event).clone())),
        }
    }

    /// Only what runs is ever found idle, and only what keeps its home is put to sleep.
    fn falls_idle(&mut self, cause: HibernationCause) {
        // Where there are agents, they are asked.
        let told = cause == HibernationCause::Idle && self.agents.is_some();
        if !told && self.phase() == Some(odc_api::v1alpha1::Phase::Running) && self.has_disk() && !self.operator.down {
            self.operator.sleep = Some(cause);
            self.changed();
        }
    }

    fn flavor_gone(&mut self) {
        let name: FlavorName = "flavor-gpu".parse().unwrap();
        self.request.flavors.remove(&name);
        self.changed();
    }

    pub(super) fn flavor_is(&mut self, change: impl FnOnce(&mut odc_api::v1alpha1::DevServerFlavorSpec)) {
        let mut flavor = odc_api::v1alpha1::DevServerFlavor::test();
        change(&mut flavor.spec);
        self.request = self.request.clone().offering(flavor);
        self.changed();
    }

    /// All that is broken is mended, and nothing more happens.
    pub(super) fn heal(&mut self) {
        self.fault = None;
        self.between = None;
        self.image_trouble = None;
        for at in 0..self.machines.len() {
            self.back(at);
        }
        self.happen(&Event::FlavorBack);
        self.happen(&Event::Down(false));
        // Longer than it takes to look for a lost Secret, and shorter than any lifetime here.
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
        2 => Just(Event::Use),
        3 => prop_oneof![Just(Idle), Just(Drain)].prop_map(Event::Sleep),
        2 => (0..180_u64).prop_map(Event::AskedAway),
        2 => (0..2_usize).prop_map(Event::DeletePod),
        2 => (0..2_usize).prop_map(Event::StripOwner),
        1 => (0..2_usize).prop_map(Event::Evict),
        1 => (0..2_usize).prop_map(Event::ContainerDies),
        2 => (0..3_usize).prop_map(Event::Silence),
        2 => (0..3_usize).prop_map(Event::Back),
        1 => (0..3_usize).prop_map(Event::RemoveNode),
        1 => Just(Event::FlavorGone),
        1 => Just(Event::FlavorBack),
        1 => Just(Event::FlavorEdited),
        1 => Just(Event::SecretGone),
        1 => Just(Event::ServiceGone),
        1 => Just(Event::ServiceEdited),
    ]
}

pub(super) fn event() -> impl Strategy<Value = Event> {
    let fault = prop_oneof![Just(Fault::Die), Just(Fault::LoseAnswer), Just(Fault::Refuse)];
    prop_oneof![
        10 => plain(),
        4 => Just(Event::Kubelet),
        3 => (1..2_500_u64).prop_map(Event::Tick),
        3 => (1..90_u64).prop_map(Event::Pass),
        1 => prop::bool::ANY.prop_map(Event::Down),
        3 => (0..4_usize, fault).prop_map(|(after, fault)| Event::Fault(after, fault)),
        2 => (0..4_usize, plain()).prop_map(|(after, event)| Event::Between(after, Box::new(event))),
    ]
}
