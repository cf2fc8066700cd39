//! The lifetime of a server.
//!
//! All times are in whole seconds, as they are stored, so that a restarted operator computes the same values.

use std::time::Duration as StdDuration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use odc_api::duration::Duration;
use odc_api::time::to_api_precision;
use odc_api::v1alpha1::{DevServer, DevServerStatus, GrantedLifetime, Limits};

use crate::time;

/// The condition Expiring becomes True this long before the end.
pub const WARNING_PERIOD: StdDuration = StdDuration::from_secs(30 * 60);

/// Returns the lifetime granted for a request. Limits clamp the request; they never reject it, and never reduce what was
/// granted before.
///
/// Without `limits`, because the flavor was deleted, an extension is not granted until the flavor exists again.
pub fn grant(requested: Duration, limits: Option<&Limits>, before: Option<GrantedLifetime>) -> GrantedLifetime {
    let granted = match (before, limits) {
        (Some(before), _) if before.requested == requested => before.granted,
        (Some(before), _) if requested <= before.granted => requested,
        (Some(before), None) => return before,
        (Some(before), Some(limits)) => {
            let step = limits.extension.map_or(requested, |extension| sum(before.granted, extension));
            requested.min(step).min(limits.total.unwrap_or(Duration::MAX)).max(before.granted)
        }
        (None, limits) => {
            let limit = limits.and_then(|limits| limits.lifetime).unwrap_or(Duration::MAX);
            let total = limits.and_then(|limits| limits.total).unwrap_or(Duration::MAX);
            requested.min(limit).min(total)
        }
    };
    GrantedLifetime { requested, granted }
}

fn sum(one: Duration, two: Duration) -> Duration {
    Duration::from_std(one.as_std().saturating_add(two.as_std()))
}

/// The stage of a running server's lifetime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Until [`Self::ExpiringSoon`].
    Remaining(StdDuration),
    /// Until [`Self::Grace`].
    ExpiringSoon(StdDuration),
    /// Exceeded, but can still be extended for this time.
    Grace(StdDuration),
    Expired,
}

/// Returns when the lifetime ends of a server that has been running since `since`, with the spec and limits of now: an
/// extension takes effect immediately.
pub fn expiry(server: &DevServer, limits: Option<&Limits>, since: Timestamp) -> Timestamp {
    let status = server.status.as_ref();
    let lifetime = grant(server.spec.lifetime, limits, status.and_then(|status| status.lifetime));
    let accumulated = status.and_then(|status| status.accumulated_run_seconds).unwrap_or(0);
    expires_at(lifetime.granted, accumulated, since)
}

/// Fractions of a second are rounded up.
pub fn expires_at(granted: Duration, accumulated_run_seconds: i64, since: Timestamp) -> Timestamp {
    let granted = granted.as_std();
    let whole = granted.as_secs() + u64::from(granted.subsec_nanos() > 0);
    let left = i64::try_from(whole).unwrap_or(i64::MAX).saturating_sub(accumulated_run_seconds);
    time::from_second(since.as_second().saturating_add(left))
}

pub fn stage(expires_at: Timestamp, grace: StdDuration, now: Timestamp) -> Stage {
    let until = |at: Timestamp| Some(time::until(at, now)).filter(|left| !left.is_zero());
    if let Some(left) = until(time::sub(expires_at, WARNING_PERIOD)) {
        Stage::Remaining(left)
    } else if let Some(left) = until(expires_at) {
        Stage::ExpiringSoon(left)
    } else if let Some(left) = until(time::add(expires_at, grace)) {
        Stage::Grace(left)
    } else {
        Stage::Expired
    }
}

/// Starts or resumes the lifetime.
pub fn resume(status: &mut DevServerStatus, now: Timestamp) {
    status.started_at.get_or_insert_with(|| to_api_precision(now));
    status.running_since.get_or_insert_with(|| to_api_precision(now));
    let ran = *status.accumulated_run_seconds.get_or_insert(0);
    if let (Some(lifetime), Some(since)) = (status.lifetime, &status.running_since) {
        status.expires_at = Some(Time(expires_at(lifetime.granted, ran, since.0)));
    }
}

/// Pauses the lifetime and stores the accumulated run time.
pub fn pause(status: &mut DevServerStatus, now: Timestamp) {
    if let Some(since) = status.running_since.take() {
        // A clock that is set back must not reduce the accumulated time.
        let ran = to_api_precision(now).0.as_second().saturating_sub(since.0.as_second()).max(0);
        status.accumulated_run_seconds = Some(status.accumulated_run_seconds.unwrap_or(0).saturating_add(ran));
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

    fn granted(requested: &str, before: Option<(&str, &str)>) -> Duration {
        let before = before
            .map(|(requested, granted)| GrantedLifetime { requested: duration(requested), granted: duration(granted) });
        grant(duration(requested), Some(&limits()), before).granted
    }

    #[test]
    fn limits_clamp_request_and_keep_granted_lifetime() {
        for (requested, before, expect) in [
            ("8h", None, "8h"),
            ("100h", None, "24h"),
            // The same request again is not another extension.
            ("100h", Some(("100h", "24h")), "24h"),
            ("101h", Some(("100h", "24h")), "36h"),
            ("30h", Some(("24h", "24h")), "30h"),
            ("100h", Some(("24h", "40h")), "48h"),
            // Granted before the limits were lowered.
            ("100h", Some(("72h", "72h")), "72h"),
            ("1h", Some(("72h", "72h")), "1h"),
        ] {
            assert_eq!(granted(requested, before), duration(expect), "{requested} after {before:?}");
        }
    }

    #[test]
    fn extension_is_not_granted_without_flavor() {
        let before = GrantedLifetime { requested: duration("8h"), granted: duration("8h") };
        assert_eq!(grant(duration("9h"), None, Some(before)).granted, duration("8h"));
        assert_eq!(grant(duration("7h"), None, Some(before)).granted, duration("7h"));
    }

    #[test]
    fn lifetime_passes_through_stages() {
        let grace = StdDuration::from_secs(120);
        let end = at(10_000);
        assert_eq!(stage(end, grace, at(10_000 - 1_801)), Stage::Remaining(StdDuration::from_secs(1)));
        assert_eq!(stage(end, grace, at(10_000 - 1_800)), Stage::ExpiringSoon(StdDuration::from_secs(1_800)));
        assert_eq!(stage(end, grace, at(9_999)), Stage::ExpiringSoon(StdDuration::from_secs(1)));
        assert_eq!(stage(end, grace, at(10_000)), Stage::Grace(grace));
        assert_eq!(stage(end, grace, at(10_119)), Stage::Grace(StdDuration::from_secs(1)));
        assert_eq!(stage(end, grace, at(10_120)), Stage::Expired);
    }

    #[test]
    fn fractions_of_seconds_are_rounded_up() {
        assert_eq!(expires_at(duration("1500ms"), 0, at(0)), at(2));
        assert_eq!(expires_at(duration("1s"), 0, at(0)), at(1));
    }

    proptest! {
        /// However often it is paused, a server runs exactly as long as it was granted.
        #[test]
        fn pauses_do_not_change_total_run_time(stretches in prop::collection::vec((1..5_000_i64, 1..5_000_i64), 1..8), lifetime in 1..90_000_i64) {
            let lifetime = Duration::from_std(StdDuration::from_secs(u64::try_from(lifetime).unwrap()));
            let mut status = DevServerStatus { lifetime: Some(GrantedLifetime { requested: lifetime, granted: lifetime }), ..DevServerStatus::default() };
            let (mut now, mut ran) = (1_000_000_i64, 0_i64);
            for (runs, pauses) in stretches {
                resume(&mut status, at(now));
                let left = status.expires_at.as_ref().unwrap().0.as_second() - now;
                prop_assert_eq!(u64::try_from(left + ran).ok(), Some(lifetime.as_std().as_secs()));
                // Repeated, as after a restart of the operator.
                let same = status.clone();
                resume(&mut status, at(now + runs / 2));
                prop_assert_eq!(&same, &status);
                now += runs;
                ran += runs;
                pause(&mut status, at(now));
                prop_assert_eq!(status.accumulated_run_seconds, Some(ran));
                prop_assert!(status.expires_at.is_none());
                now += pauses;
            }
        }

        #[test]
        fn granted_lifetime_is_bounded_by_request_and_previous_grant(requested in 1..10_000_u64, granted in 1..10_000_u64, previous in 1..10_000_u64) {
            let span = |minutes: u64| Duration::from_std(StdDuration::from_secs(minutes * 60));
            let before = GrantedLifetime { requested: span(previous), granted: span(granted) };
            let after = grant(span(requested), Some(&limits()), Some(before));
            prop_assert!(after.granted <= span(requested).max(span(granted)));
            prop_assert_eq!(grant(span(requested), Some(&limits()), Some(after)), after);
        }
    }
}
