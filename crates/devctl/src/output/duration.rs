//! The format of durations and times: `45s`, `5m`, `1h20m`, `2d`.

use jiff::Timestamp;
use odc_api::duration::{Duration, format_seconds};

const MINUTE: i64 = 60;

/// Formats seconds; negative ones as `0s`.
pub fn format(seconds: i64) -> String {
    format_seconds(seconds.try_into().unwrap_or(0))
}

/// Formats a duration of the API.
pub fn format_duration(duration: Duration) -> String {
    format(seconds(duration))
}

/// Formats the time since `start`.
pub fn format_since(start: Timestamp, now: Timestamp) -> String {
    format(now.as_second() - start.as_second())
}

/// Formats the time until `end`.
pub fn format_until(end: Timestamp, now: Timestamp) -> String {
    format(end.as_second() - now.as_second())
}

/// Formats the time until a server expires: `in 1h20m`, or `now`.
pub fn format_until_expiry(end: Timestamp, now: Timestamp) -> String {
    if end <= now { "now".to_owned() } else { format!("in {}", format_until(end, now)) }
}

/// Formats an estimated wait: `about 1h20m`, or `less than 1m`.
pub fn format_estimate(end: Timestamp, now: Timestamp) -> String {
    let bound = format_bound(end, now);
    if end.as_second() - now.as_second() < MINUTE / 2 { format!("less than {bound}") } else { format!("about {bound}") }
}

/// Formats an upper bound of a wait, rounded to minutes and at least one: `1h20m`.
pub fn format_bound(end: Timestamp, now: Timestamp) -> String {
    let seconds = end.as_second() - now.as_second();
    let minutes = (seconds + MINUTE / 2) / MINUTE;
    format(minutes.max(1) * MINUTE)
}

/// Formats a time in the local time zone, with the date unless it is today.
pub fn format_clock(time: Timestamp, now: Timestamp) -> String {
    let zone = jiff::tz::TimeZone::system();
    let (time, today) = (time.to_zoned(zone.clone()), now.to_zoned(zone));
    let format = if time.date() == today.date() { "%H:%M" } else { "%a %d %b %H:%M" };
    time.strftime(format).to_string()
}

pub fn seconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_std().as_secs()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn negative_durations_are_zero() {
        for (seconds, text) in [(-5, "0s"), (59, "59s"), (4800, "1h20m")] {
            assert_eq!(format(seconds), text, "{seconds}");
        }
    }

    #[test]
    fn estimates_are_rounded_to_minutes() {
        let at = |second| Timestamp::from_second(second).unwrap();
        for (seconds, text) in [
            (10, "less than 1m"),
            (90, "about 2m"),
            (100, "about 2m"),
            (3600, "about 1h"),
            (4800, "about 1h20m"),
            (300_000, "about 3d11h"),
        ] {
            assert_eq!(format_estimate(at(seconds), at(0)), text, "{seconds}");
        }
    }
}
