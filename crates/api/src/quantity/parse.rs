//! Parses quantities.

use std::str::FromStr;

use super::{MAX_NANOS, Quantity, Style};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid quantity {0:?}: use a format such as 4, 500m or 16Gi")]
pub struct InvalidQuantity(String);

impl FromStr for Quantity {
    type Err = InvalidQuantity;

    fn from_str(text: &str) -> Result<Self, InvalidQuantity> {
        parse(text).ok_or_else(|| InvalidQuantity(text.to_owned()))
    }
}

fn parse(text: &str) -> Option<Quantity> {
    let (negative, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (whole, rest) = digits(unsigned);
    let (fraction, suffix) = rest.strip_prefix('.').map_or(("", rest), digits);
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let (style, scale) = scale(suffix)?;
    let nanos = nanos(whole, fraction, scale);
    Some(Quantity { nanos: if negative { -nanos } else { nanos }, style })
}

fn digits(text: &str) -> (&str, &str) {
    text.split_at(text.bytes().take_while(u8::is_ascii_digit).count())
}

/// The multiplier of a suffix.
#[derive(Clone, Copy)]
enum Scale {
    /// A power of ten.
    Ten(i32),
    /// A power of 1024.
    Kibi(u32),
}

fn scale(suffix: &str) -> Option<(Style, Scale)> {
    let decimal = |power| Some((Style::Decimal, Scale::Ten(power)));
    let binary = |power| Some((Style::Binary, Scale::Kibi(power)));
    match suffix {
        "n" => decimal(-9),
        "u" => decimal(-6),
        "m" => decimal(-3),
        "" => decimal(0),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        "Ki" => binary(1),
        "Mi" => binary(2),
        "Gi" => binary(3),
        "Ti" => binary(4),
        "Pi" => binary(5),
        "Ei" => binary(6),
        _ => {
            let power = suffix.strip_prefix(['e', 'E'])?;
            Some((Style::Exponent, Scale::Ten(power.parse().ok()?)))
        }
    }
}

/// Returns `whole.fraction` times the scale in billionths, rounded up and capped. Works digit by digit, so that neither
/// long text nor a large exponent can overflow.
fn nanos(whole: &str, fraction: &str, scale: Scale) -> i128 {
    let (factor, power) = match scale {
        Scale::Ten(power) => (1, i64::from(power)),
        Scale::Kibi(power) => (1_i128 << (10 * power), 0),
    };
    // The place of a digit is its power of ten in billionths, before the factor.
    let highest = i64::try_from(whole.len()).unwrap_or(i64::MAX).saturating_add(8 + power);
    let digits = whole.bytes().chain(fraction.bytes()).map(|digit| i128::from(digit - b'0'));
    let above = usize::try_from(highest.saturating_add(1)).unwrap_or(0);
    let gap = usize::try_from(highest.saturating_add(1).saturating_neg()).unwrap_or(0);

    let mut total = 0_i128;
    for (place, digit) in (0..=highest).rev().zip(digits.clone()).filter(|(_, digit)| *digit != 0) {
        let unit = u32::try_from(place).ok().and_then(|place| 10_i128.checked_pow(place));
        match unit.and_then(|unit| unit.checked_mul(digit * factor)).and_then(|value| total.checked_add(value)) {
            Some(sum) if sum <= MAX_NANOS => total = sum,
            _ => return MAX_NANOS,
        }
    }
    let below: Vec<i128> = digits.skip(above).map(|digit| digit * factor).collect();
    (total + rounded_up(&below, gap)).min(MAX_NANOS)
}

/// Returns the sum of digits at the places -1 - `gap`, -2 - `gap` and so on, rounded up to an integer.
fn rounded_up(digits: &[i128], gap: usize) -> i128 {
    // From the smallest place up: the integer part is exact; of the fraction only whether it is zero matters.
    let mut whole = 0;
    let mut has_fraction = false;
    // Forty places exceed the precision of any value.
    for digit in std::iter::repeat_n(&0, gap.min(40)).chain(digits).rev() {
        whole += digit;
        has_fraction |= whole % 10 != 0;
        whole /= 10;
    }
    whole + i128::from(has_fraction)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::NANO;
    use super::*;

    #[test]
    fn parses_like_kubernetes() {
        for (text, nanos) in [
            ("0", 0),
            ("1", NANO),
            ("+1", NANO),
            ("-1", -NANO),
            ("5.", 5 * NANO),
            (".5", NANO / 2),
            ("0.5", NANO / 2),
            ("100n", 100),
            ("7u", 7_000),
            ("500m", NANO / 2),
            ("1k", 1_000 * NANO),
            ("12E", MAX_NANOS),
            ("1E", 1_000_000_000_000_000_000 * NANO),
            ("1Ki", 1_024 * NANO),
            ("1.5Gi", 1_610_612_736 * NANO),
            (".5Gi", 536_870_912 * NANO),
            ("0.1Ki", 102_400_000_000),
            ("1Ei", (1 << 60) * NANO),
            ("8Ei", MAX_NANOS),
            ("1e3", 1_000 * NANO),
            ("1E3", 1_000 * NANO),
            ("1E-3", NANO / 1_000),
            ("2.5e+2", 250 * NANO),
            ("1e-9", 1),
            ("1e-10", 1),
            ("1.0000000001", NANO + 1),
            ("0.9999999999n", 1),
            ("-1e-10", -1),
            ("1e30", MAX_NANOS),
            ("-1e30", -MAX_NANOS),
            ("1e2147483647", MAX_NANOS),
            ("1e-2147483648", 1),
            ("0e2147483647", 0),
            ("9223372036854775807", MAX_NANOS),
            ("9223372036854775808", MAX_NANOS),
            ("000000000000000000000000000000000000000000000000001", NANO),
            ("0.000000000000000000000000000000000000000000000000001Ei", 1),
        ] {
            assert_eq!(parse(text).map(Quantity::nanos), Some(nanos), "{text}");
        }
    }

    #[test]
    fn rejects_like_kubernetes() {
        for text in [
            "",
            ".",
            "-",
            "+",
            "Gi",
            "1K",
            "1ki",
            "1KI",
            "1Zi",
            "1 Gi",
            " 1",
            "1\n",
            "1e",
            "1e1.5",
            "1ee3",
            "--1",
            "+-1",
            "1.2.3",
            "1,5",
            "0x10",
            "１",
            "NaN",
            "inf",
            "1e99999999999",
            "1m5",
        ] {
            assert_eq!(parse(text).map(Quantity::nanos), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn parser_never_panics(text in "\\PC{0,40}|[+-]?[0-9.]{0,80}([eE][+-]?[0-9]{0,12}|[a-zA-Z]{0,3})") {
            let _ = parse(&text);
        }

        #[test]
        fn integers_are_exact(amount in any::<i64>()) {
            let expect = (i128::from(amount) * NANO).max(-MAX_NANOS);
            prop_assert_eq!(parse(&amount.to_string()).map(Quantity::nanos), Some(expect));
        }

        #[test]
        fn fractions_of_binary_units_are_exact(thousandths in 0..1_000_000_u32, power in 1..=6_u32) {
            let suffix = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"][power as usize - 1];
            let text = format!("{}.{:03}{suffix}", thousandths / 1_000, thousandths % 1_000);
            let exact = i128::from(thousandths) * (1_i128 << (10 * power)) * THOUSANDTH;
            prop_assert_eq!(parse(&text).map(Quantity::nanos), Some(exact.min(MAX_NANOS)));
        }
    }

    const THOUSANDTH: i128 = NANO / 1_000;
}
