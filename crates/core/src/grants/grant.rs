//! A grant, held against the pods that exist for it.

use std::borrow::Cow;
use std::collections::BTreeMap;

use odc_api::v1alpha1::Admission;

use super::attach::Attached;
use super::facts::Turn;
use super::{Facts, Server};
use crate::amounts::Amounts;
use crate::seen::Pod;

/// Pods by the uid of the server they belong to.
pub(crate) struct Pods<'a> {
    by_server: BTreeMap<&'a str, Vec<&'a Pod>>,
    attached: &'a Attached,
}

pub(crate) struct Grant<'a> {
    pub server: &'a Server,
    pub admission: &'a Admission,
    /// One for each node, in the order of the pods.
    pub slots: Vec<Slot<'a>>,
    /// Whether no pod of the server is left, of this run or any other.
    pub deserted: bool,
    attached: &'a Attached,
}

/// The grant of one node.
pub(crate) struct Slot<'a> {
    pub node: &'a str,
    /// The pod of this run.
    pub pod: Option<&'a Pod>,
    /// What the pod will take once it is bound; nothing if it is, since bound pods are counted by themselves.
    pub missing: Option<Amounts>,
    /// A pod of this run that is on its way out of its node.
    pub outgoing: Option<&'a Pod>,
}

impl<'a> Pods<'a> {
    pub fn of(world: &'a Facts<'_>) -> Self {
        let mut by_server: BTreeMap<&str, Vec<&Pod>> = BTreeMap::new();
        for pod in &world.pods {
            if let Some(uid) = owner(pod) {
                by_server.entry(uid).or_default().push(pod);
            }
        }
        Self { by_server, attached: &world.attached }
    }

    /// Pods of another namespace are never a server's own, whatever is written on them.
    fn of_server<'s>(&'s self, server: &'s Server) -> impl Iterator<Item = &'a Pod> + use<'s, 'a> {
        let own = self.by_server.get(server.uid.as_str()).into_iter().flatten().copied();
        own.filter(|pod| pod.namespace == server.namespace)
    }
}

/// The server a pod belongs to, also if somebody took its owner reference away.
fn owner(pod: &Pod) -> Option<&str> {
    let server = pod.server.as_ref()?;
    server.owner.as_deref().or(server.made_for.as_deref())
}

impl<'a> Grant<'a> {
    /// Nothing for servers that have none.
    pub fn of(server: &'a Server, pods: &Pods<'a>) -> Option<Self> {
        let admission = server.admission.as_ref().filter(|_| server.is_granted())?;
        let own: Vec<&Pod> = pods.of_server(server).collect();
        let slots = admission.nodes.iter().enumerate();
        let slots = slots
            .map(|(ordinal, node)| Slot::of(server, admission.run, (ordinal, node), &own, pods.attached))
            .collect();
        Some(Self { server, admission, slots, deserted: own.is_empty(), attached: pods.attached })
    }

    /// What is not bound yet, by node.
    pub fn missing(&self) -> impl Iterator<Item = (&'a str, &Amounts)> {
        self.slots.iter().filter_map(|slot| Some((slot.node, slot.missing.as_ref()?)))
    }

    /// What a pod of its takes.
    pub fn used(&self, pod: &'a Pod) -> Cow<'a, Amounts> {
        self.attached.used(pod)
    }

    /// Whether no pod has anything of it yet.
    pub fn is_unbound(&self) -> bool {
        self.slots.iter().all(|slot| slot.missing.is_some() && slot.outgoing.is_none())
    }

    /// Which of two grants of the same room stands: that of the earlier leader, then the earlier one, then by place.
    pub fn precedence(&self) -> impl Ord + use<'a> {
        let granted = self.admission.granted_at.as_ref().map_or(i64::MIN, |at| at.0.as_second());
        let turn: Turn<'a> = self.server.turn();
        (self.admission.epoch, granted, turn)
    }
}

impl<'a> Slot<'a> {
    fn of(server: &Server, run: i64, (ordinal, node): (usize, &'a str), own: &[&'a Pod], attached: &Attached) -> Self {
        let name = format!("{}-{ordinal}", server.name);
        let run_of = |pod: &Pod| pod.server.as_ref().and_then(|server| server.run);
        let of_run = own.iter().copied().find(|pod| pod.name == name && run_of(pod) == Some(run));
        let each = &server.request.each;
        let missing = match of_run {
            Some(pod) if pod.deleting.is_some() => Some(beside(each, pod, node, attached)),
            Some(pod) if pod.node.is_some() && !pod.is_over() => None,
            _ => Some(each.clone()),
        };
        let outgoing =
            of_run.filter(|pod| pod.deleting.is_some() && !pod.is_over() && pod.node.as_deref() == Some(node));
        Self { node, pod: of_run.filter(|pod| pod.deleting.is_none()), missing, outgoing }
    }
}

/// What a pod takes on its node in addition to the one of the same run that it replaces. It is made only when the name is
/// free, so the two never take room at once. Pods of earlier runs are different: this run was granted beside them.
fn beside(each: &Amounts, before: &Pod, node: &str, attached: &Attached) -> Amounts {
    if before.node.as_deref() == Some(node) && !before.is_over() {
        let used = attached.used(before);
        each.or_more(&used).minus(&used)
    } else {
        each.clone()
    }
}
