//! Bodies and parameters, with problems for invalid ones.

use std::ops::RangeInclusive;

use axum::extract::{FromRequest, FromRequestParts, Path, Query, RawPathParams, Request};
use axum::response::{IntoResponse, Response};
use http::request::Parts;
use http::{HeaderMap, header};
use http_body_util::{BodyExt as _, Limited};
use jiff::Timestamp;
use odc_api::http::ProblemType;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::context::RequestContext;
use super::error::{Error, Result};

/// The maximum size of a body.
pub(super) const MAX_BODY_BYTES: usize = 1 << 20;
/// The maximum nesting of a body.
const MAX_DEPTH: usize = 32;
/// What the variables of a path match: names of objects and ids.
pub(super) const NAME_PATTERN: &str = "^[A-Za-z0-9]([-.A-Za-z0-9]*[A-Za-z0-9])?$";
pub(super) const MAX_NAME_LENGTH: usize = 253;
/// Times that PostgreSQL can store, and that have a year of four digits.
const TIMES: RangeInclusive<Timestamp> =
    Timestamp::constant(-62_135_596_800, 0)..=Timestamp::constant(253_370_764_799, 0);

/// A JSON body.
pub(super) struct JsonBody<T> {
    pub value: T,
    /// SHA-256 of method, path, query and body.
    pub hash: [u8; 32],
}

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for JsonBody<T> {
    type Rejection = Error;

    async fn from_request(request: Request, state: &S) -> Result<Self> {
        let (mut parts, body) = request.into_parts();
        let context = RequestContext::from_request_parts(&mut parts, state).await?;
        let body = Limited::new(body, MAX_BODY_BYTES).collect().await;
        let bytes = body.map_err(|error| body_error(error.as_ref()))?.to_bytes();
        let hash = Sha256::new().chain_update(context.target_hash).chain_update(&bytes).finalize().into();
        if bytes.is_empty() {
            // An empty body is an object without fields, so that actions without arguments need none.
            let value =
                serde_json::from_str("{}").map_err(|error| Error::invalid(format!("a body is required: {error}")))?;
            return Ok(Self { value, hash });
        }
        if !is_json(&parts.headers) {
            return Err(Error::with_detail(ProblemType::UnsupportedMediaType, "set content-type: application/json"));
        }
        if nesting(&bytes) > MAX_DEPTH {
            return Err(Error::invalid(format!("the body is nested more than {MAX_DEPTH} levels deep")));
        }
        if has_nul(&bytes) {
            return Err(Error::invalid("the body has a NUL character"));
        }
        let value = serde_json::from_slice(&bytes).map_err(|error| match error.classify() {
            serde_json::error::Category::Data => Error::with_detail(ProblemType::InvalidObject, error.to_string()),
            _ => Error::invalid(format!("invalid JSON: {error}")),
        })?;
        Ok(Self { value, hash })
    }
}

fn body_error(error: &(dyn std::error::Error + 'static)) -> Error {
    if error.is::<http_body_util::LengthLimitError>() {
        return Error::with_detail(ProblemType::TooLarge, format!("the body is larger than {MAX_BODY_BYTES} bytes"));
    }
    Error::invalid("the body could not be read")
}

fn is_json(headers: &HeaderMap) -> bool {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    essence == "application/json" || (essence.starts_with("application/") && essence.ends_with("+json"))
}

/// Returns the deepest nesting of arrays and objects. Invalid JSON has any value.
fn nesting(json: &[u8]) -> usize {
    let (mut depth, mut deepest, mut in_string, mut escaped) = (0usize, 0, false, false);
    for byte in json {
        match (in_string, byte) {
            (true, _) if escaped => escaped = false,
            (true, b'\\') => escaped = true,
            (_, b'"') => in_string = !in_string,
            (false, b'{' | b'[') => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            (false, b'}' | b']') => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

/// Reports whether a text of a JSON value has the character NUL, which the database cannot store.
fn has_nul(json: &[u8]) -> bool {
    // Two backslashes are one character, so the next one escapes nothing.
    let mut rest = json;
    while let Some(start) = rest.iter().position(|byte| *byte == b'\\') {
        if rest[start..].starts_with(br"\u0000") {
            return true;
        }
        rest = rest.get(start + 2..).unwrap_or_default();
    }
    false
}

/// The query of a request.
pub(super) struct Params<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Params<T> {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self> {
        if parts.uri.query().is_some_and(|query| query.contains("%00")) {
            return Err(Error::invalid("the query has a NUL character"));
        }
        let query = Query::<T>::from_request_parts(parts, state).await;
        query.map(|Query(query)| Self(query)).map_err(|error| Error::invalid(error.body_text()))
    }
}

/// A time in a query.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "Timestamp")]
pub(super) struct QueryTime(Timestamp);

impl QueryTime {
    pub const fn get(self) -> Timestamp {
        self.0
    }
}

impl TryFrom<Timestamp> for QueryTime {
    type Error = &'static str;

    fn try_from(time: Timestamp) -> std::result::Result<Self, &'static str> {
        if TIMES.contains(&time) { Ok(Self(time)) } else { Err("the time must be in the years 1 to 9998") }
    }
}

/// The variables of a path.
pub(super) struct Name<T = String>(pub T);

/// Reports whether a text can be the name or id of an object. Others could change the path of a request to the cluster.
fn is_name(text: &str) -> bool {
    let is_alphanumeric = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.len() <= MAX_NAME_LENGTH
        && is_alphanumeric(bytes.first())
        && is_alphanumeric(bytes.last())
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.'))
}

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Name<T> {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self> {
        let raw = RawPathParams::from_request_parts(parts, state).await.map_err(|_| not_a_name())?;
        if !raw.iter().all(|(_, value)| is_name(value)) {
            return Err(not_a_name());
        }
        let path = Path::<T>::from_request_parts(parts, state).await;
        path.map(|Path(path)| Self(path)).map_err(|_| not_a_name())
    }
}

fn not_a_name() -> Error {
    let detail = "no object has this name: names consist of letters, digits, - and .";
    Error::with_detail(ProblemType::NotFound, detail)
}

/// A JSON response.
pub(super) struct Json<T>(pub T);

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        match serde_json::to_vec(&self.0) {
            Ok(body) => ([(header::CONTENT_TYPE, "application/json")], body).into_response(),
            Err(error) => Error::internal(&error).into_response(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nesting_ignores_strings() {
        assert_eq!(nesting(br#"{"a": [{"b": 1}], "c": {}}"#), 3);
        assert_eq!(nesting(br#"["[[[[", "\"[["]"#), 1);
        assert_eq!(nesting(b""), 0);
        assert_eq!(nesting("[".repeat(100_000).as_bytes()), 100_000);
    }

    #[test]
    fn nul_is_found_only_as_an_escape() {
        for json in [r#"{"a": "\u0000"}"#, r#"["\\\u0000"]"#] {
            assert!(has_nul(json.as_bytes()), "{json}");
        }
        for json in [r#"{"a": "\\u0000"}"#, r#"["u0000", "\u0001"]"#, r#"["\"#] {
            assert!(!has_nul(json.as_bytes()), "{json}");
        }
    }

    #[test]
    fn names_cannot_change_a_path() {
        for name in ["box", "a.b-c", "0197A3C4-0000-7000-8000-000000000001"] {
            assert!(is_name(name), "{name}");
        }
        for text in ["", ".", "..", "../box", "box/status", "box?x", "a b", "a%2fb", "é", "a\0", "-a", &"a".repeat(254)]
        {
            assert!(!is_name(text), "{text}");
        }
    }

    #[test]
    fn times_that_the_database_cannot_store_are_rejected() {
        let parse = |text: &str| serde_json::from_value::<QueryTime>(text.into()).is_ok();
        for time in ["0001-01-01T00:00:00Z", "2026-01-01T00:00:00+02:00", "9998-12-31T23:59:59Z"] {
            assert!(parse(time), "{time}");
        }
        for time in ["-009999-01-02T01:59:59Z", "0000-12-31T23:59:59Z", "9999-01-01T00:00:00Z", "2026-01-01"] {
            assert!(!parse(time), "{time}");
        }
    }
}
