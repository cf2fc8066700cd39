use odc_control::IdleAction;
use proptest::prelude::*;

use super::*;

const START: Duration = Duration::from_secs(1000);

fn minutes(minutes: u64) -> Duration {
    Duration::from_secs(minutes * 60)
}

fn deadline() -> (tempfile::TempDir, Deadline) {
    let dir = tempfile::tempdir().unwrap();
    let deadline = Deadline::load(dir.path());
    (dir, deadline)
}

#[test]
fn each_warning_is_given_once() {
    let (_dir, deadline) = deadline();
    assert_eq!(deadline.poll_warning(START), (None, false));
    deadline.set(Some(minutes(60)), None, START);
    let mut given = Vec::new();
    for second in 0..=3700 {
        let (warning, is_due) = deadline.poll_warning(START + Duration::from_secs(second));
        given.extend(warning.filter(|_| is_due).map(|warning| (second / 60, warning)));
    }
    assert_eq!(
        given,
        [(30, ExpiryWarning::ThirtyMinutes), (45, ExpiryWarning::FifteenMinutes), (55, ExpiryWarning::FiveMinutes)]
    );
}

#[test]
fn late_poll_gives_only_the_current_warning() {
    let (_dir, deadline) = deadline();
    deadline.set(Some(minutes(60)), None, START);
    assert_eq!(deadline.poll_warning(START + minutes(57)), (Some(ExpiryWarning::FiveMinutes), true));
    assert_eq!(deadline.poll_warning(START + minutes(57)), (Some(ExpiryWarning::FiveMinutes), false));
}

#[test]
fn extension_clears_warnings_and_warns_again() {
    let (_dir, deadline) = deadline();
    deadline.set(Some(minutes(4)), None, START);
    assert!(deadline.poll_warning(START).1);
    deadline.set(Some(minutes(120)), None, START);
    assert_eq!(deadline.poll_warning(START), (None, false));
    assert_eq!(deadline.poll_warning(START + minutes(90)), (Some(ExpiryWarning::ThirtyMinutes), true));
    deadline.set(None, None, START + minutes(91));
    assert_eq!(deadline.poll_warning(START + minutes(1000)), (None, false));
}

#[test]
fn small_drift_is_ignored() {
    let (_dir, deadline) = deadline();
    deadline.set(Some(minutes(30)), None, START);
    assert!(deadline.poll_warning(START).1);
    let later = START + Duration::from_secs(10);
    deadline.set(Some(minutes(30).saturating_sub(Duration::from_secs(7))), None, later);
    assert_eq!(deadline.poll_warning(later), (Some(ExpiryWarning::ThirtyMinutes), false));
    assert_eq!(deadline.remaining(later), Some(Duration::from_secs(1790)));
    deadline.set(Some(minutes(30) + Duration::from_secs(20)), None, later);
    assert_eq!(deadline.poll_warning(later), (None, false));
}

#[test]
fn restarted_serve_continues_and_does_not_warn_twice() {
    let dir = tempfile::tempdir().unwrap();
    let idle = Some(IdlePolicy { limit_seconds: 1800, action: IdleAction::Hibernate });
    let first = Deadline::load(dir.path());
    first.set(Some(minutes(40)), idle, START);
    assert!(first.poll_warning(START + minutes(10)).1);
    let second = Deadline::load(dir.path());
    assert_eq!(second.idle_policy(), idle);
    assert_eq!(second.remaining(START + minutes(11)), Some(minutes(29)));
    assert_eq!(second.poll_warning(START + minutes(11)), (Some(ExpiryWarning::ThirtyMinutes), false));
}

#[test]
fn overflowing_deadline_is_saturated() {
    let (_dir, deadline) = deadline();
    deadline.set(Some(Duration::from_secs(u64::MAX)), None, START);
    assert_eq!(deadline.poll_warning(START), (None, false));
    assert!(deadline.remaining(START).unwrap() > minutes(1_000_000));
}

proptest! {
    #[test]
    fn no_warning_is_given_twice_without_an_extension(
        remaining in 0u64..5000, intervals in prop::collection::vec(0u64..600, 1..40),
    ) {
        let (_dir, deadline) = deadline();
        deadline.set(Some(Duration::from_secs(remaining)), None, START);
        let mut now = START;
        let mut given = Vec::new();
        for interval in intervals {
            now += Duration::from_secs(interval);
            let (warning, is_due) = deadline.poll_warning(now);
            given.extend(warning.filter(|_| is_due));
            prop_assert_eq!(warning, ExpiryWarning::for_remaining(Duration::from_secs(remaining).saturating_sub(now.saturating_sub(START))));
        }
        let mut once = given.clone();
        once.dedup();
        prop_assert_eq!(&once, &given);
        prop_assert!(given.is_sorted_by(|earlier, later| earlier > later));
    }
}
