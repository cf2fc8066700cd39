//! The start time of a booking, in the local time zone.

use std::str::FromStr;

use jiff::civil::{Date, Time, Weekday};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, Zoned};
use odc_api::duration::Duration;

use crate::clock;

const FORMATS: &str = "expected +2h, 15:00, 'tomorrow 9:00', 'tue 9:00', '2027-01-31 9:00' or 2027-01-31T09:00:00Z";

/// A time in the future.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StartTime(pub Timestamp);

impl FromStr for StartTime {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        parse_future(text, &clock::now().to_zoned(TimeZone::system())).map(Self)
    }
}

fn parse_future(text: &str, now: &Zoned) -> Result<Timestamp, String> {
    let start = parse(text.trim(), now)?;
    if start <= now.timestamp() {
        let start = start.to_zoned(now.time_zone().clone());
        return Err(format!("{} is in the past (now: {})", format(&start), format(now)));
    }
    // Kubernetes stores whole seconds.
    Timestamp::from_second(start.as_second()).map_err(|error| error.to_string())
}

fn parse(text: &str, now: &Zoned) -> Result<Timestamp, String> {
    let invalid = || format!("invalid time {text:?}: {FORMATS}");
    if let Some(delay) = text.strip_prefix('+') {
        let delay: Duration = delay.parse().map_err(|_| invalid())?;
        let delay = SignedDuration::try_from(delay.as_std()).map_err(|error| error.to_string())?;
        return now.timestamp().checked_add(delay).map_err(|error| error.to_string());
    }
    // RFC 3339 with its own offset.
    if let Ok(start) = text.parse::<Timestamp>() {
        return Ok(start);
    }
    let (day, time) = match text.split_once(' ').or_else(|| text.split_once('T')) {
        Some((day, time)) => (day, parse_clock(time).ok_or_else(invalid)?),
        None => ("today", parse_clock(text).ok_or_else(invalid)?),
    };
    let date = parse_date(day, time, now).ok_or_else(invalid)?;
    let start = date.to_datetime(time).to_zoned(now.time_zone().clone()).map_err(|error| error.to_string())?;
    Ok(start.timestamp())
}

fn parse_date(day: &str, time: Time, now: &Zoned) -> Option<Date> {
    let today = now.date();
    match day.to_lowercase().as_str() {
        "today" => Some(today),
        "tomorrow" => today.tomorrow().ok(),
        word => match parse_weekday(word) {
            // The next such weekday, which is today if the time is still to come.
            Some(weekday) if weekday == today.weekday() && time > now.time() => Some(today),
            Some(weekday) => today.nth_weekday(1, weekday).ok(),
            None => word.parse().ok(),
        },
    }
}

fn parse_weekday(word: &str) -> Option<Weekday> {
    let names = [
        ("monday", Weekday::Monday),
        ("tuesday", Weekday::Tuesday),
        ("wednesday", Weekday::Wednesday),
        ("thursday", Weekday::Thursday),
        ("friday", Weekday::Friday),
        ("saturday", Weekday::Saturday),
        ("sunday", Weekday::Sunday),
    ];
    let matches = |name: &str| name == word || name.get(..3) == Some(word);
    names.into_iter().find(|(name, _)| matches(name)).map(|(_, weekday)| weekday)
}

/// Parses `9:00`, `09:00` or `09:00:30`.
fn parse_clock(text: &str) -> Option<Time> {
    let mut parts = text.trim().split(':').map(|part| part.parse::<i8>().ok().filter(|_| part.len() <= 2));
    let (hour, minute) = (parts.next()??, parts.next()??);
    let second = match parts.next() {
        None => 0,
        Some(second) => second?,
    };
    if parts.next().is_some() {
        return None;
    }
    Time::new(hour, minute, second, 0).ok()
}

fn format(time: &Zoned) -> String {
    time.strftime("%a %d %b %Y %H:%M").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses on a Monday at 10:30, one hour east of UTC.
    fn parse_on_monday(text: &str) -> Result<String, String> {
        let now: Zoned = "2026-11-16T10:30:00+01:00[+01:00]".parse().unwrap();
        parse_future(text, &now).map(|start| start.to_string())
    }

    #[test]
    fn start_times_are_in_the_local_time_zone() {
        for (text, expected) in [
            ("+2h", "2026-11-16T11:30:00Z"),
            ("+1h30m", "2026-11-16T11:00:00Z"),
            ("15:00", "2026-11-16T14:00:00Z"),
            ("today 15:00", "2026-11-16T14:00:00Z"),
            ("tomorrow 9:00", "2026-11-17T08:00:00Z"),
            ("tue 9:00", "2026-11-17T08:00:00Z"),
            ("Tuesday 09:00", "2026-11-17T08:00:00Z"),
            // 9:00 today has passed, 11:00 has not.
            ("mon 9:00", "2026-11-23T08:00:00Z"),
            ("mon 11:00", "2026-11-16T10:00:00Z"),
            ("2027-01-31 9:00", "2027-01-31T08:00:00Z"),
            ("2027-07-01T09:00", "2027-07-01T08:00:00Z"),
            ("2027-01-31T09:00:00Z", "2027-01-31T09:00:00Z"),
            ("2027-01-31T09:00:00+05:00", "2027-01-31T04:00:00Z"),
        ] {
            assert_eq!(parse_on_monday(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn past_start_time_is_rejected_with_the_current_time() {
        let error = parse_on_monday("9:00").unwrap_err();
        assert_eq!(error, "Mon 16 Nov 2026 09:00 is in the past (now: Mon 16 Nov 2026 10:30)");
        assert!(parse_on_monday("2020-01-01T00:00:00Z").is_err() && parse_on_monday("+0s").is_err());
    }

    #[test]
    fn invalid_start_time_is_rejected_with_the_formats() {
        for text in ["", "9", "soon", "25:00", "9:00 tue", "funday 9:00", "+", "2027-02-30 9:00", "9:0:0:0", "-2h"] {
            assert!(parse_on_monday(text).unwrap_err().contains("'tue 9:00'"), "{text}");
        }
    }
}
