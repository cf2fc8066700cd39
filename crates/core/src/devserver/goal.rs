//! What a server should be doing now, by its spec, its time and its sleep.

use k8s_openapi::jiff::Timestamp;
use odc_api::v1alpha1::condition::{self, Reason, Type};
use odc_api::v1alpha1::{Admission, Desired, DevServer, DevServerStatus, HibernationCause, Limits, Phase};

use super::Settings;
use super::lifetime::{self, Stage, stage};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    Run,
    /// Asleep, or on the way.
    Sleep(HibernationCause),
    End(End),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Expired,
    Cancelled,
    /// Nobody used it, and it is to end then.
    Unused,
    /// It waited for its first start for as long as anybody may.
    QueuedTooLong,
}

/// `sleep` is who wants to put it to sleep just now: nobody uses it, or its node is being emptied.
pub fn goal(
    server: &DevServer,
    sleep: Option<HibernationCause>,
    limits: Option<&Limits>,
    settings: &Settings,
    now: Timestamp,
) -> Goal {
    let none = DevServerStatus::default();
    let status = server.status.as_ref().unwrap_or(&none);
    if status.phase == Some(Phase::Stopping) && is_used_up(status) {
        return Goal::End(End::Expired);
    }
    if server.spec.desired == Desired::Ended {
        return Goal::End(End::Cancelled);
    }
    if status.phase == Some(Phase::Stopping) {
        return Goal::End(end_under_way(status));
    }
    if expires_at(server, limits).is_some_and(|at| stage(at, settings.expiry_grace, now) == Stage::Over) {
        return Goal::End(End::Expired);
    }
    if server.spec.desired == Desired::Hibernated {
        return Goal::Sleep(HibernationCause::User);
    }
    if gives_up_at(server, settings).is_some_and(|at| at <= now) {
        return Goal::End(End::QueuedTooLong);
    }
    match (&status.hibernation, sleep) {
        // Any other value than the one of that moment wakes it, whenever it was written: no clocks are compared.
        (Some(asleep), _) if asleep.by != HibernationCause::User => {
            if asleep.wake_seen == server.spec.wake {
                Goal::Sleep(asleep.by)
            } else {
                Goal::Run
            }
        }
        (None, Some(cause)) => Goal::Sleep(cause),
        _ => Goal::Run,
    }
}

/// When the time of a running server ends, by what it asks for now: an extension counts from the moment it is written.
fn expires_at(server: &DevServer, limits: Option<&Limits>) -> Option<Timestamp> {
    let status = server.status.as_ref()?;
    let since = status.running_since.as_ref()?;
    let lifetime = lifetime::grant(server.spec.lifetime, limits, status.lifetime);
    Some(lifetime::expires_at(lifetime.granted, status.ran_seconds.unwrap_or(0), since.0))
}

/// The decision that its time is over was written down.
fn is_used_up(status: &DevServerStatus) -> bool {
    let expiring = condition::find(&status.conditions, Type::Expiring);
    expiring.is_some_and(|condition| condition.reason == Reason::LifetimeUsedUp.as_str())
}

/// Why it is being ended, as it was written down.
fn end_under_way(status: &DevServerStatus) -> End {
    let ready = condition::find(&status.conditions, Type::Ready);
    let says = |reason: Reason| ready.is_some_and(|condition| condition.reason == reason.as_str());
    if says(Reason::NobodyThere) {
        End::Unused
    } else if says(Reason::QueuedTooLong) {
        End::QueuedTooLong
    } else {
        End::Cancelled
    }
}

/// Whether nothing was ever granted to it.
pub(super) fn is_new(status: &DevServerStatus) -> bool {
    let granted = |admission: &Admission| admission.run > 0 || !admission.nodes.is_empty();
    status.started_at.is_none() && !status.admission.as_ref().is_some_and(granted)
}

/// When a server that waits for its first start is cancelled. One that ran before is never given up, however long it
/// waits: its owner has work there. A booking waits from its time on.
pub(super) fn gives_up_at(server: &DevServer, settings: &Settings) -> Option<Timestamp> {
    let status = server.status.as_ref().filter(|status| is_new(status))?;
    let since = status.waiting_since.as_ref()?.0;
    let booked = server.spec.scheduling.not_before.as_ref().map(|booked| booked.0);
    let since = booked.map_or(since, |booked| booked.max(since));
    Some(since.saturating_add(settings.queue_limit?).unwrap_or(Timestamp::MAX))
}

#[cfg(test)]
mod tests {
    use odc_api::time::stored;
    use odc_api::v1alpha1::{GrantedLifetime, Hibernation};

    use super::super::fixtures::{at, settings};
    use super::*;

    const HOUR: i64 = 3_600;
    /// When a server of [`running`] has used up its time.
    const EXPIRY: i64 = 8 * HOUR;

    /// Runs since the beginning of time, for eight hours.
    fn running() -> DevServer {
        DevServer::test().in_phase(Phase::Running).status(|status| status.running_since = Some(stored(at(0))))
    }

    fn asleep(by: HibernationCause, wake_seen: Option<&str>) -> DevServer {
        let hibernation = Hibernation { since: stored(at(0)), by, wake_seen: wake_seen.map(Into::into) };
        DevServer::test().in_phase(Phase::Hibernated).status(|status| status.hibernation = Some(hibernation))
    }

    fn waking(mut server: DevServer, wake: &str) -> DevServer {
        server.spec.wake = Some(wake.into());
        server
    }

    /// A stop because its time was over, stored.
    fn expiring() -> DevServer {
        running().in_phase(Phase::Stopping).status(|status| {
            let condition = condition::new(
                Type::Expiring,
                condition::Status::True,
                Reason::LifetimeUsedUp,
                "Its time is used up.",
                None,
                stored(at(0)),
            );
            status.conditions = vec![condition];
        })
    }

    #[track_caller]
    fn check(given: &DevServer, sleep: Option<HibernationCause>, now: i64, expect: Goal) {
        assert_eq!(goal(given, sleep, Some(&Limits::default()), &settings(), at(now)), expect);
    }

    #[test]
    fn the_owners_word_counts() {
        check(&DevServer::test(), None, 0, Goal::Run);
        check(&DevServer::test().desired(Desired::Hibernated), None, 0, Goal::Sleep(HibernationCause::User));
        check(&DevServer::test().desired(Desired::Ended), None, 0, Goal::End(End::Cancelled));
        check(&running().desired(Desired::Hibernated), None, 0, Goal::Sleep(HibernationCause::User));
        check(&asleep(HibernationCause::User, None), None, 0, Goal::Run);
    }

    #[test]
    fn time_is_over_after_the_grace() {
        let grace = i64::try_from(settings().expiry_grace.as_secs()).unwrap();
        check(&running(), None, EXPIRY, Goal::Run);
        check(&running(), None, EXPIRY + grace - 1, Goal::Run);
        check(&running(), None, EXPIRY + grace, Goal::End(End::Expired));
        check(&running().desired(Desired::Hibernated), None, EXPIRY + grace, Goal::End(End::Expired));
        check(&running().desired(Desired::Ended), None, EXPIRY + grace, Goal::End(End::Cancelled));
    }

    #[test]
    fn an_extension_counts_from_the_moment_it_is_written() {
        check(&running().lifetime("9h"), None, EXPIRY + 600, Goal::Run);
        check(&running().lifetime("1h"), None, 2 * HOUR, Goal::End(End::Expired));
        let clamped = running().lifetime("9h").status(|status| {
            let had = "8h".parse().unwrap();
            status.lifetime = Some(GrantedLifetime { asked: had, granted: had });
        });
        let limits = Limits { extension: Some("1m".parse().unwrap()), ..Limits::default() };
        let goal = |now| goal(&clamped, None, Some(&limits), &settings(), at(now));
        assert_eq!((goal(EXPIRY + 179), goal(EXPIRY + 180)), (Goal::Run, Goal::End(End::Expired)));
    }

    #[test]
    fn time_that_stands_still_is_never_over() {
        check(&DevServer::test().in_phase(Phase::Queued), None, 100 * HOUR, Goal::Run);
        check(&asleep(HibernationCause::Idle, None), None, 100 * HOUR, Goal::Sleep(HibernationCause::Idle));
    }

    #[test]
    fn an_end_under_way_is_never_turned_round() {
        check(&expiring(), None, 0, Goal::End(End::Expired));
        check(&expiring().lifetime("100h"), None, 0, Goal::End(End::Expired));
        check(&expiring().desired(Desired::Ended), None, 0, Goal::End(End::Expired));
        check(&expiring().desired(Desired::Hibernated), None, 0, Goal::End(End::Expired));
        check(&running().in_phase(Phase::Stopping), None, 0, Goal::End(End::Cancelled));
    }

    #[test]
    fn whoever_waited_too_long_for_a_first_start_is_cancelled_and_nobody_else() {
        /// Competes since the beginning of time.
        fn waiting(change: impl FnOnce(&mut DevServer)) -> DevServer {
            let mut server = DevServer::test().in_phase(Phase::Queued).status(|status| {
                status.waiting_since = Some(stored(at(0)));
                status.admission = Some(Admission::default());
            });
            change(&mut server);
            server
        }
        const LIMIT: i64 = 48 * HOUR;
        let too_long = Goal::End(End::QueuedTooLong);
        let plain = waiting(|_| {});
        check(&plain, None, LIMIT - 1, Goal::Run);
        check(&plain, None, LIMIT, too_long);
        check(&DevServer::test().in_phase(Phase::Queued), None, 100 * HOUR, Goal::Run);

        let booked = waiting(|server| server.spec.scheduling.not_before = Some(stored(at(HOUR))));
        check(&booked, None, HOUR + LIMIT - 1, Goal::Run);
        check(&booked, None, HOUR + LIMIT, too_long);

        let admitted = |admission: Admission| waiting(|_| {}).status(|status| status.admission = Some(admission));
        check(&admitted(Admission { run: 1, ..Admission::default() }), None, LIMIT, Goal::Run);
        let granted = Admission { run: 1, nodes: vec!["node-1".into()], ..Admission::default() };
        check(&admitted(granted), None, LIMIT, Goal::Run);
        check(&waiting(|_| {}).status(|status| status.started_at = Some(stored(at(0)))), None, LIMIT, Goal::Run);

        check(&waiting(|_| {}).desired(Desired::Ended), None, LIMIT, Goal::End(End::Cancelled));
        check(&waiting(|_| {}).desired(Desired::Hibernated), None, LIMIT, Goal::Sleep(HibernationCause::User));
        for (limit, expect) in [(Some(0), too_long), (None, Goal::Run)] {
            let settings = Settings { queue_limit: limit.map(std::time::Duration::from_secs), ..settings() };
            assert_eq!(goal(&plain, None, None, &settings, at(0)), expect);
        }
    }

    #[test]
    fn a_new_wake_id_wakes_and_the_old_one_does_not() {
        use HibernationCause::{Drain, Idle};
        for by in [Idle, Drain] {
            check(&asleep(by, None), None, 0, Goal::Sleep(by));
            check(&waking(asleep(by, Some("a")), "a"), None, 0, Goal::Sleep(by));
            check(&waking(asleep(by, Some("a")), "b"), None, 0, Goal::Run);
            check(&waking(asleep(by, None), "b"), None, 0, Goal::Run);
            check(&asleep(by, Some("a")), None, 0, Goal::Run);
            check(&waking(asleep(by, None).in_phase(Phase::Hibernating), "b"), None, 0, Goal::Run);
        }
        check(
            &waking(asleep(Idle, None), "b").desired(Desired::Hibernated),
            None,
            0,
            Goal::Sleep(HibernationCause::User),
        );
    }

    #[test]
    fn who_is_put_to_sleep_must_be_awake() {
        use HibernationCause::{Drain, Idle, User};
        check(&running(), Some(Idle), 0, Goal::Sleep(Idle));
        check(&running(), Some(Drain), 0, Goal::Sleep(Drain));
        check(&running().desired(Desired::Hibernated), Some(Idle), 0, Goal::Sleep(User));
        // It was woken and has not told so yet: whoever found it idle looked at the time before.
        check(&waking(asleep(Idle, None), "b"), Some(Idle), 0, Goal::Run);
        check(&asleep(User, None), Some(Idle), 0, Goal::Run);
    }
}
