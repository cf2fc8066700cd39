//! A price per hour as an exact decimal, in millionths of the cluster's currency.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

const PATTERN: &str = r"^[0-9]{1,9}(\.[0-9]{1,6})?$";
const PLACES: usize = 6;
const UNIT: u64 = 1_000_000;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Price {
    millionths: u64,
}

impl Price {
    pub const fn millionths(self) -> u64 {
        self.millionths
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid price {0:?}: use a decimal number such as 2.50, with at most nine integer and six fractional digits")]
pub struct InvalidPrice(String);

impl FromStr for Price {
    type Err = InvalidPrice;

    fn from_str(text: &str) -> Result<Self, InvalidPrice> {
        let (whole, fraction) = match text.split_once('.') {
            Some((whole, fraction)) if !fraction.is_empty() => (whole, fraction),
            Some(_) => return Err(InvalidPrice(text.to_owned())),
            None => (text, ""),
        };
        let fits = (1..=9).contains(&whole.len()) && fraction.len() <= PLACES;
        let digits = whole.bytes().chain(fraction.bytes()).all(|byte| byte.is_ascii_digit());
        match (fits && digits).then(|| format!("{whole}{fraction:0<PLACES$}").parse()) {
            Some(Ok(millionths)) => Ok(Self { millionths }),
            _ => Err(InvalidPrice(text.to_owned())),
        }
    }
}

impl fmt::Display for Price {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, fraction) = (self.millionths / UNIT, self.millionths % UNIT);
        if fraction == 0 {
            return write!(f, "{whole}");
        }
        write!(f, "{whole}.{}", format!("{fraction:0PLACES$}").trim_end_matches('0'))
    }
}

impl TryFrom<String> for Price {
    type Error = InvalidPrice;

    fn try_from(text: String) -> Result<Self, InvalidPrice> {
        text.parse()
    }
}

impl From<Price> for String {
    fn from(price: Price) -> Self {
        price.to_string()
    }
}

impl JsonSchema for Price {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Price".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "maxLength": 16, "pattern": PATTERN})
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use regex::Regex;

    use super::*;

    #[test]
    fn prices_are_exact() {
        for (text, millionths) in
            [("0", 0), ("2.50", 2_500_000), ("0.000001", 1), ("999999999.999999", 999_999_999_999_999)]
        {
            assert_eq!(text.parse(), Ok(Price { millionths }), "{text}");
        }
        assert_eq!("2.50".parse::<Price>().unwrap().to_string(), "2.5");
    }

    proptest! {
        #[test]
        fn parser_and_schema_agree(text in "[0-9]{0,11}|[0-9]{0,10}[.][0-9]{0,8}|\\PC{0,6}") {
            prop_assert_eq!(text.parse::<Price>().is_ok(), Regex::new(PATTERN).unwrap().is_match(&text));
        }

        #[test]
        fn price_round_trips(millionths in 0..1_000_000_000_000_000_u64) {
            let price = Price { millionths };
            prop_assert_eq!(price.to_string().parse(), Ok(price));
        }
    }
}
