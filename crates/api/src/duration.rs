//! Durations as Go writes them (`8h`, `1h30m`), exact in whole milliseconds and at most a year.
//!
//! kube's own type computes in floating point and panics on what does not fit; a deadline must do neither. What is
//! finer than a millisecond or longer than a year is refused, never rounded.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::rule;

/// Whole numbers, each unit at most once, the largest first: a subset of Go's that every reader computes alike.
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
    /// A year.
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

    /// Cut to whole milliseconds and to the longest there is.
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

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotADuration {
    #[error("{0:?} is not a duration; write it like 8h, 90m or 1h30m")]
    Shape(String),
    #[error("{0:?} is negative; give a duration of zero or more")]
    Negative(String),
    #[error("{0:?} is finer than a millisecond; give whole milliseconds")]
    TooFine(String),
    #[error("{0:?} is more than a year; give at most 8760h")]
    TooLong(String),
}

impl FromStr for Duration {
    type Err = NotADuration;

    /// Reads everything Go's `time.ParseDuration` reads.
    fn from_str(text: &str) -> Result<Self, NotADuration> {
        let shape = || NotADuration::Shape(text.to_owned());
        let mut rest = match text.strip_prefix('-') {
            Some(_) => return Err(NotADuration::Negative(text.to_owned())),
            None => text.strip_prefix('+').unwrap_or(text),
        };
        if rest == "0" {
            return Ok(Self::ZERO);
        }
        if rest.is_empty() {
            return Err(shape());
        }
        let mut nanoseconds = 0_u128;
        while !rest.is_empty() {
            let (whole, after) = digits(rest);
            let (fraction, after) = after.strip_prefix('.').map_or(("", after), digits);
            if whole.is_empty() && fraction.is_empty() {
                return Err(shape());
            }
            let (unit, after) = unit(after).ok_or_else(shape)?;
            let part = scaled(whole, fraction, unit).map_err(|finer| finer.of(text))?;
            nanoseconds = nanoseconds.saturating_add(part);
            rest = after;
        }
        if !nanoseconds.is_multiple_of(1_000_000) {
            return Err(NotADuration::TooFine(text.to_owned()));
        }
        u64::try_from(nanoseconds / 1_000_000)
            .ok()
            .map(|milliseconds| Self { milliseconds })
            .filter(|duration| *duration <= Self::MAX)
            .ok_or_else(|| NotADuration::TooLong(text.to_owned()))
    }
}

fn digits(text: &str) -> (&str, &str) {
    text.split_at(text.bytes().take_while(u8::is_ascii_digit).count())
}

/// The unit a text begins with, in nanoseconds, and what follows.
fn unit(text: &str) -> Option<(u128, &str)> {
    // Two-letter units first: "ms" also begins with "m". Go writes micro with either of two characters.
    let units = [("ns", 1), ("us", 1_000), ("µs", 1_000), ("μs", 1_000), ("ms", 1_000_000)];
    let long = [("s", 1_000_000_000), ("m", 60_000_000_000), ("h", 3_600_000_000_000)];
    units.into_iter().chain(long).find_map(|(name, size)| Some((size, text.strip_prefix(name)?)))
}

enum Inexact {
    Finer,
    Larger,
}

impl Inexact {
    fn of(self, text: &str) -> NotADuration {
        match self {
            Self::Finer => NotADuration::TooFine(text.to_owned()),
            Self::Larger => NotADuration::TooLong(text.to_owned()),
        }
    }
}

/// `whole.fraction` units in nanoseconds.
fn scaled(whole: &str, fraction: &str, unit: u128) -> Result<u128, Inexact> {
    let number = |text: &str| if text.is_empty() { Ok(0_u128) } else { text.parse() };
    let fraction = fraction.trim_end_matches('0');
    let whole = number(whole).map_err(|_| Inexact::Larger)?.checked_mul(unit).ok_or(Inexact::Larger)?;
    let places = u32::try_from(fraction.len()).map_err(|_| Inexact::Finer)?;
    let denominator = 10_u128.checked_pow(places).ok_or(Inexact::Finer)?;
    let numerator = number(fraction).map_err(|_| Inexact::Finer)?.checked_mul(unit).ok_or(Inexact::Finer)?;
    if !numerator.is_multiple_of(denominator) {
        return Err(Inexact::Finer);
    }
    whole.checked_add(numerator / denominator).ok_or(Inexact::Larger)
}

impl fmt::Display for Duration {
    /// The shortest form the schema accepts: `1h30m`, not Go's `1h30m0s`.
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
    type Error = NotADuration;

    fn try_from(text: String) -> Result<Self, NotADuration> {
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
                "give a duration of at most a year, 8760h",
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
    fn reads_what_go_reads() {
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
    fn refuses_the_rest_with_its_reason() {
        for text in ["", " ", "8", ".", ".s", "h", "8 h", "8H", "1d", "1h30", "٣h", "1hh", "--1s", "1e3s", "8h\n"] {
            let error = text.parse::<Duration>().unwrap_err();
            assert!(matches!(error, NotADuration::Shape(_) | NotADuration::Negative(_)), "{text}: {error}");
        }
        assert_eq!("-5s".parse::<Duration>(), Err(NotADuration::Negative("-5s".into())));
        for fine in ["1us", "0.5ms", "0.3333333333333333333h", "1.0001s"] {
            assert_eq!(fine.parse::<Duration>(), Err(NotADuration::TooFine(fine.into())));
        }
        for long in ["8760h1ms", "99999h", "9223372036854775808ns", "340282366920938463463374607431768211456h"] {
            let error = long.parse::<Duration>().unwrap_err();
            assert!(matches!(error, NotADuration::TooLong(_) | NotADuration::TooFine(_)), "{long}: {error}");
        }
    }

    proptest! {
        #[test]
        fn prints_what_the_schema_accepts_and_reads_it_back(milliseconds in 0..=Duration::MAX.milliseconds) {
            let duration = Duration { milliseconds };
            let text = duration.to_string();
            prop_assert!(Regex::new(PATTERN).unwrap().is_match(&text), "{}", text);
            prop_assert!((2..=32).contains(&text.len()));
            prop_assert_eq!(text.parse(), Ok(duration));
        }

        #[test]
        fn what_the_schema_accepts_parses_unless_it_is_over_a_year(
            text in "([0-9]{1,5}h)?([0-9]{1,6}m)?([0-9]{1,8}s)?([0-9]{1,9}ms)?"
        ) {
            prop_assume!(text.len() >= 2);
            prop_assert!(matches!(text.parse::<Duration>(), Ok(_) | Err(NotADuration::TooLong(_))));
        }

        #[test]
        fn no_text_panics(text in "\\PC{0,40}|[0-9.]{0,60}(ns|us|ms|s|m|h)") {
            let _ = text.parse::<Duration>();
        }
    }
}
