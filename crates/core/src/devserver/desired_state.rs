//! The desired state of a server, from its spec, its lifetime and its stored intent.

use k8s_openapi::jiff::Timestamp;
use odc_api::v1alpha1::{Admission, Desired, DevServer, DevServerStatus, HibernationCause, Limits, Phase, StopCause};

use super::Settings;
use super::lifetime::{self, Stage, stage};
use crate::time;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DesiredState {
    Run,
    /// Hibernated, or on the way.
    Hibernate(HibernationCause),
    /// Ended, or on the way.
    End(StopCause),
}

/// Returns the desired state. `hibernate` is a request to hibernate that is not stored yet.
///
/// A stop that has begun is completed for the cause stored in `status.stopping`, whatever the spec and the conditions say.
pub fn desired(
    server: &DevServer,
    hibernate: Option<HibernationCause>,
    limits: Option<&Limits>,
    settings: &Settings,
    now: Timestamp,
) -> DesiredState {
    let default = DevServerStatus::default();
    let status = server.status.as_ref().unwrap_or(&default);
    if let Some(stopping) = &status.stopping {
        return DesiredState::End(stopping.cause);
    }
    if server.spec.desired == Desired::Ended || status.phase == Some(Phase::Stopping) {
        return DesiredState::End(StopCause::User);
    }
    let expires_at = status.running_since.as_ref().map(|since| lifetime::expiry(server, limits, since.0));
    if expires_at.is_some_and(|at| stage(at, settings.expiry_grace, now) == Stage::Expired) {
        return DesiredState::End(StopCause::Expired);
    }
    if server.spec.desired == Desired::Hibernated {
        return DesiredState::Hibernate(HibernationCause::User);
    }
    if queue_deadline(server, settings).is_some_and(|deadline| deadline <= now) {
        return DesiredState::End(StopCause::QueueTimeout);
    }
    match (&status.hibernation, hibernate) {
        // Any value other than the observed one wakes the server. No timestamps are compared.
        (Some(hibernation), _) if hibernation.cause != HibernationCause::User => {
            if hibernation.observed_wake == server.spec.wake {
                DesiredState::Hibernate(hibernation.cause)
            } else {
                DesiredState::Run
            }
        }
        (None, Some(cause)) => DesiredState::Hibernate(cause),
        _ => DesiredState::Run,
    }
}

/// Reports whether the server was never admitted.
pub(super) fn is_new(status: &DevServerStatus) -> bool {
    let admitted = |admission: &Admission| admission.run > 0 || !admission.nodes.is_empty();
    status.started_at.is_none() && !status.admission.as_ref().is_some_and(admitted)
}

/// Returns when a server that waits for its first admission is cancelled. A server that ran before is never cancelled,
/// because it may hold data of its owner. For a booking, the timeout starts at its start time.
pub(super) fn queue_deadline(server: &DevServer, settings: &Settings) -> Option<Timestamp> {
    let status = server.status.as_ref().filter(|status| is_new(status))?;
    let since = status.waiting_since.as_ref()?.0;
    let begin = server.spec.scheduling.not_before.as_ref().map(|begin| begin.0);
    let since = begin.map_or(since, |begin| begin.max(since));
    Some(time::add(since, settings.queue_timeout?))
}

#[cfg(test)]
mod tests {
    use odc_api::time::to_api_precision;
    use odc_api::v1alpha1::condition::{self, Reason, Type};
    use odc_api::v1alpha1::{GrantedLifetime, Hibernation, Stopping};

    use super::super::fixtures::{at, settings};
    use super::*;

    const HOUR: i64 = 3_600;
    /// When the lifetime of [`running`] ends.
    const EXPIRY: i64 = 8 * HOUR;

    /// Running since second 0, with a lifetime of 8h.
    fn running() -> DevServer {
        DevServer::test().in_phase(Phase::Running).status(|status| status.running_since = Some(to_api_precision(at(0))))
    }

    fn hibernated(cause: HibernationCause, observed_wake: Option<&str>) -> DevServer {
        let hibernation =
            Hibernation { since: to_api_precision(at(0)), cause, observed_wake: observed_wake.map(Into::into) };
        DevServer::test().in_phase(Phase::Hibernated).status(|status| status.hibernation = Some(hibernation))
    }

    fn waking(mut server: DevServer, wake: &str) -> DevServer {
        server.spec.wake = Some(wake.into());
        server
    }

    /// A server whose stop for this cause has begun.
    fn stopping(cause: StopCause) -> DevServer {
        running().in_phase(Phase::Stopping).status(|status| {
            status.stopping = Some(Box::new(Stopping { cause, since: to_api_precision(at(0)) }));
        })
    }

    #[track_caller]
    fn check(given: &DevServer, hibernate: Option<HibernationCause>, now: i64, expect: DesiredState) {
        assert_eq!(desired(given, hibernate, Some(&Limits::default()), &settings(), at(now)), expect);
    }

    #[test]
    fn spec_decides_desired_state() {
        check(&DevServer::test(), None, 0, DesiredState::Run);
        check(
            &DevServer::test().desired(Desired::Hibernated),
            None,
            0,
            DesiredState::Hibernate(HibernationCause::User),
        );
        check(&DevServer::test().desired(Desired::Ended), None, 0, DesiredState::End(StopCause::User));
        check(&running().desired(Desired::Hibernated), None, 0, DesiredState::Hibernate(HibernationCause::User));
        check(&hibernated(HibernationCause::User, None), None, 0, DesiredState::Run);
    }

    #[test]
    fn server_expires_after_grace() {
        let grace = i64::try_from(settings().expiry_grace.as_secs()).unwrap();
        check(&running(), None, EXPIRY, DesiredState::Run);
        check(&running(), None, EXPIRY + grace - 1, DesiredState::Run);
        check(&running(), None, EXPIRY + grace, DesiredState::End(StopCause::Expired));
        check(&running().desired(Desired::Hibernated), None, EXPIRY + grace, DesiredState::End(StopCause::Expired));
        check(&running().desired(Desired::Ended), None, EXPIRY + grace, DesiredState::End(StopCause::User));
    }

    #[test]
    fn extension_takes_effect_immediately() {
        check(&running().lifetime("9h"), None, EXPIRY + 600, DesiredState::Run);
        check(&running().lifetime("1h"), None, 2 * HOUR, DesiredState::End(StopCause::Expired));
        let clamped = running().lifetime("9h").status(|status| {
            let before = "8h".parse().unwrap();
            status.lifetime = Some(GrantedLifetime { requested: before, granted: before });
        });
        let limits = Limits { extension: Some("1m".parse().unwrap()), ..Limits::default() };
        let state = |now| desired(&clamped, None, Some(&limits), &settings(), at(now));
        assert_eq!(
            (state(EXPIRY + 179), state(EXPIRY + 180)),
            (DesiredState::Run, DesiredState::End(StopCause::Expired))
        );
    }

    #[test]
    fn paused_lifetime_does_not_expire() {
        check(&DevServer::test().in_phase(Phase::Queued), None, 100 * HOUR, DesiredState::Run);
        check(
            &hibernated(HibernationCause::Idle, None),
            None,
            100 * HOUR,
            DesiredState::Hibernate(HibernationCause::Idle),
        );
    }

    #[test]
    fn stop_in_progress_keeps_its_cause() {
        use StopCause::{Expired, Idle, QueueTimeout, User};
        for cause in [Expired, User, Idle, QueueTimeout] {
            let expect = DesiredState::End(cause);
            check(&stopping(cause), None, 0, expect);
            check(&stopping(cause).lifetime("100h"), None, 0, expect);
            check(&stopping(cause).desired(Desired::Ended), None, 0, expect);
            check(&stopping(cause).desired(Desired::Hibernated), None, 0, expect);
        }
        // Written before the field existed.
        check(&running().in_phase(Phase::Stopping), None, 0, DesiredState::End(User));
    }

    #[test]
    fn stop_cause_does_not_depend_on_conditions() {
        for (kind, reason) in [
            (Type::Expiring, Reason::LifetimeRemaining),
            (Type::Expiring, Reason::LifetimeExceeded),
            (Type::Ready, Reason::Idle),
            (Type::Ready, Reason::QueueTimeout),
            (Type::Ready, Reason::Ended),
        ] {
            let condition = condition::new(kind, condition::Status::True, reason, "", None, to_api_precision(at(0)));
            let with = |server: DevServer| server.status(|status| status.conditions = vec![condition.clone()]);
            check(&with(stopping(StopCause::Expired)), None, 0, DesiredState::End(StopCause::Expired));
            check(&with(running().in_phase(Phase::Stopping)), None, 0, DesiredState::End(StopCause::User));
        }
    }

    #[test]
    fn only_server_never_admitted_is_cancelled_after_queue_timeout() {
        /// In the queue since second 0.
        fn waiting(change: impl FnOnce(&mut DevServer)) -> DevServer {
            let mut server = DevServer::test().in_phase(Phase::Queued).status(|status| {
                status.waiting_since = Some(to_api_precision(at(0)));
                status.admission = Some(Admission::default());
            });
            change(&mut server);
            server
        }
        const TIMEOUT: i64 = 48 * HOUR;
        let timed_out = DesiredState::End(StopCause::QueueTimeout);
        let plain = waiting(|_| {});
        check(&plain, None, TIMEOUT - 1, DesiredState::Run);
        check(&plain, None, TIMEOUT, timed_out);
        check(&DevServer::test().in_phase(Phase::Queued), None, 100 * HOUR, DesiredState::Run);

        let booked = waiting(|server| server.spec.scheduling.not_before = Some(to_api_precision(at(HOUR))));
        check(&booked, None, HOUR + TIMEOUT - 1, DesiredState::Run);
        check(&booked, None, HOUR + TIMEOUT, timed_out);

        let admitted = |admission: Admission| waiting(|_| {}).status(|status| status.admission = Some(admission));
        check(&admitted(Admission { run: 1, ..Admission::default() }), None, TIMEOUT, DesiredState::Run);
        let with_nodes = Admission { run: 1, nodes: vec!["node-1".into()], ..Admission::default() };
        check(&admitted(with_nodes), None, TIMEOUT, DesiredState::Run);
        check(
            &waiting(|_| {}).status(|status| status.started_at = Some(to_api_precision(at(0)))),
            None,
            TIMEOUT,
            DesiredState::Run,
        );

        check(&waiting(|_| {}).desired(Desired::Ended), None, TIMEOUT, DesiredState::End(StopCause::User));
        check(
            &waiting(|_| {}).desired(Desired::Hibernated),
            None,
            TIMEOUT,
            DesiredState::Hibernate(HibernationCause::User),
        );
        for (limit, expect) in [(Some(0), timed_out), (None, DesiredState::Run)] {
            let settings = Settings { queue_timeout: limit.map(std::time::Duration::from_secs), ..settings() };
            assert_eq!(desired(&plain, None, None, &settings, at(0)), expect);
        }
    }

    #[test]
    fn only_changed_wake_id_resumes_server() {
        use HibernationCause::{Drain, Idle};
        for cause in [Idle, Drain] {
            check(&hibernated(cause, None), None, 0, DesiredState::Hibernate(cause));
            check(&waking(hibernated(cause, Some("a")), "a"), None, 0, DesiredState::Hibernate(cause));
            check(&waking(hibernated(cause, Some("a")), "b"), None, 0, DesiredState::Run);
            check(&waking(hibernated(cause, None), "b"), None, 0, DesiredState::Run);
            check(&hibernated(cause, Some("a")), None, 0, DesiredState::Run);
            check(&waking(hibernated(cause, None).in_phase(Phase::Hibernating), "b"), None, 0, DesiredState::Run);
        }
        check(
            &waking(hibernated(Idle, None), "b").desired(Desired::Hibernated),
            None,
            0,
            DesiredState::Hibernate(HibernationCause::User),
        );
    }

    #[test]
    fn hibernate_request_applies_only_to_running_server() {
        use HibernationCause::{Drain, Idle, User};
        check(&running(), Some(Idle), 0, DesiredState::Hibernate(Idle));
        check(&running(), Some(Drain), 0, DesiredState::Hibernate(Drain));
        check(&running().desired(Desired::Hibernated), Some(Idle), 0, DesiredState::Hibernate(User));
        // The server was woken; the request is older than that.
        check(&waking(hibernated(Idle, None), "b"), Some(Idle), 0, DesiredState::Run);
        check(&hibernated(User, None), Some(Idle), 0, DesiredState::Run);
    }
}
