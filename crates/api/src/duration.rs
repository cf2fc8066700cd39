//! Durations in Go's format (`8h`, `1h30m`), in whole milliseconds and at most one year.
//!
//! kube's type uses floating point and panics on overflow, which is not acceptable for deadlines. Values that are finer
//! than a millisecond or longer than a year are rejected, not rounded.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::rule;

/// A subset of Go's format: integers, each unit at most once, the largest first.
const PATTERN: &str = "^([0-9]{1,5}h)?([0-9]{1,6}m)?([0-9]{1,8}s)?([0-9]{1,9}ms)?$";

const SECOND: u64 = 1_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Duration {
    milliseconds: u64,
}

impl Duration {
    pub const ZERO: Self = Self { milliseconds: 0 };
    /// One year.
    pub const MAX: Self = Self { milliseconds: 8760 * HOUR };

    pub const fn hours(hours: u8) -> Self {
        Self { milliseconds: hours as u64 * HOUR }
    }

    pub const fn minutes(minutes: u16) -> Self {
        Self { milliseconds: minutes as u64 * MINUTE }
    }

    pub const fn seconds(seconds: u16) -> Self {
        Self { milliseconds: seconds as u64 * SECOND }
    }

    /// Truncates to whole milliseconds and to [`MAX`](Self::MAX).
    pub fn from_std(duration: std::time::Duration) -> Self {
        let milliseconds = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        Self { milliseconds: milliseconds.min(Self::MAX.milliseconds) }
    }

    pub const fn as_std(self) -> std::time::Duration {
        std::time::Duration::from_millis(self.milliseconds)
    }
}

impl From<Duration> for std::time::Duration {
    fn from(duration: Duration) -> Self {
        duration.as_std()
    }
}

/// Formats seconds for output with at most two units, truncated: `45s`, `1m5s`, `31m`, `1h20m`, `2d4h`. Minutes are
/// shown with seconds below ten minutes, and days from two days on. The same as `odc_control::duration::format`.
pub fn format_seconds(seconds: u64) -> String {
    const MINUTE: u64 = 60;
    const HOUR: u64 = 60 * MINUTE;
    const DAY: u64 = 24 * HOUR;
    const TEN_MINUTES: u64 = 10 * MINUTE;
    const TWO_DAYS: u64 = 2 * DAY;
    let (large, unit, small, small_unit) = match seconds {
        0..MINUTE => return format!("{seconds}s"),
        MINUTE..TEN_MINUTES => (seconds / MINUTE, "m", seconds % MINUTE, "s"),
        TEN_MINUTES..HOUR => return format!("{}m", seconds / MINUTE),
        HOUR..TWO_DAYS => (seconds / HOUR, "h", seconds % HOUR / MINUTE, "m"),
        TWO_DAYS.. => (seconds / DAY, "d", seconds % DAY / HOUR, "h"),
    };
    if small == 0 { format!("{large}{unit}") } else { format!("{large}{unit}{small}{small_unit}") }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidDuration {
    #[error("invalid duration {0:?}: use a format such as 8h, 90m or 1h30m")]
    Format(String),
    #[error("invalid duration {0:?}: must not be negative")]
    Negative(String),
    #[error("invalid duration {0:?}: must be a multiple of 1ms")]
    TooFine(String),
    #[error("invalid duration {0:?}: must be at most 8760h")]
    TooLong(String),
}

impl FromStr for Duration {
    type Err = InvalidDuration;

    /// Accepts everything that Go's `time.ParseDuration` accepts, within the limits.
    fn from_str(text: &str) -> Result<Self, InvalidDuration> {
        let format = || InvalidDuration::Format(text.to_owned());
        let mut rest = match text.strip_prefix('-') {
            Some(_) => return Err(InvalidDuration::Negative(text.to_owned())),
            None => text.strip_prefix('+').unwrap_or(text),
        };
        if rest == "0" {
            return Ok(Self::ZERO);
        }
        if rest.is_empty() {
            return Err(format());
        }
        let mut nanoseconds = 0_u128;
        while !rest.is_empty() {
            let (whole, after) = digits(rest);
            let (fraction, after) = after.strip_prefix('.').map_or(("", after), digits);
            if whole.is_empty() && fraction.is_empty() {
                return Err(format());
            }
            let (unit, after) = unit(after).ok_or_else(format)?;
            let part = scaled(whole, fraction, unit).map_err(|inexact| inexact.into_error(text))?;
            nanoseconds = nanoseconds.saturating_add(part);
            rest = after;
        }
        if !nanoseconds.is_multiple_of(1_000_000) {
            return Err(InvalidDuration::TooFine(text.to_owned()));
        }
        u64::try_from(nanoseconds / 1_000_000)
            .ok()
            .map(|milliseconds| Self { milliseconds })
            .filter(|duration| *duration <= Self::MAX)
            .ok_or_else(|| InvalidDuration::TooLong(text.to_owned()))
    }
}

fn digits(text: &str) -> (&str, &str) {
    text.split_at(text.bytes().take_while(u8::is_ascii_digit).count())
}

/// Splits a unit off the text. Returns its length in nanoseconds and the rest.
fn unit(text: &str) -> Option<(u128, &str)> {
    // Two-letter units first, because "ms" starts with "m". Go accepts both micro signs.
    let units = [("ns", 1), ("us", 1_000), ("µs", 1_000), ("μs", 1_000), ("ms", 1_000_000)];
    let long = [("s", 1_000_000_000), ("m", 60_000_000_000), ("h", 3_600_000_000_000)];
    units.into_iter().chain(long).find_map(|(name, size)| Some((size, text.strip_prefix(name)?)))
}

enum Inexact {
    TooFine,
    TooLong,
}

impl Inexact {
    fn into_error(self, text: &str) -> InvalidDuration {
        match self {
            Self::TooFine => InvalidDuration::TooFine(text.to_owned()),
            Self::TooLong => InvalidDuration::TooLong(text.to_owned()),
        }
    }
}

/// Returns `whole.fraction` units in nanoseconds.
fn scaled(whole: &str, fraction: &str, unit: u128) -> Result<u128, Inexact> {
    let number = |text: &str| if text.is_empty() { Ok(0_u128) } else { text.parse() };
    let fraction = fraction.trim_end_matches('0');
    let whole = number(whole).map_err(|_| Inexact::TooLong)?.checked_mul(unit).ok_or(Inexact::TooLong)?;
    let places = u32::try_from(fraction.len()).map_err(|_| Inexact::TooFine)?;
    let denominator = 10_u128.checked_pow(places).ok_or(Inexact::TooFine)?;
    let numerator = number(fraction).map_err(|_| Inexact::TooFine)?.checked_mul(unit).ok_or(Inexact::TooFine)?;
    if !numerator.is_multiple_of(denominator) {
        return Err(Inexact::TooFine);
    }
    whole.checked_add(numerator / denominator).ok_or(Inexact::TooLong)
}

impl fmt::Display for Duration {
    /// Prints the shortest form that the schema accepts: `1h30m`, not Go's `1h30m0s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.milliseconds == 0 {
            return f.write_str("0s");
        }
        let mut rest = self.milliseconds;
        for (size, unit) in [(HOUR, "h"), (MINUTE, "m"), (SECOND, "s"), (1, "ms")] {
            if rest >= size {
                write!(f, "{}{unit}", rest / size)?;
                rest %= size;
            }
        }
        Ok(())
    }
}

impl TryFrom<String> for Duration {
    type Error = InvalidDuration;

    fn try_from(text: String) -> Result<Self, InvalidDuration> {
        text.parse()
    }
}

impl From<Duration> for String {
    fn from(duration: Duration) -> Self {
        duration.to_string()
    }
}

impl JsonSchema for Duration {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Duration".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "minLength": 2,
            "maxLength": 32,
            "pattern": PATTERN,
            "x-kubernetes-validations": rule::validations([(
                "duration(self) <= duration('8760h')",
                "duration must be at most 8760h (one year)",
            )]),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use regex::Regex;

    use super::*;

    #[test]
    fn seconds_are_formatted_with_at_most_two_units() {
        for (seconds, expect) in [
            (0, "0s"),
            (59, "59s"),
            (60, "1m"),
            (65, "1m5s"),
            (599, "9m59s"),
            (600, "10m"),
            (1865, "31m"),
            (3600, "1h"),
            (4800, "1h20m"),
            (86_400, "24h"),
            (172_799, "47h59m"),
            (172_800, "2d"),
            (190_000, "2d4h"),
        ] {
            assert_eq!(format_seconds(seconds), expect);
        }
    }

    #[test]
    fn parses_go_durations() {
        for (text, milliseconds) in [
            ("0", 0),
            ("+0", 0),
            ("0s", 0),
            ("5s", 5_000),
            ("1478s", 1_478_000),
            ("+5s", 5_000),
            ("5.0s", 5_000),
            ("5.6s", 5_600),
            ("5.s", 5_000),
            (".5s", 500),
            ("1.004s", 1_004),
            ("1.0040s", 1_004),
            ("13ms", 13),
            ("1000us", 1),
            ("1000µs", 1),
            ("1000μs", 1),
            ("1000000ns", 1),
            ("3h30m", 12_600_000),
            ("10.5s4m", 250_500),
            ("1.5h", 5_400_000),
            ("0.100000000000000000000h", 360_000),
            ("8760h", 31_536_000_000),
        ] {
            assert_eq!(text.parse(), Ok(Duration { milliseconds }), "{text}");
        }
    }

    #[test]
    fn invalid_durations_are_rejected_with_the_reason() {
        for text in ["", " ", "8", ".", ".s", "h", "8 h", "8H", "1d", "1h30", "٣h", "1hh", "--1s", "1e3s", "8h\n"] {
            let error = text.parse::<Duration>().unwrap_err();
            assert!(matches!(error, InvalidDuration::Format(_) | InvalidDuration::Negative(_)), "{text}: {error}");
        }
        assert_eq!("-5s".parse::<Duration>(), Err(InvalidDuration::Negative("-5s".into())));
        for fine in ["1us", "0.5ms", "0.3333333333333333333h", "1.0001s"] {
            assert_eq!(fine.parse::<Duration>(), Err(InvalidDuration::TooFine(fine.into())));
        }
        for long in ["8760h1ms", "99999h", "9223372036854775808ns", "340282366920938463463374607431768211456h"] {
            let error = long.parse::<Duration>().unwrap_err();
            assert!(matches!(error, InvalidDuration::TooLong(_) | InvalidDuration::TooFine(_)), "{long}: {error}");
        }
    }

    proptest! {
        #[test]
        fn printed_duration_matches_schema_and_parses_back(milliseconds in 0..=Duration::MAX.milliseconds) {
            let duration = Duration { milliseconds };
            let text = duration.to_string();
            prop_assert!(Regex::new(PATTERN).unwrap().is_match(&text), "{}", text);
            prop_assert!((2..=32).contains(&text.len()));
            prop_assert_eq!(text.parse(), Ok(duration));
        }

        #[test]
        fn text_accepted_by_schema_parses_up_to_one_year(
            text in "([0-9]{1,5}h)?([0-9]{1,6}m)?([0-9]{1,8}s)?([0-9]{1,9}ms)?"
        ) {
            prop_assume!(text.len() >= 2);
            prop_assert!(matches!(text.parse::<Duration>(), Ok(_) | Err(InvalidDuration::TooLong(_))));
        }

        #[test]
        fn parser_never_panics(text in "\\PC{0,40}|[0-9.]{0,60}(ns|us|ms|s|m|h)") {
            let _ = text.parse::<Duration>();
        }
    }
}
