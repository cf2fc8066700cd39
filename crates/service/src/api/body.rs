//! Bodies and parameters, with problems for invalid ones.

use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::response::{IntoResponse, Response};
use http::request::Parts;
use http::{HeaderMap, header};
use http_body_util::{BodyExt as _, Limited};
use odc_api::http::ProblemType;
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest as _, Sha256};

use super::context::RequestContext;
use super::error::{Error, Result};

/// The maximum size of a body.
pub(super) const MAX_BODY_BYTES: usize = 1 << 20;
/// The maximum nesting of a body.
const MAX_DEPTH: usize = 32;

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

/// The query of a request.
pub(super) struct Params<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Params<T> {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self> {
        let query = Query::<T>::from_request_parts(parts, state).await;
        query.map(|Query(query)| Self(query)).map_err(|error| Error::invalid(error.body_text()))
    }
}

/// The variables of a path.
pub(super) struct Name<T = String>(pub T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Name<T> {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self> {
        let path = Path::<T>::from_request_parts(parts, state).await;
        path.map(|Path(path)| Self(path)).map_err(|_| Error::new(ProblemType::NotFound))
    }
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
}
