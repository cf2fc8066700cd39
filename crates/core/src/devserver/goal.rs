//! What a server should be doing now, by its spec, its time and its sleep.

use k8s_openapi::jiff::Timestamp;
use odc_api::v1alpha1::condition::{self, Reason, Type};
use odc_api::v1alpha1::{Desired, DevServer, DevServerStatus, HibernationCause, Limits, Phase};

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
        return Goal::End(if is_unused(status) { End::Unused } else { End::Cancelled });
    }
    if expires_at(server, limits).is_some_and(|at| stage(at, settings.expiry_grace, now) == Stage::Over) {
        return Goal::End(End::Expired);
    }
    if server.spec.desired == Desired::Hibernated {
        return Goal::Sleep(HibernationCause::User);
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

/// The decision to end it because nobody uses it was written down.
fn is_unused(status: &DevServerStatus) -> bool {
    let ready = condition::find(&status.conditions, Type::Ready);
    ready.is_some_and(|condition| condition.reason == Reason::NobodyThere.as_str())
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
