//! The host key of a server and the Secret that stores it.
//!
//! Secrets are not watched, because that would require permission to read them in all namespaces. The Secret is created
//! when no host key is known. It is read only when a pod does not start, which may be caused by a missing Secret.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use super::SecretState;
use super::reconcile::Reconcile;
use crate::cluster::{Container, ContainerState, Pod};
use crate::plan::Requeue;
use crate::time::{self, until};

/// A bound pod that has not started after this time may wait for a deleted Secret.
const SECRET_CHECK_DELAY: Duration = Duration::from_secs(15);
/// The interval between checks of the Secret.
const SECRET_CHECK_INTERVAL: Duration = Duration::from_secs(60);
/// The interval between checks of a foreign Secret, which the owner of the server has to delete.
const FOREIGN_SECRET_CHECK_INTERVAL: Duration = Duration::from_secs(10);

impl Reconcile<'_> {
    /// Returns the host key in force.
    pub(super) fn host_key(&self) -> Option<String> {
        if let SecretState::Present(key) = &self.soft_state.secret {
            return Some(key.clone());
        }
        let pod_key = |pod: &Pod| pod.server.as_ref().and_then(|details| details.host_key.clone());
        self.keyed_pods().find_map(pod_key).or_else(|| self.stored_key().map(str::to_owned))
    }

    /// Reports whether an existing pod cannot start before the Secret is checked or created.
    pub(super) fn needs_secret(&self) -> bool {
        let waits = self.pods.live().any(|pod| first_secret_check(pod).is_some());
        let unusable = matches!(self.soft_state.secret, SecretState::Missing | SecretState::Foreign);
        waits && (unusable || self.is_secret_check_due())
    }

    pub(super) fn is_secret_check_due(&self) -> bool {
        self.secret_checks().any(|due| due <= self.now)
    }

    pub(super) fn next_secret_check(&self) -> Requeue {
        let next = self.secret_checks().filter(|due| *due > self.now).min();
        next.map_or(Requeue::AwaitChange, |due| Requeue::After(until(due, self.now)))
    }

    fn secret_checks(&self) -> impl Iterator<Item = Timestamp> {
        let checked = self.soft_state.secret_checked_at;
        let next = checked.map(|checked| time::add(checked, SECRET_CHECK_INTERVAL));
        let foreign = (self.soft_state.secret == SecretState::Foreign)
            .then(|| checked.map_or(self.now, |checked| time::add(checked, FOREIGN_SECRET_CHECK_INTERVAL)));
        let pods = self.pods.live().filter_map(first_secret_check);
        foreign.into_iter().chain(pods.map(move |first| next.map_or(first, |next| next.max(first))))
    }

    /// Reports whether a host key is stored in a pod or in the status.
    pub(super) fn has_stored_key(&self) -> bool {
        self.keyed_pods().next().is_some() || self.stored_key().is_some()
    }

    /// Returns the pods created with the host key in force.
    pub(super) fn keyed_pods(&self) -> impl Iterator<Item = &Pod> {
        self.pods.live().chain(self.pods.orphaned.iter().copied())
    }

    fn stored_key(&self) -> Option<&str> {
        Some(self.stored()?.access.as_ref()?.host_key.as_ref()?.as_str())
    }
}

/// Returns when to check the Secret of a bound pod that has not started.
fn first_secret_check(pod: &Pod) -> Option<Timestamp> {
    let details = pod.server.as_ref().filter(|_| pod.node.is_some())?;
    let started = details.ready || details.containers.iter().any(|container| !waits_for_volumes(container));
    details.created_at.filter(|_| !started).map(|created| time::add(created, SECRET_CHECK_DELAY))
}

fn waits_for_volumes(container: &Container) -> bool {
    use ContainerState::Waiting;
    matches!(&container.state, Waiting { reason, .. } if reason == "PodInitializing" || reason == "ContainerCreating")
}
