//! Durations as users write and read them: `45s`, `5m`, `1h20m`, `2d`.

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;
/// Below, minutes are shown with seconds.
const TEN_MINUTES: u64 = 10 * MINUTE;
/// Below, days are shown as hours.
const TWO_DAYS: u64 = 2 * DAY;

/// Parses a duration such as `90m`, `2h` or `1h30m` and returns its seconds.
pub fn parse(text: &str) -> Result<u64, InvalidDuration> {
    let invalid = || InvalidDuration(text.chars().take(32).collect());
    let mut seconds = 0_u64;
    let mut previous_unit = u64::MAX;
    let mut rest = text;
    if rest.is_empty() {
        return Err(invalid());
    }
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, after) = rest.split_at(digits);
        let mut symbols = after.chars();
        let unit = match symbols.next() {
            Some('d') => DAY,
            Some('h') => HOUR,
            Some('m') => MINUTE,
            Some('s') => 1,
            _ => return Err(invalid()),
        };
        // Units must be unique and in descending order; anything else is more likely a typing error.
        if unit >= previous_unit {
            return Err(invalid());
        }
        previous_unit = unit;
        let number: u64 = number.parse().map_err(|_| invalid())?;
        seconds = number.checked_mul(unit).and_then(|part| seconds.checked_add(part)).ok_or_else(invalid)?;
        rest = symbols.as_str();
    }
    Ok(seconds)
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid duration {0:?}: expected a value such as 90m, 2h or 1h30m")]
pub struct InvalidDuration(String);

/// Formats seconds with at most two units, truncated: `45s`, `1m5s`, `31m`, `1h20m`, `2d4h`. Minutes are shown with
/// seconds below ten minutes, and days from two days on. The same as `odc_api::duration::format_seconds`.
pub fn format(seconds: u64) -> String {
    let (large, unit, small, small_unit) = match seconds {
        0..MINUTE => return format!("{seconds}s"),
        MINUTE..TEN_MINUTES => (seconds / MINUTE, "m", seconds % MINUTE, "s"),
        TEN_MINUTES..HOUR => return format!("{}m", seconds / MINUTE),
        HOUR..TWO_DAYS => (seconds / HOUR, "h", seconds % HOUR / MINUTE, "m"),
        TWO_DAYS.. => (seconds / DAY, "d", seconds % DAY / HOUR, "h"),
    };
    if small == 0 { format!("{large}{unit}") } else { format!("{large}{unit}{small}{small_unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn valid_durations_are_parsed() {
        for (text, expect) in
            [("90m", 5400), ("2h", 7200), ("1h30m", 5400), ("45s", 45), ("1d", 86_400), ("1h0m5s", 3605), ("0s", 0)]
        {
            assert_eq!(parse(text), Ok(expect), "{text}");
        }
    }

    #[test]
    fn invalid_durations_are_named() {
        for text in ["", "5", "h", "1 h", "30m1h", "1h1h", "-1h", "1.5h", "1w", "99999999999999999999h", "1h30", "ü"] {
            let error = parse(text).unwrap_err().to_string();
            assert_eq!(error, format!("invalid duration {text:?}: expected a value such as 90m, 2h or 1h30m"));
        }
    }

    #[test]
    fn durations_are_formatted_with_at_most_two_units() {
        for (seconds, expect) in [
            (0, "0s"),
            (59, "59s"),
            (60, "1m"),
            (65, "1m5s"),
            (599, "9m59s"),
            (600, "10m"),
            (1865, "31m"),
            (3600, "1h"),
            (3665, "1h1m"),
            (7199, "1h59m"),
            (86_400, "24h"),
            (172_799, "47h59m"),
            (172_800, "2d"),
            (190_000, "2d4h"),
        ] {
            assert_eq!(format(seconds), expect);
        }
    }

    proptest! {
        #[test]
        fn arbitrary_input_does_not_panic(text in "\\PC*", mixed in "[0-9dhms]{0,30}", seconds: u64) {
            let _ = parse(&text);
            let _ = parse(&mixed);
            // What was formatted can be parsed, and is truncated.
            prop_assert!(parse(&format(seconds)).unwrap() <= seconds);
        }
    }
}
