//! Money per hour as an exact decimal: millionths, no floats, no currency. A cluster has one currency.

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
#[error("{0:?} is not a price; write it like 2.50, with at most nine digits before the point and six after it")]
pub struct NotAPrice(String);

impl FromStr for Price {
    type Err = NotAPrice;

    fn from_str(text: &str) -> Result<Self, NotAPrice> {
        let (whole, fraction) = match text.split_once('.') {
            Some((whole, fraction)) if !fraction.is_empty() => (whole, fraction),
            Some(_) => return Err(NotAPrice(text.to_owned())),
            None => (text, ""),
        };
        let fits = (1..=9).contains(&whole.len()) && fraction.len() <= PLACES;
        let digits = whole.bytes().chain(fraction.bytes()).all(|byte| byte.is_ascii_digit());
        match (fits && digits).then(|| format!("{whole}{fraction:0<PLACES$}").parse()) {
            Some(Ok(millionths)) => Ok(Self { millionths }),
            _ => Err(NotAPrice(text.to_owned())),
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
    type Error = NotAPrice;

    fn try_from(text: String) -> Result<Self, NotAPrice> {
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
        fn the_parser_accepts_what_the_schema_accepts(text in "[0-9]{0,11}|[0-9]{0,10}[.][0-9]{0,8}|\\PC{0,6}") {
            prop_assert_eq!(text.parse::<Price>().is_ok(), Regex::new(PATTERN).unwrap().is_match(&text));
        }

        #[test]
        fn a_printed_price_reads_back(millionths in 0..1_000_000_000_000_000_u64) {
            let price = Price { millionths };
            prop_assert_eq!(price.to_string().parse(), Ok(price));
        }
    }
}
