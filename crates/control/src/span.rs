//! Spans of time as people write and read them.

/// Such as `90m`, `2h` or `1h30m`, in seconds.
pub fn parse(text: &str) -> Result<u64, NotASpan> {
    let wrong = || NotASpan(text.chars().take(32).collect());
    let mut seconds = 0_u64;
    let mut last = u64::MAX;
    let mut rest = text;
    if rest.is_empty() {
        return Err(wrong());
    }
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, after) = rest.split_at(digits);
        let mut symbols = after.chars();
        let size = match symbols.next() {
            Some('d') => 86_400,
            Some('h') => 3_600,
            Some('m') => 60,
            Some('s') => 1,
            _ => return Err(wrong()),
        };
        // The largest unit comes first, each at most once; anything else is more likely a slip than meant.
        if size >= last {
            return Err(wrong());
        }
        last = size;
        let number: u64 = number.parse().map_err(|_| wrong())?;
        seconds = number.checked_mul(size).and_then(|part| seconds.checked_add(part)).ok_or_else(wrong)?;
        rest = symbols.as_str();
    }
    Ok(seconds)
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a duration; write it like 90m, 2h or 1h30m")]
pub struct NotASpan(String);

/// Such as `45 s`, `31 min` or `3 h 5 min`: no more than two units, cut and not rounded.
pub fn text(seconds: u64) -> String {
    const UNITS: [(u64, &str); 4] = [(86_400, "d"), (3_600, "h"), (60, "min"), (1, "s")];
    let Some(first) = UNITS.iter().position(|(size, _)| seconds >= *size) else { return "0 s".to_owned() };
    let (size, unit) = UNITS[first];
    let whole = format!("{} {unit}", seconds / size);
    // Nobody reads the seconds of minutes.
    let second = UNITS.get(first + 1).filter(|(_, unit)| *unit != "s");
    match second.map(|(size_of_next, unit)| (seconds % size / size_of_next, unit)) {
        Some((count @ 1.., unit)) => format!("{whole} {count} {unit}"),
        _ => whole,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn spans_are_read_as_people_write_them() {
        for (text, expect) in
            [("90m", 5400), ("2h", 7200), ("1h30m", 5400), ("45s", 45), ("1d", 86_400), ("1h0m5s", 3605), ("0s", 0)]
        {
            assert_eq!(parse(text), Ok(expect), "{text}");
        }
    }

    #[test]
    fn slips_are_named() {
        for text in ["", "5", "h", "1 h", "30m1h", "1h1h", "-1h", "1.5h", "1w", "99999999999999999999h", "1h30", "ü"] {
            let error = parse(text).unwrap_err().to_string();
            assert_eq!(error, format!("{text:?} is not a duration; write it like 90m, 2h or 1h30m"));
        }
    }

    #[test]
    fn spans_are_told_short() {
        for (seconds, expect) in [
            (0, "0 s"),
            (59, "59 s"),
            (60, "1 min"),
            (119, "1 min"),
            (1860, "31 min"),
            (3600, "1 h"),
            (3660, "1 h 1 min"),
            (7199, "1 h 59 min"),
            (86_400, "1 d"),
            (90_000, "1 d 1 h"),
        ] {
            assert_eq!(text(seconds), expect);
        }
    }

    proptest! {
        #[test]
        fn nothing_typed_and_no_span_is_too_odd(typed in "\\PC*", mixed in "[0-9dhms]{0,30}", seconds: u64) {
            let _ = parse(&typed);
            let _ = parse(&mixed);
            prop_assert!(!text(seconds).is_empty());
        }
    }
}
