//! Decides the next step of the registration from the observed and the current state. No I/O.

use std::time::Duration;

use tokio::time::Instant;

use crate::file_id::FileId;

/// The state of the file system and of the kubelet's streams.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Observed {
    pub(super) directory: bool,
    pub(super) own: Option<FileId>,
    pub(super) kubelet: Option<FileId>,
    /// Since when no `ListAndWatch` stream is open.
    pub(super) unwatched_since: Option<Instant>,
}

/// The state of the plugin.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Current {
    pub(super) socket: Option<FileId>,
    pub(super) registered: Option<Registered>,
    pub(super) backoff: Option<Backoff>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Registered {
    pub(super) kubelet: FileId,
    pub(super) at: Instant,
}

/// Delay after a failed step. It applies only as long as the sockets are the same.
#[derive(Debug, Clone, Copy)]
pub(super) struct Backoff {
    pub(super) own: Option<FileId>,
    pub(super) kubelet: Option<FileId>,
    pub(super) failures: u32,
    pub(super) until: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Step {
    /// Create the socket and serve on it.
    Serve,
    /// Register with the kubelet that owns this socket.
    Register { kubelet: FileId },
    /// Wait for a change, or until the given time.
    Wait { until: Option<Instant> },
}

/// Returns the next step, or a wait if the step failed recently.
pub(super) fn decide(observed: &Observed, current: &Current, list_watch_timeout: Duration, now: Instant) -> Step {
    match (next_step(observed, current, list_watch_timeout, now), current.backoff) {
        (Step::Serve | Step::Register { .. }, Some(backoff)) if backoff.applies(observed, now) => {
            Step::Wait { until: Some(backoff.until) }
        }
        (step, _) => step,
    }
}

/// Returns the step that leads towards being served and registered with the running kubelet.
///
/// Also registers again after `list_watch_timeout` without a `ListAndWatch` stream: a kubelet that
/// detects the end of an old connection late disconnects the newer one of the same resource, and all
/// devices would stay unhealthy until the kubelet or the plugin restarts.
fn next_step(observed: &Observed, current: &Current, list_watch_timeout: Duration, now: Instant) -> Step {
    const WAIT_FOR_CHANGE: Step = Step::Wait { until: None };

    if !observed.directory {
        return WAIT_FOR_CHANGE;
    }
    if current.socket.is_none() || current.socket != observed.own {
        return Step::Serve;
    }
    let Some(kubelet) = observed.kubelet else {
        return WAIT_FOR_CHANGE;
    };
    let Some(registered) = current.registered.filter(|registered| registered.kubelet == kubelet) else {
        return Step::Register { kubelet };
    };
    let Some(unwatched_since) = observed.unwatched_since else {
        return WAIT_FOR_CHANGE;
    };
    let due = registered.at.max(unwatched_since) + list_watch_timeout;
    if now < due { Step::Wait { until: Some(due) } } else { Step::Register { kubelet } }
}

impl Backoff {
    fn applies(&self, observed: &Observed, now: Instant) -> bool {
        now < self.until && (self.own, self.kubelet) == (observed.own, observed.kubelet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST_WATCH_TIMEOUT: Duration = Duration::from_secs(5);
    const SECOND: Duration = Duration::from_secs(1);
    const WAIT: Step = Step::Wait { until: None };

    fn file(inode: u64) -> FileId {
        FileId::test(inode)
    }

    /// The plugin's socket is file 1 and the kubelet's is file 2; the plugin is served, registered and
    /// watched.
    fn registered_state(now: Instant) -> (Observed, Current) {
        let observed = Observed { directory: true, own: Some(file(1)), kubelet: Some(file(2)), unwatched_since: None };
        let registered = Some(Registered { kubelet: file(2), at: now });
        (observed, Current { socket: Some(file(1)), registered, backoff: None })
    }

    #[track_caller]
    fn check(change: impl FnOnce(&mut Observed, &mut Current, Instant), expect: impl FnOnce(Instant) -> Step) {
        let now = Instant::now();
        let (mut observed, mut current) = registered_state(now);
        change(&mut observed, &mut current, now);
        assert_eq!(decide(&observed, &current, LIST_WATCH_TIMEOUT, now), expect(now));
    }

    #[test]
    fn registered_plugin_waits_for_changes() {
        check(|_, _, _| {}, |_| WAIT);
    }

    #[test]
    fn plugin_waits_for_missing_directory() {
        let change = |observed: &mut Observed, current: &mut Current, _| {
            *observed = Observed { directory: false, own: None, kubelet: None, unwatched_since: None };
            *current = Current::default();
        };
        check(change, |_| WAIT);
    }

    #[test]
    fn socket_is_created_before_the_kubelet_starts() {
        let change = |observed: &mut Observed, current: &mut Current, _| {
            (observed.own, observed.kubelet) = (None, None);
            *current = Current::default();
        };
        check(change, |_| Step::Serve);
    }

    #[test]
    fn plugin_waits_for_missing_kubelet() {
        check(|observed, _, _| observed.kubelet = None, |_| WAIT);
    }

    #[test]
    fn removed_or_replaced_socket_is_recreated() {
        check(|observed, _, _| observed.own = None, |_| Step::Serve);
        check(|observed, _, _| observed.own = Some(file(9)), |_| Step::Serve);
    }

    #[test]
    fn plugin_registers_with_new_kubelet() {
        check(|observed, _, _| observed.kubelet = Some(file(9)), |_| Step::Register { kubelet: file(9) });
        check(|_, current, _| current.registered = None, |_| Step::Register { kubelet: file(2) });
    }

    #[test]
    fn unwatched_plugin_registers_again_after_the_timeout() {
        check(
            |observed, _, now| observed.unwatched_since = Some(now - SECOND),
            |now| Step::Wait { until: Some(now + LIST_WATCH_TIMEOUT) },
        );
        let long_ago = |observed: &mut Observed, current: &mut Current, now: Instant| {
            observed.unwatched_since = Some(now - LIST_WATCH_TIMEOUT);
            current.registered = Some(Registered { kubelet: file(2), at: now - 2 * LIST_WATCH_TIMEOUT });
        };
        check(long_ago, |_| Step::Register { kubelet: file(2) });
    }

    #[test]
    fn failed_step_backs_off_until_a_socket_changes() {
        let backoff = |kubelet, now: Instant| Backoff {
            own: Some(file(1)),
            kubelet: Some(kubelet),
            failures: 1,
            until: now + SECOND,
        };
        let failed_with = |kubelet| {
            move |_: &mut Observed, current: &mut Current, now| {
                current.registered = None;
                current.backoff = Some(backoff(kubelet, now));
            }
        };
        check(failed_with(file(2)), |now| Step::Wait { until: Some(now + SECOND) });
        check(failed_with(file(9)), |_| Step::Register { kubelet: file(2) });
    }

    #[test]
    fn failed_step_is_retried_after_the_backoff() {
        let change = |_: &mut Observed, current: &mut Current, now| {
            current.registered = None;
            current.backoff = Some(Backoff { own: Some(file(1)), kubelet: Some(file(2)), failures: 1, until: now });
        };
        check(change, |_| Step::Register { kubelet: file(2) });
    }
}
