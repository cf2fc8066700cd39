//! Warnings before the server expires. No I/O.

use std::time::Duration;

use odc_control::duration;
use serde::{Deserialize, Serialize};

use crate::text_format::extend_command;

/// In ascending order of remaining time, so that the first match is the current one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ExpiryWarning {
    FiveMinutes,
    FifteenMinutes,
    ThirtyMinutes,
}

/// Names of all warning files, so that those of an earlier server can be removed.
pub const FILES: [&str; 3] = ["WARN_EXPIRES_IN_30MIN.txt", "WARN_EXPIRES_IN_15MIN.txt", "WARN_EXPIRES_IN_5MIN.txt"];

impl ExpiryWarning {
    const ALL: [Self; 3] = [Self::FiveMinutes, Self::FifteenMinutes, Self::ThirtyMinutes];

    /// Returns the warning for a remaining time.
    pub fn for_remaining(remaining: Duration) -> Option<Self> {
        Self::ALL.into_iter().find(|warning| remaining <= warning.threshold())
    }

    pub fn threshold(self) -> Duration {
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

/// Returns the time until the next warning, or until the minutes of a shown one change. None if the server does not
/// expire or has expired.
pub fn next_change_in(remaining: Option<Duration>) -> Option<Duration> {
    let remaining = remaining.filter(|remaining| !remaining.is_zero())?;
    let first = ExpiryWarning::ThirtyMinutes.threshold();
    let Some(until_first) = remaining.checked_sub(first).filter(|time| !time.is_zero()) else {
        // Minutes are rounded up, so they change just below a whole minute.
        let into_minute = Duration::from_millis(u64::try_from(remaining.as_millis() % 60_000).unwrap_or_default());
        return Some(into_minute + Duration::from_millis(1));
    };
    Some(until_first)
}

/// Returns the line shown before prompts. Without a name of the server, it contains no command.
pub fn prompt_line(server: &str, remaining: Duration) -> String {
    let expires = format!("expires {}", format_remaining(remaining));
    if server.is_empty() {
        return format!("this server {expires}");
    }
    format!("{server} {expires}; extend with `{}`", extend_command(server))
}

/// Returns the message for terminals and files. Without a name of the server, it contains no command.
pub fn message(server: &str, remaining: Duration) -> String {
    let expires = format!("expires {}. Save your work.\n", format_remaining(remaining));
    if server.is_empty() {
        return format!("This server {expires}");
    }
    let command = extend_command(server);
    format!("Server {server} {expires}To extend it, run on your own machine:\n\n    {command}\n")
}

/// Returns whole minutes, rounded up.
fn format_remaining(remaining: Duration) -> String {
    if remaining.is_zero() {
        return "now".to_owned();
    }
    let minutes = remaining.as_secs().div_ceil(60).max(1);
    format!("in {}", duration::format(minutes * 60))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn minutes(minutes: u64) -> Duration {
        Duration::from_secs(minutes * 60)
    }

    #[test]
    fn warning_starts_at_its_threshold() {
        let second = Duration::from_secs(1);
        for (remaining, expect) in [
            (minutes(31), None),
            (minutes(30) + second, None),
            (minutes(30), Some(ExpiryWarning::ThirtyMinutes)),
            (minutes(15) + second, Some(ExpiryWarning::ThirtyMinutes)),
            (minutes(15), Some(ExpiryWarning::FifteenMinutes)),
            (minutes(5), Some(ExpiryWarning::FiveMinutes)),
            (Duration::ZERO, Some(ExpiryWarning::FiveMinutes)),
        ] {
            assert_eq!(ExpiryWarning::for_remaining(remaining), expect, "{remaining:?}");
        }
    }

    #[test]
    fn messages_name_the_command() {
        assert_eq!(prompt_line("ada-1", minutes(15)), "ada-1 expires in 15m; extend with `devctl extend ada-1 2h`");
        assert!(message("ada-1", minutes(5)).contains("\n    devctl extend ada-1 2h\n"));
        assert!(message("ada-1", Duration::from_secs(299)).starts_with("Server ada-1 expires in 5m."));
        assert!(prompt_line("ada-1", Duration::from_secs(1)).contains("in 1m"));
        assert!(prompt_line("ada-1", Duration::ZERO).contains("expires now"));
        assert_eq!(prompt_line("", minutes(15)), "this server expires in 15m");
        assert_eq!(message("", minutes(5)), "This server expires in 5m. Save your work.\n");
    }

    proptest! {
        #[test]
        fn nothing_changes_before_the_next_change(milliseconds in 1u64..3_000_000, part in 0u64..1000) {
            let remaining = Duration::from_millis(milliseconds);
            let next_change = next_change_in(Some(remaining)).unwrap();
            prop_assert!(!next_change.is_zero());
            let elapsed = next_change * u32::try_from(part).unwrap() / 1000;
            let before = remaining.saturating_sub(elapsed);
            if ExpiryWarning::for_remaining(remaining).is_none() && elapsed < next_change {
                prop_assert_eq!(ExpiryWarning::for_remaining(before), None);
            }
            if ExpiryWarning::for_remaining(remaining).is_some() && !before.is_zero() {
                let minutes = |remaining: Duration| remaining.as_millis().div_ceil(60_000);
                prop_assert!(minutes(remaining) - minutes(before) <= 1);
            }
        }
    }
}
