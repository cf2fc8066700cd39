//! A time as people say it, in their own time zone.

use std::str::FromStr;

use jiff::civil::{Date, Time, Weekday};
use jiff::{SignedDuration, Timestamp, Zoned};
use odc_api::duration::Duration;

const FORMS: &str = "write +2h, 15:00, 'tomorrow 9:00', 'tue 9:00', '2027-01-31 9:00' or 2027-01-31T09:00:00Z";

/// A time that has not passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment(pub Timestamp);

impl FromStr for Moment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        read(text, &Zoned::now()).map(Self)
    }
}

/// What is meant when it is said at this time.
fn read(text: &str, now: &Zoned) -> Result<Timestamp, String> {
    let then = meant(text.trim(), now)?;
    if then <= now.timestamp() {
        let then = then.to_zoned(now.time_zone().clone());
        return Err(format!("that was {}, and now it is {}", shown(&then), shown(now)));
    }
    // Kubernetes keeps whole seconds.
    Timestamp::from_second(then.as_second()).map_err(|error| error.to_string())
}

fn meant(text: &str, now: &Zoned) -> Result<Timestamp, String> {
    if let Some(length) = text.strip_prefix('+') {
        let length: Duration = length.parse().map_err(|_| format!("{text:?} is no time; {FORMS}"))?;
        let length = SignedDuration::try_from(length.as_std()).map_err(|error| error.to_string())?;
        return now.timestamp().checked_add(length).map_err(|error| error.to_string());
    }
    // With a zone of its own.
    if let Ok(then) = text.parse::<Timestamp>() {
        return Ok(then);
    }
    let unknown = || format!("{text:?} is no time; {FORMS}");
    let (day, time) = match text.split_once(' ').or_else(|| text.split_once('T')) {
        Some((day, time)) => (day, clock(time).ok_or_else(unknown)?),
        None => ("today", clock(text).ok_or_else(unknown)?),
    };
    let date = date(day, time, now).ok_or_else(unknown)?;
    let then = date.to_datetime(time).to_zoned(now.time_zone().clone()).map_err(|error| error.to_string())?;
    Ok(then.timestamp())
}

fn date(day: &str, time: Time, now: &Zoned) -> Option<Date> {
    let today = now.date();
    match day.to_lowercase().as_str() {
        "today" => Some(today),
        "tomorrow" => today.tomorrow().ok(),
        word => match weekday(word) {
            // The next one whose time has not passed, which may be today.
            Some(weekday) if weekday == today.weekday() && time > now.time() => Some(today),
            Some(weekday) => today.nth_weekday(1, weekday).ok(),
            None => word.parse().ok(),
        },
    }
}

fn weekday(word: &str) -> Option<Weekday> {
    let all = [
        ("monday", Weekday::Monday),
        ("tuesday", Weekday::Tuesday),
        ("wednesday", Weekday::Wednesday),
        ("thursday", Weekday::Thursday),
        ("friday", Weekday::Friday),
        ("saturday", Weekday::Saturday),
        ("sunday", Weekday::Sunday),
    ];
    let is_it = |name: &str| name == word || name.get(..3) == Some(word);
    all.into_iter().find(|(name, _)| is_it(name)).map(|(_, weekday)| weekday)
}

/// `9:00`, `09:00`, `09:00:30`.
fn clock(text: &str) -> Option<Time> {
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

fn shown(time: &Zoned) -> String {
    time.strftime("%a %d %b %Y %H:%M").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On a Monday, an hour east of Greenwich.
    fn said(text: &str) -> Result<String, String> {
        let now: Zoned = "2026-11-16T10:30:00+01:00[+01:00]".parse().unwrap();
        read(text, &now).map(|then| then.to_string())
    }

    #[test]
    fn times_are_those_of_the_person_who_says_them() {
        for (text, meant) in [
            ("+2h", "2026-11-16T11:30:00Z"),
            ("+1h30m", "2026-11-16T11:00:00Z"),
            ("15:00", "2026-11-16T14:00:00Z"),
            ("today 15:00", "2026-11-16T14:00:00Z"),
            ("tomorrow 9:00", "2026-11-17T08:00:00Z"),
            ("tue 9:00", "2026-11-17T08:00:00Z"),
            ("Tuesday 09:00", "2026-11-17T08:00:00Z"),
            // Today's nine has passed, today's eleven has not.
            ("mon 9:00", "2026-11-23T08:00:00Z"),
            ("mon 11:00", "2026-11-16T10:00:00Z"),
            ("2027-01-31 9:00", "2027-01-31T08:00:00Z"),
            ("2027-07-01T09:00", "2027-07-01T08:00:00Z"),
            ("2027-01-31T09:00:00Z", "2027-01-31T09:00:00Z"),
            ("2027-01-31T09:00:00+05:00", "2027-01-31T04:00:00Z"),
        ] {
            assert_eq!(said(text).as_deref(), Ok(meant), "{text}");
        }
    }

    #[test]
    fn what_has_passed_is_said_with_what_it_is_now() {
        let refused = said("9:00").unwrap_err();
        assert_eq!(refused, "that was Mon 16 Nov 2026 09:00, and now it is Mon 16 Nov 2026 10:30");
        assert!(said("2020-01-01T00:00:00Z").is_err() && said("+0s").is_err());
    }

    #[test]
    fn what_is_no_time_is_told_how_to_write_one() {
        for text in ["", "9", "soon", "25:00", "9:00 tue", "funday 9:00", "+", "2027-02-30 9:00", "9:0:0:0", "-2h"] {
            assert!(said(text).unwrap_err().contains("'tue 9:00'"), "{text}");
        }
    }
}
