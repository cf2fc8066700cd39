//! The warnings before the end of a server's time. Pure.

use std::time::Duration;

use odc_control::span;
use serde::{Deserialize, Serialize};

/// The last one first, because it is the one that holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Warning {
    FiveMinutes,
    FifteenMinutes,
    ThirtyMinutes,
}

/// All names, so that what an earlier server left can be removed.
pub const FILES: [&str; 3] = ["WARN_EXPIRES_IN_30MIN.txt", "WARN_EXPIRES_IN_15MIN.txt", "WARN_EXPIRES_IN_5MIN.txt"];

impl Warning {
    const ALL: [Self; 3] = [Self::FiveMinutes, Self::FifteenMinutes, Self::ThirtyMinutes];

    /// The one that holds with so much time left.
    pub fn at(remaining: Duration) -> Option<Self> {
        Self::ALL.into_iter().find(|warning| remaining <= warning.before_end())
    }

    pub fn before_end(self) -> Duration {
        Duration::from_secs(match self {
            Self::FiveMinutes => 5 * 60,
            Self::FifteenMinutes => 15 * 60,
            Self::ThirtyMinutes => 30 * 60,
        })
    }

    pub fn file(self) -> &'static str {
        match self {
            Self::ThirtyMinutes => FILES[0],
            Self::FifteenMinutes => FILES[1],
            Self::FiveMinutes => FILES[2],
        }
    }
}

/// How long nothing changes by itself: until the next warning, or the next minute that a shown one tells. For ever, if
/// there is no end or it is over.
pub fn patience(remaining: Option<Duration>) -> Option<Duration> {
    let remaining = remaining.filter(|remaining| !remaining.is_zero())?;
    let first = Warning::ThirtyMinutes.before_end();
    let Some(until_first) = remaining.checked_sub(first).filter(|left| !left.is_zero()) else {
        // Whole minutes are told rounded up; the change comes just below one.
        let into_minute = Duration::from_millis(u64::try_from(remaining.as_millis() % 60_000).unwrap_or_default());
        return Some(into_minute + Duration::from_millis(1));
    };
    Some(until_first)
}

/// For prompts, where every word costs.
pub fn line(server: &str, remaining: Duration) -> String {
    format!("{server} ends {}; to keep it longer: devctl extend {server}", within(remaining))
}

/// For terminals and files.
pub fn text(server: &str, remaining: Duration) -> String {
    format!(
        "The server {server} ends {}. Save your work.\nTo keep it longer, run this on your own machine:\n\n    devctl extend {server}\n",
        within(remaining)
    )
}

/// Minutes are rounded up: who is told of 30 has at least 29 and something.
fn within(remaining: Duration) -> String {
    if remaining.is_zero() {
        return "now".to_owned();
    }
    let minutes = remaining.as_secs().div_ceil(60).max(1);
    format!("in {}", span::text(minutes * 60))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn minutes(minutes: u64) -> Duration {
        Duration::from_secs(minutes * 60)
    }

    #[test]
    fn each_warning_begins_at_its_minute() {
        let second = Duration::from_secs(1);
        for (remaining, expect) in [
            (minutes(31), None),
            (minutes(30) + second, None),
            (minutes(30), Some(Warning::ThirtyMinutes)),
            (minutes(15) + second, Some(Warning::ThirtyMinutes)),
            (minutes(15), Some(Warning::FifteenMinutes)),
            (minutes(5), Some(Warning::FiveMinutes)),
            (Duration::ZERO, Some(Warning::FiveMinutes)),
        ] {
            assert_eq!(Warning::at(remaining), expect, "{remaining:?}");
        }
    }

    #[test]
    fn texts_name_the_command() {
        assert_eq!(line("ada-1", minutes(15)), "ada-1 ends in 15 min; to keep it longer: devctl extend ada-1");
        assert!(text("ada-1", minutes(5)).contains("\n    devctl extend ada-1\n"));
        assert!(text("ada-1", Duration::from_secs(299)).starts_with("The server ada-1 ends in 5 min."));
        assert!(line("ada-1", Duration::from_secs(1)).contains("in 1 min"));
        assert!(line("ada-1", Duration::ZERO).contains("ends now"));
    }

    proptest! {
        #[test]
        fn nothing_changes_before_patience_ends(milliseconds in 1u64..3_000_000, part in 0u64..1000) {
            let remaining = Duration::from_millis(milliseconds);
            let patience = patience(Some(remaining)).unwrap();
            prop_assert!(!patience.is_zero());
            let passed = patience * u32::try_from(part).unwrap() / 1000;
            let before = remaining.saturating_sub(passed);
            if Warning::at(remaining).is_none() && passed < patience {
                prop_assert_eq!(Warning::at(before), None);
            }
            if Warning::at(remaining).is_some() && !before.is_zero() {
                let told = |remaining: Duration| remaining.as_millis().div_ceil(60_000);
                prop_assert!(told(remaining) - told(before) <= 1);
            }
        }
    }
}
