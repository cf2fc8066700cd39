//! Queue intent of a server, and its status while it waits.

use k8s_openapi::jiff::Timestamp;
use odc_api::time::to_api_precision;
use odc_api::v1alpha1::condition::{Reason, Type};
use odc_api::v1alpha1::{Admission, Desired, DevServer, DevServerStatus, Hibernation, HibernationCause, Phase};

use super::fixtures::{ClaimState, Request, at, node, observed, settings};
use super::{Query, QueueIntent, QueueRequest, SecretState, SoftState, queue_intent, reconcile};

#[track_caller]
fn check(given: &Request, has_pods: bool, expect: QueueIntent) {
    check_until(given, has_pods, (expect, None));
}

#[track_caller]
fn check_until(given: &Request, has_pods: bool, expect: (QueueIntent, Option<Timestamp>)) {
    let intent = given
        .check(|checked| queue_intent(&given.server, QueueRequest::new(checked), || has_pods, &settings(), at(1_000)));
    assert_eq!(intent, expect);
}

fn with(change: impl FnOnce(&mut DevServerStatus)) -> Request {
    Request::new(DevServer::test().status(change))
}

fn admit(status: &mut DevServerStatus) {
    status.admission.get_or_insert_default().nodes = vec!["node-1".into()];
}

#[test]
fn valid_server_is_queued() {
    check(&Request::new(DevServer::test()), false, QueueIntent::Run);
    check(&with(|status| status.phase = Some(Phase::Queued)), false, QueueIntent::Run);
    check(&with(|status| status.admission = Some(Admission::default())), false, QueueIntent::Run);
}

#[test]
fn admitted_server_keeps_running_if_request_becomes_invalid() {
    check(&with(admit), true, QueueIntent::Run);
    check(&with(admit), false, QueueIntent::Run);
    let mut invalid = with(admit);
    invalid.flavors.clear();
    check(&invalid, true, QueueIntent::Run);
    check(&with(admit).claim(|state| state.claim = None), true, QueueIntent::Run);
}

#[test]
fn server_with_old_pods_or_invalid_request_is_postponed() {
    check(&Request::new(DevServer::test()), true, QueueIntent::Postponed);
    let mut invalid = Request::new(DevServer::test());
    invalid.flavors.clear();
    check(&invalid, false, QueueIntent::Postponed);
    let without_claim: fn(&mut ClaimState) = |state| state.claim = None;
    check(&Request::new(DevServer::test()).claim(without_claim), false, QueueIntent::Postponed);
}

#[test]
fn booked_server_is_queued_at_start_time() {
    let booked =
        |second| Request::test(|server| server.spec.scheduling.not_before = Some(to_api_precision(at(second))));
    check_until(&booked(1_001), false, (QueueIntent::Postponed, Some(at(1_001))));
    check(&booked(1_000), false, QueueIntent::Run);
    let mut running = booked(9_999);
    running.server = running.server.clone().status(admit);
    check(&running, true, QueueIntent::Run);
}

#[test]
fn ended_or_hibernated_server_is_not_queued() {
    for desired in [Desired::Hibernated, Desired::Ended] {
        check(&Request::new(DevServer::test().status(admit).desired(desired)), true, QueueIntent::Stopped);
    }
    for phase in Phase::ALL.iter().filter(|phase| phase.is_terminal()) {
        check(&Request::new(DevServer::test().status(admit).in_phase(*phase)), true, QueueIntent::Stopped);
    }
    check(&Request::new(DevServer::test().status(admit).in_phase(Phase::Stopping)), true, QueueIntent::Stopped);
    let hibernation =
        Hibernation { since: to_api_precision(at(0)), cause: HibernationCause::Idle, observed_wake: None };
    check(&with(|status| status.hibernation = Some(hibernation)), false, QueueIntent::Stopped);
    let mut deleted = with(admit);
    deleted.server.metadata.deletion_timestamp = Some(to_api_precision(at(0)));
    check(&deleted, true, QueueIntent::Stopped);
}

#[test]
fn recurring_error_is_reported_while_retried() {
    let starting = with(|status| {
        admit(status);
        status.phase = Some(Phase::Starting);
    });
    let reported = |error: Option<&str>| {
        starting.check(|checked| {
            let nodes = [node("node-1")];
            let recurring_error = error.map(str::to_owned);
            let soft_state = SoftState { secret: SecretState::Foreign, recurring_error, ..SoftState::default() };
            let plan =
                reconcile(&starting.server, checked, &observed(&[], &nodes), &soft_state, &settings(), at(1_000));
            assert_eq!(plan.query, Some(Query::Secret));
            let conditions = plan.status.map(|status| status.conditions).unwrap_or_default();
            let ready = conditions.into_iter().find(|condition| condition.kind == Type::Ready);
            ready.map(|ready| (ready.reason.to_string(), ready.message.to_string()))
        })
    };
    assert_eq!(reported(None), None);
    let error = "Failed to read Secret server-1-keys-uid-serv".to_owned();
    assert_eq!(reported(Some(&error)), Some(("WriteFailed".to_owned(), error)));
}

#[test]
fn queued_phase_is_deferred_longer_until_scheduler_reports_server_as_pending() {
    let is_written = |is_pending: bool, waited: i64| {
        let queued = with(|status| {
            let reason = is_pending.then(|| Reason::InsufficientCapacity.into());
            let message = is_pending.then(|| "No node has free capacity.".into());
            status.admission = Some(Admission { reason, message, ..Admission::default() });
        });
        queued.check(|checked| {
            let soft_state =
                SoftState { deferred_phase: Some((Phase::Queued, at(1_000 - waited))), ..SoftState::default() };
            let plan = reconcile(&queued.server, checked, &observed(&[], &[]), &soft_state, &settings(), at(1_000));
            assert_eq!(plan.phase, Some(Phase::Queued));
            plan.status.is_some()
        })
    };
    assert!(!is_written(true, 0));
    assert!(is_written(true, 1));
    assert!(!is_written(false, 9));
    assert!(is_written(false, 10));
}

#[test]
fn rejected_admission_is_reported() {
    let waiting = with(|status| status.phase = Some(Phase::Queued));
    let message = "Denied by an admission webhook.".to_owned();
    let mut booked = Request::new(DevServer::test());
    booked.server.spec.scheduling.not_before = Some(to_api_precision(at(5_000)));
    for (request, has_event) in [(waiting, false), (booked, true)] {
        let plan = |rejection: Option<String>| {
            request.check(|checked| {
                let deferred_phase = Some((Phase::Queued, at(900)));
                let soft_state = SoftState { deferred_phase, rejection, ..SoftState::default() };
                reconcile(&request.server, checked, &observed(&[], &[]), &soft_state, &settings(), at(1_000))
            })
        };
        let rejected = plan(Some(message.clone()));
        let conditions = rejected.status.map(|status| status.conditions).unwrap_or_default();
        let admitted = conditions.iter().find(|condition| condition.kind == Type::Admitted).unwrap();
        assert_eq!((admitted.status.as_str(), admitted.reason.as_str()), ("False", "WriteFailed"));
        assert_eq!(admitted.message.as_str(), message);
        // The scheduler has published the event already.
        assert_eq!((rejected.events, plan(None).events.len()), (vec![], usize::from(has_event)));
    }
}

#[test]
fn foreign_secret_is_checked_every_ten_seconds() {
    let starting = with(|status| {
        admit(status);
        status.admission.get_or_insert_default().admitted_at = Some(to_api_precision(at(900)));
        status.phase = Some(Phase::Starting);
    });
    let is_checked = |checked: i64, now: i64| {
        starting.check(|valid| {
            let nodes = [node("node-1")];
            let (secret, secret_checked_at) = (SecretState::Foreign, Some(at(checked)));
            let soft_state = SoftState { secret, secret_checked_at, ..SoftState::default() };
            let plan = reconcile(&starting.server, valid, &observed(&[], &nodes), &soft_state, &settings(), at(now));
            plan.query == Some(Query::Secret)
        })
    };
    assert!(!is_checked(900, 909));
    assert!(is_checked(900, 910));
    assert!(!is_checked(1_000, 1_009));
    assert!(is_checked(1_000, 1_010));
}
