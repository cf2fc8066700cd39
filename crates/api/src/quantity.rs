//! Kubernetes quantities (`1.5Gi`, `500m`, `2e3`) as exact integers: billionths in an `i128`.
//!
//! The rules are Kubernetes' own: what is finer than a billionth is rounded away from zero, what is larger than 2^63 -
//! 1 is that number, and printing uses the largest suffix that needs no fraction. Only a text without digits, which
//! Kubernetes reads as zero, is refused. Amounts compare by value, so `1Ki` equals `1024`.

mod parse;
mod print;

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Written;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserialize, Deserializer, Visitor};
use serde::{Serialize, Serializer};

pub use parse::NotAQuantity;

/// In our own fields: zero or more, without exponent. The second half is for amounts as they are printed, so that what
/// was read can always be written back. No amount of this form overflows when the rules compare it.
const PATTERN: &str =
    r"^([0-9]{1,12}(\.[0-9]{1,9})?([numkMGTPE]|[KMGTPE]i)?|[0-9]{13,28}[num]?|[0-9]{13,16}(k|Ki)|[0-9]{13}(M|Mi))$";

const NANO: i128 = 1_000_000_000;
const MILLI: i128 = 1_000_000;
/// Kubernetes' largest amount.
const MOST: i128 = i64::MAX as i128 * NANO;

#[derive(Clone, Copy, Debug, Default)]
pub struct Quantity {
    nanos: i128,
    style: Style,
}

/// The family of suffixes an amount was written in, and is printed in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Style {
    /// n, u, m, k, M, G, T, P, E
    #[default]
    Decimal,
    /// Ki, Mi, Gi, Ti, Pi, Ei
    Binary,
    /// e-9 to e18
    Exponent,
}

impl Quantity {
    pub const ZERO: Self = Self { nanos: 0, style: Style::Decimal };

    /// A whole amount: devices, pods, cores.
    pub const fn whole(amount: i64) -> Self {
        Self { nanos: amount as i128 * NANO, style: Style::Decimal }
    }

    /// An amount in thousandths: CPU.
    pub const fn milli(amount: i64) -> Self {
        Self { nanos: amount as i128 * MILLI, style: Style::Decimal }
    }

    /// A whole amount of bytes, printed with binary suffixes.
    pub const fn bytes(amount: i64) -> Self {
        Self { nanos: amount as i128 * NANO, style: Style::Binary }
    }

    pub const fn nanos(self) -> i128 {
        self.nanos
    }

    /// In whole units, rounded up: what must be there to hold it.
    pub fn value(self) -> i64 {
        self.in_units_of(NANO)
    }

    /// In thousandths, rounded up: Kubernetes' measure of CPU.
    pub fn milli_value(self) -> i64 {
        self.in_units_of(MILLI)
    }

    pub fn checked_add(self, other: Self) -> Option<Self> {
        self.with(self.nanos.checked_add(other.nanos)?)
    }

    pub fn checked_sub(self, other: Self) -> Option<Self> {
        self.with(self.nanos.checked_sub(other.nanos)?)
    }

    pub fn checked_mul(self, times: i64) -> Option<Self> {
        self.with(self.nanos.checked_mul(times.into())?)
    }

    fn with(self, nanos: i128) -> Option<Self> {
        (nanos.abs() <= MOST).then_some(Self { nanos, ..self })
    }

    fn in_units_of(self, unit: i128) -> i64 {
        let whole = self.nanos / unit + i128::from(self.nanos % unit > 0);
        i64::try_from(whole).unwrap_or(if whole < 0 { i64::MIN } else { i64::MAX })
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

impl Hash for Quantity {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.nanos.hash(state);
    }
}

impl TryFrom<&Written> for Quantity {
    type Error = NotAQuantity;

    fn try_from(written: &Written) -> Result<Self, NotAQuantity> {
        written.0.parse()
    }
}

impl From<Quantity> for Written {
    fn from(quantity: Quantity) -> Self {
        Self(quantity.to_string())
    }
}

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Amount;

        impl Visitor<'_> for Amount {
            type Value = Quantity;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a quantity such as 4, 500m or 16Gi")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Quantity, E> {
                text.parse().map_err(E::custom)
            }

            fn visit_i64<E: serde::de::Error>(self, amount: i64) -> Result<Quantity, E> {
                Ok(Quantity::whole(amount))
            }

            fn visit_u64<E: serde::de::Error>(self, amount: u64) -> Result<Quantity, E> {
                i64::try_from(amount).map(Quantity::whole).map_err(E::custom)
            }
        }

        deserializer.deserialize_any(Amount)
    }
}

impl JsonSchema for Quantity {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Quantity".into()
    }

    /// `cpu: 4` and `cpu: "4"` mean the same; the bounds of text hold for text, those of numbers for numbers.
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "x-kubernetes-int-or-string": true,
            "minimum": 0,
            "maximum": 999_999_999_999_i64,
            "minLength": 1,
            "maxLength": 32,
            "pattern": PATTERN,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use regex::Regex;

    use super::*;

    fn quantity(text: &str) -> Quantity {
        text.parse().unwrap()
    }

    #[test]
    fn amounts_compare_by_value() {
        assert_eq!(quantity("1Ki"), quantity("1024"));
        assert_eq!(quantity("1.5Gi"), quantity("1536Mi"));
        assert_eq!(quantity("0.5"), quantity("500m"));
        assert!(quantity("1G") < quantity("1Gi"));
    }

    #[test]
    fn rounding_up_never_promises_less() {
        assert_eq!((quantity("1n").value(), quantity("1n").milli_value()), (1, 1));
        assert_eq!((quantity("1500m").value(), quantity("1500m").milli_value()), (2, 1500));
        assert_eq!((quantity("-1500m").value(), quantity("-1500m").milli_value()), (-1, -1500));
        assert_eq!(quantity("8Ei").milli_value(), i64::MAX);
    }

    #[test]
    fn arithmetic_ends_at_the_largest_amount() {
        let most = Quantity::whole(i64::MAX);
        assert_eq!(most.checked_add(quantity("1n")), None);
        assert_eq!(most.checked_mul(2), None);
        assert_eq!(quantity("24").checked_mul(8), Some(quantity("192")));
        assert_eq!(quantity("1").checked_sub(quantity("1500m")), Some(quantity("-500m")));
    }

    #[test]
    fn numbers_and_text_are_read_and_text_is_written() {
        for (json, expect) in [("4", "4"), ("\"4\"", "4"), ("\"240Gi\"", "240Gi"), ("\"0.5\"", "500m")] {
            let read: Quantity = serde_json::from_str(json).unwrap();
            assert_eq!(read.to_string(), expect);
        }
        for bad in ["4.5", "true", "null", "\"\"", "18446744073709551615"] {
            assert!(serde_json::from_str::<Quantity>(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn what_the_schema_accepts_parses_and_is_accepted_again(
            text in r"[0-9]{1,12}(\.[0-9]{1,9})?([numkMGTPE]|[KMGTPE]i)?|[0-9]{13,28}[num]?|[0-9]{13,16}(k|Ki)"
        ) {
            let accepted = |text: &str| Regex::new(PATTERN).unwrap().is_match(text) && text.len() <= 32;
            prop_assert!(accepted(&text));
            let parsed = quantity(&text);
            prop_assert!((0..=MOST).contains(&parsed.nanos));
            prop_assert!(accepted(&parsed.to_string()), "{} is printed as {}", text, parsed);
        }
    }
}
