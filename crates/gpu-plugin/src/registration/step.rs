//! What is missing for being served and registered. Pure: what is there and the time are arguments.

use std::time::Duration;

use tokio::time::Instant;

use crate::file_id::FileId;

/// What is there now.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Seen {
    pub(super) directory: bool,
    pub(super) own: Option<FileId>,
    pub(super) kubelet: Option<FileId>,
    /// Since when nobody has followed the device list.
    pub(super) unheard: Option<Instant>,
}

/// What we made of it so far.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Held {
    pub(super) socket: Option<FileId>,
    pub(super) registered: Option<Registered>,
    pub(super) setback: Option<Setback>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Registered {
    pub(super) kubelet: FileId,
    pub(super) at: Instant,
}

/// A step that failed, and the sockets it failed with: with others there is no reason to wait.
#[derive(Debug, Clone, Copy)]
pub(super) struct Setback {
    pub(super) own: Option<FileId>,
    pub(super) kubelet: Option<FileId>,
    pub(super) failures: u32,
    pub(super) until: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Step {
    /// Make our socket and serve on it.
    Serve,
    /// Register with the kubelet whose socket this is.
    Register { kubelet: FileId },
    /// Until something changes or, if given, until then.
    Wait { until: Option<Instant> },
}

/// The next step: the one that is missing, or a wait if it has just failed.
pub(super) fn decide(seen: &Seen, held: &Held, silence: Duration, now: Instant) -> Step {
    match (missing(seen, held, silence, now), held.setback) {
        (Step::Serve | Step::Register { .. }, Some(setback)) if setback.applies(seen, now) => {
            Step::Wait { until: Some(setback.until) }
        }
        (step, _) => step,
    }
}

/// The step that is missing for being served and registered with the kubelet that is there.
///
/// A registration is also renewed when nobody has followed the device list for `silence`. A kubelet
/// that notices the end of an old connection late disconnects the newer one of the same resource,
/// and would then take all devices for ill until one of the two restarts.
fn missing(seen: &Seen, held: &Held, silence: Duration, now: Instant) -> Step {
    const CHANGE: Step = Step::Wait { until: None };

    if !seen.directory {
        return CHANGE;
    }
    if held.socket.is_none() || held.socket != seen.own {
        return Step::Serve;
    }
    let Some(kubelet) = seen.kubelet else {
        return CHANGE;
    };
    let Some(registered) = held.registered.filter(|registered| registered.kubelet == kubelet) else {
        return Step::Register { kubelet };
    };
    let Some(unheard) = seen.unheard else {
        return CHANGE;
    };
    let due = registered.at.max(unheard) + silence;
    if now < due { Step::Wait { until: Some(due) } } else { Step::Register { kubelet } }
}

impl Setback {
    fn applies(&self, seen: &Seen, now: Instant) -> bool {
        now < self.until && (self.own, self.kubelet) == (seen.own, seen.kubelet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SILENCE: Duration = Duration::from_secs(5);
    const SECOND: Duration = Duration::from_secs(1);
    const WAIT: Step = Step::Wait { until: None };

    fn file(inode: u64) -> FileId {
        FileId::test(inode)
    }

    /// Our socket is file 1 and the kubelet's is file 2; we made the one, registered with the
    /// other, and are heard.
    fn settled(now: Instant) -> (Seen, Held) {
        let seen = Seen { directory: true, own: Some(file(1)), kubelet: Some(file(2)), unheard: None };
        let registered = Some(Registered { kubelet: file(2), at: now });
        (seen, Held { socket: Some(file(1)), registered, setback: None })
    }

    #[track_caller]
    fn check(change: impl FnOnce(&mut Seen, &mut Held, Instant), expect: impl FnOnce(Instant) -> Step) {
        let now = Instant::now();
        let (mut seen, mut held) = settled(now);
        change(&mut seen, &mut held, now);
        assert_eq!(decide(&seen, &held, SILENCE, now), expect(now));
    }

    #[test]
    fn settled_plugin_rests() {
        check(|_, _, _| {}, |_| WAIT);
    }

    #[test]
    fn missing_directory_is_waited_for() {
        let change = |seen: &mut Seen, held: &mut Held, _| {
            *seen = Seen { directory: false, own: None, kubelet: None, unheard: None };
            *held = Held::default();
        };
        check(change, |_| WAIT);
    }

    #[test]
    fn socket_is_made_first_even_without_a_kubelet() {
        let change = |seen: &mut Seen, held: &mut Held, _| {
            (seen.own, seen.kubelet) = (None, None);
            *held = Held::default();
        };
        check(change, |_| Step::Serve);
    }

    #[test]
    fn missing_kubelet_is_waited_for() {
        check(|seen, _, _| seen.kubelet = None, |_| WAIT);
    }

    #[test]
    fn removed_or_replaced_socket_is_made_again() {
        check(|seen, _, _| seen.own = None, |_| Step::Serve);
        check(|seen, _, _| seen.own = Some(file(9)), |_| Step::Serve);
    }

    #[test]
    fn another_kubelet_is_registered_with() {
        check(|seen, _, _| seen.kubelet = Some(file(9)), |_| Step::Register { kubelet: file(9) });
        check(|_, held, _| held.registered = None, |_| Step::Register { kubelet: file(2) });
    }

    #[test]
    fn unheard_registration_is_renewed_after_the_silence() {
        check(|seen, _, now| seen.unheard = Some(now - SECOND), |now| Step::Wait { until: Some(now + SILENCE) });
        let long_ago = |seen: &mut Seen, held: &mut Held, now: Instant| {
            seen.unheard = Some(now - SILENCE);
            held.registered = Some(Registered { kubelet: file(2), at: now - 2 * SILENCE });
        };
        check(long_ago, |_| Step::Register { kubelet: file(2) });
    }

    #[test]
    fn failed_step_waits_unless_a_socket_changed_meanwhile() {
        let setback = |kubelet, now: Instant| Setback {
            own: Some(file(1)),
            kubelet: Some(kubelet),
            failures: 1,
            until: now + SECOND,
        };
        let failed_with = |kubelet| {
            move |_: &mut Seen, held: &mut Held, now| {
                held.registered = None;
                held.setback = Some(setback(kubelet, now));
            }
        };
        check(failed_with(file(2)), |now| Step::Wait { until: Some(now + SECOND) });
        check(failed_with(file(9)), |_| Step::Register { kubelet: file(2) });
    }

    #[test]
    fn failed_step_is_tried_again_when_its_time_has_come() {
        let change = |_: &mut Seen, held: &mut Held, now| {
            held.registered = None;
            held.setback = Some(Setback { own: Some(file(1)), kubelet: Some(file(2)), failures: 1, until: now });
        };
        check(change, |_| Step::Register { kubelet: file(2) });
    }
}
