//! Times and durations as people say them.

use jiff::Timestamp;
use odc_api::duration::Duration;

/// Two units at most, the second only where it matters: `45s`, `12m`, `2h05m`, `3d4h`.
pub fn span(seconds: i64) -> String {
    let seconds = seconds.max(0);
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    match seconds {
        0..=119 => format!("{seconds}s"),
        120..=7199 => format!("{minutes}m"),
        7200..=172_799 if minutes % 60 == 0 => format!("{hours}h"),
        7200..=172_799 => format!("{hours}h{:02}m", minutes % 60),
        _ if hours % 24 == 0 => format!("{days}d"),
        _ => format!("{days}d{}h", hours % 24),
    }
}

pub fn since(then: Timestamp, now: Timestamp) -> String {
    span(now.as_second() - then.as_second())
}

pub fn until(then: Timestamp, now: Timestamp) -> String {
    span(then.as_second() - now.as_second())
}

/// The end of a server: how long it still has.
pub fn left(end: Timestamp, now: Timestamp) -> String {
    if end <= now { "now".to_owned() } else { format!("in {}", until(end, now)) }
}

/// A time in the person's own zone, with the day only when it is another one.
pub fn clock(then: Timestamp, now: Timestamp) -> String {
    let zone = jiff::tz::TimeZone::system();
    let (then, today) = (then.to_zoned(zone.clone()), now.to_zoned(zone));
    let format = if then.date() == today.date() { "%H:%M" } else { "%a %d %b %H:%M" };
    then.strftime(format).to_string()
}

/// `about 1 h 20 m`, the way waits are promised.
pub fn about(seconds: i64) -> String {
    let minutes = (seconds.max(0) + 30) / 60;
    match (minutes / 60, minutes % 60) {
        (0, 0) => "less than a minute".to_owned(),
        (0, minutes) => format!("about {minutes} m"),
        (hours, 0) => format!("about {hours} h"),
        (hours, minutes) if hours < 48 => format!("about {hours} h {minutes} m"),
        (hours, _) => format!("about {} days", hours / 24),
    }
}

/// What is at most so long: `3 h`, `a minute`.
pub fn within(seconds: i64) -> String {
    let text = about(seconds);
    text.strip_prefix("about ").map_or_else(|| "a minute".to_owned(), str::to_owned)
}

pub fn whole_seconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_std().as_secs()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_short() {
        for (seconds, text) in [
            (-5, "0s"),
            (59, "59s"),
            (119, "119s"),
            (120, "2m"),
            (7199, "119m"),
            (7200, "2h"),
            (7500, "2h05m"),
            (172_799, "47h59m"),
            (172_800, "2d"),
            (190_000, "2d4h"),
        ] {
            assert_eq!(span(seconds), text, "{seconds}");
        }
    }

    #[test]
    fn waits_are_rounded() {
        for (seconds, text) in [
            (10, "less than a minute"),
            (90, "about 2 m"),
            (3600, "about 1 h"),
            (4800, "about 1 h 20 m"),
            (300_000, "about 3 days"),
        ] {
            assert_eq!(about(seconds), text, "{seconds}");
        }
        assert_eq!((within(10), within(10_800)), ("a minute".to_owned(), "3 h".to_owned()));
    }
}
