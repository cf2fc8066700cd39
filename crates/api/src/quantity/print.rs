//! Prints quantities in the canonical form of Kubernetes.

use std::fmt;

use super::{NANO, Quantity, Style};

const DECIMAL: [(i32, &str); 10] =
    [(-9, "n"), (-6, "u"), (-3, "m"), (0, ""), (3, "k"), (6, "M"), (9, "G"), (12, "T"), (15, "P"), (18, "E")];
const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = self.nanos % NANO == 0;
        match self.style {
            // Binary suffixes cannot express values below 1Ki or with a fraction.
            Style::Binary if whole && self.nanos.abs() >= 1024 * NANO => binary(self.nanos / NANO, f),
            Style::Exponent => {
                decimal(self.nanos, f, |power, f| if power == 0 { Ok(()) } else { write!(f, "e{power}") })
            }
            Style::Binary | Style::Decimal => decimal(self.nanos, f, |power, f| {
                f.write_str(DECIMAL.iter().find(|(known, _)| *known == power).map_or("", |(_, suffix)| suffix))
            }),
        }
    }
}

fn binary(mut amount: i128, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut suffixes = BINARY.iter();
    let mut suffix = suffixes.next();
    while amount % 1024 == 0
        && let Some(larger) = suffixes.next()
    {
        amount /= 1024;
        suffix = Some(larger);
    }
    write!(f, "{amount}{}", suffix.unwrap_or(&""))
}

fn decimal(
    nanos: i128,
    f: &mut fmt::Formatter<'_>,
    suffix: impl Fn(i32, &mut fmt::Formatter<'_>) -> fmt::Result,
) -> fmt::Result {
    if nanos == 0 {
        return f.write_str("0");
    }
    let (mut amount, mut power) = (nanos, -9);
    while amount % 1_000 == 0 && power < 18 {
        amount /= 1_000;
        power += 3;
    }
    write!(f, "{amount}")?;
    suffix(power, f)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn prints_like_kubernetes() {
        for (text, canonical) in [
            ("0", "0"),
            ("0Gi", "0"),
            ("1.5", "1500m"),
            ("1000m", "1"),
            ("1500", "1500"),
            ("1000", "1k"),
            ("0.5Gi", "512Mi"),
            ("1.5Gi", "1536Mi"),
            ("1024", "1024"),
            ("1024Ki", "1Mi"),
            ("1000Ki", "1000Ki"),
            ("0.5Ki", "512"),
            ("0.1Ki", "102400m"),
            ("1.1Ki", "1126400m"),
            ("1Ei", "1Ei"),
            ("1024Pi", "1Ei"),
            ("1e3", "1e3"),
            ("2500e-3", "2500e-3"),
            ("1E3", "1e3"),
            ("1e0", "1"),
            ("-1500m", "-1500m"),
            ("-2Ki", "-2Ki"),
            ("1n", "1n"),
        ] {
            assert_eq!(text.parse::<Quantity>().unwrap().to_string(), canonical, "{text}");
        }
    }

    proptest! {
        #[test]
        fn printed_quantity_round_trips(
            text in r"[+-]?[0-9]{1,20}(\.[0-9]{0,12})?([numkMGTPE]|[KMGTPE]i|[eE]-?[0-9]{1,2})?"
        ) {
            let quantity: Quantity = text.parse().unwrap();
            let printed = quantity.to_string();
            let again: Quantity = printed.parse().unwrap();
            prop_assert_eq!(again, quantity);
            prop_assert_eq!(again.to_string(), printed);
        }
    }
}
