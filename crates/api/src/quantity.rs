//! Kubernetes quantities (`1.5Gi`, `500m`, `2e3`) as exact integers: billionths in an `i128`.
//!
//! The rules are those of Kubernetes: values finer than a billionth are rounded away from zero, values above 2^63 - 1
//! are capped, and printing uses the largest suffix that needs no fraction. Only text without digits, which Kubernetes
//! parses as zero, is rejected. Quantities compare by value, so `1Ki` equals `1024`.

mod parse;
mod print;

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserialize, Deserializer, Visitor};
use serde::{Serialize, Serializer};

pub use parse::InvalidQuantity;

/// The pattern of API fields: not negative, without exponent. The second half accepts printed quantities, so that every
/// parsed value can be written back. No quantity of this form overflows when CEL rules compare it.
const PATTERN: &str =
    r"^([0-9]{1,12}(\.[0-9]{1,9})?([numkMGTPE]|[KMGTPE]i)?|[0-9]{13,28}[num]?|[0-9]{13,16}(k|Ki)|[0-9]{13}(M|Mi))$";

const NANO: i128 = 1_000_000_000;
const MILLI: i128 = 1_000_000;
/// The largest quantity of Kubernetes.
const MAX_NANOS: i128 = i64::MAX as i128 * NANO;

#[derive(Clone, Copy, Debug, Default)]
pub struct Quantity {
    nanos: i128,
    style: Style,
}

/// The suffix family in which a quantity was written and is printed.
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

    /// Creates a quantity of whole units: devices, pods, cores.
    pub const fn whole(amount: i64) -> Self {
        Self { nanos: amount as i128 * NANO, style: Style::Decimal }
    }

    /// Creates a quantity from thousandths: CPU.
    pub const fn milli(amount: i64) -> Self {
        Self { nanos: amount as i128 * MILLI, style: Style::Decimal }
    }

    /// Creates a quantity of bytes, printed with binary suffixes.
    pub const fn bytes(amount: i64) -> Self {
        Self { nanos: amount as i128 * NANO, style: Style::Binary }
    }

    pub const fn nanos(self) -> i128 {
        self.nanos
    }

    /// Returns whole units, rounded up.
    pub fn value(self) -> i64 {
        self.in_units_of(NANO)
    }

    /// Returns thousandths, rounded up.
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
        (nanos.abs() <= MAX_NANOS).then_some(Self { nanos, ..self })
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

impl TryFrom<&ApiQuantity> for Quantity {
    type Error = InvalidQuantity;

    fn try_from(quantity: &ApiQuantity) -> Result<Self, InvalidQuantity> {
        quantity.0.parse()
    }
}

impl From<Quantity> for ApiQuantity {
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
        struct QuantityVisitor;

        impl Visitor<'_> for QuantityVisitor {
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

        deserializer.deserialize_any(QuantityVisitor)
    }
}

impl JsonSchema for Quantity {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Quantity".into()
    }

    /// Accepts `cpu: 4` and `cpu: "4"`. The length bounds apply to strings, the numeric bounds to numbers.
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
    fn quantities_compare_by_value() {
        assert_eq!(quantity("1Ki"), quantity("1024"));
        assert_eq!(quantity("1.5Gi"), quantity("1536Mi"));
        assert_eq!(quantity("0.5"), quantity("500m"));
        assert!(quantity("1G") < quantity("1Gi"));
    }

    #[test]
    fn values_are_rounded_up() {
        assert_eq!((quantity("1n").value(), quantity("1n").milli_value()), (1, 1));
        assert_eq!((quantity("1500m").value(), quantity("1500m").milli_value()), (2, 1500));
        assert_eq!((quantity("-1500m").value(), quantity("-1500m").milli_value()), (-1, -1500));
        assert_eq!(quantity("8Ei").milli_value(), i64::MAX);
    }

    #[test]
    fn arithmetic_is_checked_against_the_maximum() {
        let max = Quantity::whole(i64::MAX);
        assert_eq!(max.checked_add(quantity("1n")), None);
        assert_eq!(max.checked_mul(2), None);
        assert_eq!(quantity("24").checked_mul(8), Some(quantity("192")));
        assert_eq!(quantity("1").checked_sub(quantity("1500m")), Some(quantity("-500m")));
    }

    #[test]
    fn numbers_and_strings_are_deserialized() {
        for (json, expect) in [("4", "4"), ("\"4\"", "4"), ("\"240Gi\"", "240Gi"), ("\"0.5\"", "500m")] {
            let read: Quantity = serde_json::from_str(json).unwrap();
            assert_eq!(read.to_string(), expect);
        }
        for invalid in ["4.5", "true", "null", "\"\"", "18446744073709551615"] {
            assert!(serde_json::from_str::<Quantity>(invalid).is_err(), "{invalid}");
        }
    }

    proptest! {
        #[test]
        fn text_accepted_by_schema_round_trips(
            text in r"[0-9]{1,12}(\.[0-9]{1,9})?([numkMGTPE]|[KMGTPE]i)?|[0-9]{13,28}[num]?|[0-9]{13,16}(k|Ki)"
        ) {
            let accepted = |text: &str| Regex::new(PATTERN).unwrap().is_match(text) && text.len() <= 32;
            prop_assert!(accepted(&text));
            let parsed = quantity(&text);
            prop_assert!((0..=MAX_NANOS).contains(&parsed.nanos));
            prop_assert!(accepted(&parsed.to_string()), "{} is printed as {}", text, parsed);
        }
    }
}
