//! What a server wishes of the queue, and what its owner is told while nothing can be done.

use odc_api::time::stored;
use odc_api::v1alpha1::condition::Type;
use odc_api::v1alpha1::{Admission, Desired, DevServer, DevServerStatus, Hibernation, HibernationCause, Phase};

use super::fixtures::{ClaimState, Request, at, node, seen, settings};
use super::{Question, Wish, decide, wish};

#[track_caller]
fn check(given: &Request, pods_left: bool, expect: Wish) {
    given.check(|checked| assert_eq!(wish(&given.server, checked, pods_left, &settings(), at(1_000)), expect));
}

fn with(change: impl FnOnce(&mut DevServerStatus)) -> Request {
    Request::of(DevServer::test().status(change))
}

fn granted(status: &mut DevServerStatus) {
    status.admission.get_or_insert_default().nodes = vec!["node-1".into()];
}

#[test]
fn who_wants_to_run_and_can_competes() {
    check(&Request::of(DevServer::test()), false, Wish::Run);
    check(&with(|status| status.phase = Some(Phase::Queued)), false, Wish::Run);
    check(&with(|status| status.admission = Some(Admission::default())), false, Wish::Run);
}

#[test]
fn who_has_a_grant_keeps_it_whatever_is_wrong_with_the_request() {
    check(&with(granted), true, Wish::Run);
    check(&with(granted), false, Wish::Run);
    let mut refused = with(granted);
    refused.flavors.clear();
    check(&refused, true, Wish::Run);
    check(&with(granted).claim(|state| state.claim = None), true, Wish::Run);
}

#[test]
fn who_has_pods_left_or_something_missing_waits() {
    check(&Request::of(DevServer::test()), true, Wish::Later(None));
    let mut refused = Request::of(DevServer::test());
    refused.flavors.clear();
    check(&refused, false, Wish::Later(None));
    let without_claim: fn(&mut ClaimState) = |state| state.claim = None;
    check(&Request::of(DevServer::test()).claim(without_claim), false, Wish::Later(None));
}

#[test]
fn who_booked_a_time_waits_for_it() {
    let booked = |second| Request::test(|server| server.spec.scheduling.not_before = Some(stored(at(second))));
    check(&booked(1_001), false, Wish::Later(Some(at(1_001))));
    check(&booked(1_000), false, Wish::Run);
    let mut running = booked(9_999);
    running.server = running.server.clone().status(granted);
    check(&running, true, Wish::Run);
}

#[test]
fn who_ends_or_sleeps_needs_nothing() {
    for desired in [Desired::Hibernated, Desired::Ended] {
        check(&Request::of(DevServer::test().status(granted).desired(desired)), true, Wish::Rest);
    }
    for phase in Phase::ALL.iter().filter(|phase| phase.terminal()) {
        check(&Request::of(DevServer::test().status(granted).in_phase(*phase)), true, Wish::Rest);
    }
    check(&Request::of(DevServer::test().status(granted).in_phase(Phase::Stopping)), true, Wish::Rest);
    let asleep = Hibernation { since: stored(at(0)), by: HibernationCause::Idle, wake_seen: None };
    check(&with(|status| status.hibernation = Some(asleep)), false, Wish::Rest);
    let mut deleted = with(granted);
    deleted.server.metadata.deletion_timestamp = Some(stored(at(0)));
    check(&deleted, true, Wish::Rest);
}

#[test]
fn what_keeps_it_from_starting_is_told_while_it_is_tried_again() {
    let starting = with(|status| {
        granted(status);
        status.phase = Some(Phase::Starting);
    });
    let told = |obstacle: Option<&str>| {
        starting.check(|checked| {
            let nodes = [node("node-1")];
            let seen = super::Seen { obstacle: obstacle.map(str::to_owned), ..seen(&[], &nodes) };
            let plan = decide(&starting.server, checked, &seen, &settings(), at(1_000));
            assert_eq!(plan.ask, Some(Question::Keys));
            let conditions = plan.status.map(|status| status.conditions).unwrap_or_default();
            let ready = conditions.into_iter().find(|condition| condition.kind == Type::Ready);
            ready.map(|ready| (ready.reason.to_string(), ready.message.to_string()))
        })
    };
    assert_eq!(told(None), None);
    let said = "Secret server-1-keys cannot be had".to_owned();
    assert_eq!(told(Some(&said)), Some(("Incomplete".to_owned(), said)));
}

#[test]
fn who_is_about_to_be_admitted_is_not_told_to_wait_unless_it_takes_long() {
    let waiting = Request::of(DevServer::test());
    let told = |admitting: bool, waited: i64| {
        waiting.check(|checked| {
            let seen = super::Seen { admitting, held: Some((Phase::Queued, at(1_000 - waited))), ..seen(&[], &[]) };
            let plan = decide(&waiting.server, checked, &seen, &settings(), at(1_000));
            assert_eq!(plan.phase, Some(Phase::Queued));
            plan.status.is_some()
        })
    };
    assert!(!told(false, 0));
    assert!(told(false, 1));
    assert!(!told(true, 9));
    assert!(told(true, 10));
}

#[test]
fn who_cannot_be_granted_anything_is_told_why() {
    let waiting = with(|status| status.phase = Some(Phase::Queued));
    let said = "A rule of the cluster forbids it.".to_owned();
    let mut booked = Request::of(DevServer::test());
    booked.server.spec.scheduling.not_before = Some(stored(at(5_000)));
    for (request, news) in [(waiting, false), (booked, true)] {
        let plan = |refused: Option<String>| {
            request.check(|checked| {
                let seen = super::Seen { refused, held: Some((Phase::Queued, at(900))), ..seen(&[], &[]) };
                decide(&request.server, checked, &seen, &settings(), at(1_000))
            })
        };
        let refused = plan(Some(said.clone()));
        let conditions = refused.status.map(|status| status.conditions).unwrap_or_default();
        let admitted = conditions.iter().find(|condition| condition.kind == Type::Admitted).unwrap();
        assert_eq!((admitted.status.as_str(), admitted.reason.as_str()), ("False", "Incomplete"));
        assert_eq!(admitted.message.as_str(), said);
        // The queue has said it already.
        assert_eq!((refused.events, plan(None).events.len()), (vec![], usize::from(news)));
    }
}

#[test]
fn a_secret_of_an_earlier_namesake_is_looked_at_again_soon_and_then_more_rarely() {
    let starting = with(|status| {
        granted(status);
        status.admission.get_or_insert_default().granted_at = Some(stored(at(900)));
        status.phase = Some(Phase::Starting);
    });
    let looks = |checked: i64, now: i64| {
        starting.check(|valid| {
            let nodes = [node("node-1")];
            let secret = super::SecretSeen::Foreign;
            let seen = super::Seen { secret, secret_checked: Some(at(checked)), ..seen(&[], &nodes) };
            decide(&starting.server, valid, &seen, &settings(), at(now)).ask == Some(Question::Secret)
        })
    };
    assert!(!looks(900, 900));
    assert!(looks(900, 901));
    assert!(!looks(910, 919));
    assert!(looks(910, 920));
    assert!(!looks(1_000, 1_059));
    assert!(looks(1_000, 1_060));
}
