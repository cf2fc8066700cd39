use odc_control::IdleAction;
use proptest::prelude::*;

use super::*;

const START: Duration = Duration::from_secs(1000);

fn minutes(minutes: u64) -> Duration {
    Duration::from_secs(minutes * 60)
}

fn deadline() -> (tempfile::TempDir, Deadline) {
    let place = tempfile::tempdir().unwrap();
    let deadline = Deadline::begin(place.path());
    (place, deadline)
}

#[test]
fn each_warning_is_given_once() {
    let (_place, deadline) = deadline();
    assert_eq!(deadline.look(START), (None, false));
    deadline.set(Some(minutes(60)), None, START);
    let mut given = Vec::new();
    for second in 0..=3700 {
        let (holds, due) = deadline.look(START + Duration::from_secs(second));
        given.extend(holds.filter(|_| due).map(|warning| (second / 60, warning)));
    }
    assert_eq!(given, [(30, Warning::ThirtyMinutes), (45, Warning::FifteenMinutes), (55, Warning::FiveMinutes)]);
}

#[test]
fn a_late_look_gives_only_the_warning_that_holds() {
    let (_place, deadline) = deadline();
    deadline.set(Some(minutes(60)), None, START);
    assert_eq!(deadline.look(START + minutes(57)), (Some(Warning::FiveMinutes), true));
    assert_eq!(deadline.look(START + minutes(57)), (Some(Warning::FiveMinutes), false));
}

#[test]
fn an_extension_clears_and_warns_anew() {
    let (_place, deadline) = deadline();
    deadline.set(Some(minutes(4)), None, START);
    assert!(deadline.look(START).1);
    deadline.set(Some(minutes(120)), None, START);
    assert_eq!(deadline.look(START), (None, false));
    assert_eq!(deadline.look(START + minutes(90)), (Some(Warning::ThirtyMinutes), true));
    deadline.set(None, None, START + minutes(91));
    assert_eq!(deadline.look(START + minutes(1000)), (None, false));
}

#[test]
fn saying_the_same_again_changes_nothing() {
    let (_place, deadline) = deadline();
    deadline.set(Some(minutes(30)), None, START);
    assert!(deadline.look(START).1);
    let later = START + Duration::from_secs(10);
    deadline.set(Some(minutes(30).saturating_sub(Duration::from_secs(7))), None, later);
    assert_eq!(deadline.look(later), (Some(Warning::ThirtyMinutes), false));
    assert_eq!(deadline.remaining(later), Some(Duration::from_secs(1790)));
    deadline.set(Some(minutes(30) + Duration::from_secs(20)), None, later);
    assert_eq!(deadline.look(later), (None, false));
}

#[test]
fn a_new_serve_goes_on_counting_and_does_not_warn_twice() {
    let place = tempfile::tempdir().unwrap();
    let idle = Some(IdleTerms { limit_seconds: 1800, action: IdleAction::Hibernate });
    let first = Deadline::begin(place.path());
    first.set(Some(minutes(40)), idle, START);
    assert!(first.look(START + minutes(10)).1);
    let second = Deadline::begin(place.path());
    assert_eq!(second.idle(), idle);
    assert_eq!(second.remaining(START + minutes(11)), Some(minutes(29)));
    assert_eq!(second.look(START + minutes(11)), (Some(Warning::ThirtyMinutes), false));
}

#[test]
fn an_end_beyond_all_time_is_no_harm() {
    let (_place, deadline) = deadline();
    deadline.set(Some(Duration::from_secs(u64::MAX)), None, START);
    assert_eq!(deadline.look(START), (None, false));
    assert!(deadline.remaining(START).unwrap() > minutes(1_000_000));
}

proptest! {
    #[test]
    fn whatever_is_said_and_whenever_one_looks_no_warning_comes_twice_without_an_extension(
        remaining in 0u64..5000, looks in prop::collection::vec(0u64..600, 1..40),
    ) {
        let (_place, deadline) = deadline();
        deadline.set(Some(Duration::from_secs(remaining)), None, START);
        let mut now = START;
        let mut given = Vec::new();
        for look in looks {
            now += Duration::from_secs(look);
            let (holds, due) = deadline.look(now);
            given.extend(holds.filter(|_| due));
            prop_assert_eq!(holds, Warning::at(Duration::from_secs(remaining).saturating_sub(now.saturating_sub(START))));
        }
        let mut once = given.clone();
        once.dedup();
        prop_assert_eq!(&once, &given);
        prop_assert!(given.is_sorted_by(|earlier, later| earlier > later));
    }
}
