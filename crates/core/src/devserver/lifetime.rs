//! How long a server may run and when its time is over.
//!
//! All in whole seconds of the time the API server keeps, as stored: a restart of the operator computes the same.

use std::time::Duration as Span;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use odc_api::duration::Duration;
use odc_api::time::stored;
use odc_api::v1alpha1::{DevServerStatus, GrantedLifetime, Limits};

/// How long before the end the owner is warned.
pub const WARNING: Span = Span::from_secs(30 * 60);

/// What the owner gets for what they asked. Limits clamp; they never refuse, and take nothing back.
///
/// `limits` is none when the flavor is gone: then nothing is added, and the wish is answered when it is back.
pub fn grant(asked: Duration, limits: Option<&Limits>, before: Option<GrantedLifetime>) -> GrantedLifetime {
    let granted = match (before, limits) {
        (Some(before), _) if before.asked == asked => before.granted,
        (Some(before), _) if asked <= before.granted => asked,
        (Some(before), None) => return before,
        (Some(before), Some(limits)) => {
            let step = limits.extension.map_or(asked, |extension| sum(before.granted, extension));
            asked.min(step).min(limits.total.unwrap_or(Duration::MAX)).max(before.granted)
        }
        (None, limits) => {
            let limit = limits.and_then(|limits| limits.lifetime).unwrap_or(Duration::MAX);
            let total = limits.and_then(|limits| limits.total).unwrap_or(Duration::MAX);
            asked.min(limit).min(total)
        }
    };
    GrantedLifetime { asked, granted }
}

fn sum(one: Duration, two: Duration) -> Duration {
    Duration::from_std(one.as_std().saturating_add(two.as_std()))
}

/// Where a running server is in its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Look again after this long.
    TimeLeft(Span),
    EndsSoon(Span),
    /// Used up; it may still be extended for this long.
    Grace(Span),
    Over,
}

/// When the time of a server ends that has run this long before, and runs since then. Never earlier than the second in
/// which the last bit of it is used up.
pub fn expires_at(granted: Duration, ran_seconds: i64, since: Timestamp) -> Timestamp {
    let granted = granted.as_std();
    let whole = granted.as_secs() + u64::from(granted.subsec_nanos() > 0);
    let left = i64::try_from(whole).unwrap_or(i64::MAX).saturating_sub(ran_seconds);
    Timestamp::from_second(since.as_second().saturating_add(left)).unwrap_or(Timestamp::MAX)
}

pub fn stage(expires_at: Timestamp, grace: Span, now: Timestamp) -> Stage {
    let until = |at: Timestamp| Span::try_from(now.duration_until(at)).ok().filter(|left| !left.is_zero());
    let later = |by: Span| expires_at.saturating_add(by).unwrap_or(Timestamp::MAX);
    let warning = expires_at.saturating_sub(WARNING).unwrap_or(Timestamp::MIN);
    if let Some(left) = until(warning) {
        Stage::TimeLeft(left)
    } else if let Some(left) = until(expires_at) {
        Stage::EndsSoon(left)
    } else if let Some(left) = until(later(grace)) {
        Stage::Grace(left)
    } else {
        Stage::Over
    }
}

/// Lets the clock run, from now if it stands still.
pub fn run(status: &mut DevServerStatus, now: Timestamp) {
    status.started_at.get_or_insert_with(|| stored(now));
    status.running_since.get_or_insert_with(|| stored(now));
    let ran = *status.ran_seconds.get_or_insert(0);
    if let (Some(lifetime), Some(since)) = (status.lifetime, &status.running_since) {
        status.expires_at = Some(Time(expires_at(lifetime.granted, ran, since.0)));
    }
}

/// Stops the clock and remembers what it showed.
pub fn pause(status: &mut DevServerStatus, now: Timestamp) {
    if let Some(since) = status.running_since.take() {
        // A clock set back must not give time away.
        let ran = stored(now).0.as_second().saturating_sub(since.0.as_second()).max(0);
        status.ran_seconds = Some(status.ran_seconds.unwrap_or(0).saturating_add(ran));
    }
    status.expires_at = None;
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn duration(text: &str) -> Duration {
        text.parse().unwrap()
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn limits() -> Limits {
        Limits { lifetime: Some(duration("24h")), extension: Some(duration("12h")), total: Some(duration("48h")) }
    }

    fn granted(asked: &str, before: Option<(&str, &str)>) -> Duration {
        let before =
            before.map(|(asked, granted)| GrantedLifetime { asked: duration(asked), granted: duration(granted) });
        grant(duration(asked), Some(&limits()), before).granted
    }

    #[test]
    fn limits_clamp_and_take_nothing_back() {
        for (asked, before, expect) in [
            ("8h", None, "8h"),
            ("100h", None, "24h"),
            // The same wish again is no new extension.
            ("100h", Some(("100h", "24h")), "24h"),
            ("101h", Some(("100h", "24h")), "36h"),
            ("30h", Some(("24h", "24h")), "30h"),
            ("100h", Some(("24h", "40h")), "48h"),
            // Had more than the total before the limits were lowered.
            ("100h", Some(("72h", "72h")), "72h"),
            ("1h", Some(("72h", "72h")), "1h"),
        ] {
            assert_eq!(granted(asked, before), duration(expect), "{asked} after {before:?}");
        }
    }

    #[test]
    fn without_a_flavor_nothing_is_added() {
        let before = GrantedLifetime { asked: duration("8h"), granted: duration("8h") };
        assert_eq!(grant(duration("9h"), None, Some(before)).granted, duration("8h"));
        assert_eq!(grant(duration("7h"), None, Some(before)).granted, duration("7h"));
    }

    #[test]
    fn the_time_passes_in_stages() {
        let grace = Span::from_secs(120);
        let end = at(10_000);
        assert_eq!(stage(end, grace, at(10_000 - 1_801)), Stage::TimeLeft(Span::from_secs(1)));
        assert_eq!(stage(end, grace, at(10_000 - 1_800)), Stage::EndsSoon(Span::from_secs(1_800)));
        assert_eq!(stage(end, grace, at(9_999)), Stage::EndsSoon(Span::from_secs(1)));
        assert_eq!(stage(end, grace, at(10_000)), Stage::Grace(grace));
        assert_eq!(stage(end, grace, at(10_119)), Stage::Grace(Span::from_secs(1)));
        assert_eq!(stage(end, grace, at(10_120)), Stage::Over);
    }

    #[test]
    fn fractions_of_a_second_are_the_owners() {
        assert_eq!(expires_at(duration("1500ms"), 0, at(0)), at(2));
        assert_eq!(expires_at(duration("1s"), 0, at(0)), at(1));
    }

    proptest! {
        /// However often it sleeps and wakes, a server runs exactly as long as it was granted.
        #[test]
        fn pauses_change_nothing(stretches in prop::collection::vec((1..5_000_i64, 1..5_000_i64), 1..8), lifetime in 1..90_000_i64) {
            let lifetime = Duration::from_std(Span::from_secs(u64::try_from(lifetime).unwrap()));
            let mut status = DevServerStatus { lifetime: Some(GrantedLifetime { asked: lifetime, granted: lifetime }), ..DevServerStatus::default() };
            let (mut now, mut ran) = (1_000_000_i64, 0_i64);
            for (runs, sleeps) in stretches {
                run(&mut status, at(now));
                let left = status.expires_at.as_ref().unwrap().0.as_second() - now;
                prop_assert_eq!(u64::try_from(left + ran).ok(), Some(lifetime.as_std().as_secs()));
                // Once more, as after a restart.
                let same = status.clone();
                run(&mut status, at(now + runs / 2));
                prop_assert_eq!(&same, &status);
                now += runs;
                ran += runs;
                pause(&mut status, at(now));
                prop_assert_eq!(status.ran_seconds, Some(ran));
                prop_assert!(status.expires_at.is_none());
                now += sleeps;
            }
        }

        #[test]
        fn what_was_granted_is_within_what_was_asked_or_had(asked in 1..10_000_u64, had in 1..10_000_u64, was in 1..10_000_u64) {
            let span = |minutes: u64| Duration::from_std(Span::from_secs(minutes * 60));
            let before = GrantedLifetime { asked: span(was), granted: span(had) };
            let after = grant(span(asked), Some(&limits()), Some(before));
            prop_assert!(after.granted <= span(asked).max(span(had)));
            prop_assert_eq!(grant(span(asked), Some(&limits()), Some(after)), after);
        }
    }
}
