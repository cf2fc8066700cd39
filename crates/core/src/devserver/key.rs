//! The server's host key, and the Secret it lies in.
//!
//! Nobody watches Secrets: there is no right to, over all namespaces. So the Secret is made when no key is known, and
//! looked for only when a pod does not begin, which is what a missing one looks like from here.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use super::decide::Decision;
use super::{SecretSeen, granted, since};
use crate::plan::Again;
use crate::seen::{Container, ContainerState, Pod};

/// A placed pod that has not begun after this long may be waiting for a Secret that somebody deleted.
const SECRET_DOUBT: Duration = Duration::from_secs(15);
/// How often to look for it while nothing gets better.
const SECRET_AGAIN: Duration = Duration::from_secs(60);
/// How soon to look again at first when another one is in the way. That of an earlier server of the same name goes by
/// itself, as soon as somebody gets round to it.
const FOREIGN_AGAIN: Duration = Duration::from_secs(1);

impl Decision<'_> {
    /// The host key in force, wherever it is known from.
    pub(super) fn host_key(&self) -> Option<String> {
        if let SecretSeen::There(key) = &self.seen.secret {
            return Some(key.clone());
        }
        let of_pod = |pod: &Pod| pod.server.as_ref().and_then(|details| details.host_key.clone());
        self.keyed().find_map(of_pod).or_else(|| self.stored_key().map(str::to_owned))
    }

    /// Whether a pod that is there cannot begin before something is known or done about the Secret.
    pub(super) fn wants_the_secret(&self) -> bool {
        let waits = self.parts.live().any(|pod| doubtful_from(pod).is_some());
        let unusable = matches!(self.seen.secret, SecretSeen::Missing | SecretSeen::Foreign);
        waits && (unusable || self.is_in_doubt())
    }

    pub(super) fn is_in_doubt(&self) -> bool {
        self.doubts().any(|due| due <= self.now)
    }

    pub(super) fn secret_doubt(&self) -> Again {
        let soonest = self.doubts().filter(|due| *due > self.now).min();
        let until = |due| Duration::try_from(self.now.duration_until(due)).unwrap_or_default();
        soonest.map_or(Again::OnChange, |due| Again::After(until(due)))
    }

    /// When the Secret is to be looked for.
    fn doubts(&self) -> impl Iterator<Item = Timestamp> {
        let checked = self.seen.secret_checked;
        let again = checked.map(|checked| later(checked, SECRET_AGAIN));
        let foreign = (self.seen.secret == SecretSeen::Foreign)
            .then(|| checked.map_or(self.now, |checked| later(checked, self.foreign_again(checked))));
        let pods = self.parts.live().filter_map(doubtful_from);
        foreign.into_iter().chain(pods.map(move |first| again.map_or(first, |again| again.max(first))))
    }

    /// The longer it has been in the way, the later.
    fn foreign_again(&self, checked: Timestamp) -> Duration {
        let granted = granted(self.stored()).and_then(|grant| Some(grant.granted_at.as_ref()?.0));
        granted.map_or(SECRET_AGAIN, |granted| since(granted, checked).clamp(FOREIGN_AGAIN, SECRET_AGAIN))
    }

    /// Whether anything says which host key the server has.
    pub(super) fn remembers_key(&self) -> bool {
        self.keyed().next().is_some() || self.stored_key().is_some()
    }

    /// Pods that were made for the host key in force.
    pub(super) fn keyed(&self) -> impl Iterator<Item = &Pod> {
        self.parts.live().chain(self.parts.orphaned.iter().copied())
    }

    fn stored_key(&self) -> Option<&str> {
        Some(self.stored()?.access.as_ref()?.host_key.as_ref()?.as_str())
    }
}

/// From when on a placed pod that has not even begun perhaps cannot mount its Secret.
fn doubtful_from(pod: &Pod) -> Option<Timestamp> {
    let details = pod.server.as_ref().filter(|_| pod.node.is_some())?;
    let begun = details.ready || details.containers.iter().any(|container| !waits_for_volumes(container));
    details.created.filter(|_| !begun).map(|created| later(created, SECRET_DOUBT))
}

fn waits_for_volumes(container: &Container) -> bool {
    use ContainerState::Waiting;
    matches!(&container.state, Waiting { reason, .. } if reason == "PodInitializing" || reason == "ContainerCreating")
}

fn later(than: Timestamp, by: Duration) -> Timestamp {
    than.saturating_add(by).unwrap_or(Timestamp::MAX)
}
