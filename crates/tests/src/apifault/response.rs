//! Responses of the proxy itself, in the format of the API server.

use anyhow::Context as _;
use bytes::Bytes;
use http::{Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use serde_json::json;

pub type Body = UnsyncBoxBody<Bytes, anyhow::Error>;

pub fn full_body(bytes: Bytes) -> Body {
    Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
}

/// Builds a failure as a Kubernetes `Status`.
pub fn failure(
    code: u16,
    reason: Option<&str>,
    retry_after: Option<u64>,
    message: &str,
) -> anyhow::Result<Response<Body>> {
    let reason = reason.unwrap_or_else(|| default_reason(code));
    let details = retry_after.map(|seconds| json!({"retryAfterSeconds": seconds}));
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code,
        "reason": reason, "message": message, "details": details});
    let mut response = json(code, Bytes::from(status.to_string()))?;
    if let Some(seconds) = retry_after {
        response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    }
    Ok(response)
}

pub fn json(code: u16, body: Bytes) -> anyhow::Result<Response<Body>> {
    let code = StatusCode::from_u16(code).with_context(|| format!("{code} is not an HTTP status code"))?;
    Ok(Response::builder().status(code).header(header::CONTENT_TYPE, "application/json").body(full_body(body))?)
}

fn default_reason(code: u16) -> &'static str {
    match code {
        403 => "Forbidden",
        404 => "NotFound",
        409 => "Conflict",
        410 => "Expired",
        422 => "Invalid",
        429 => "TooManyRequests",
        500 => "InternalError",
        503 => "ServiceUnavailable",
        504 => "Timeout",
        _ => "Unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn failure_is_a_status_with_the_default_reason() {
        let response = failure(429, None, Some(3), "slow down").unwrap();
        assert_eq!((response.status().as_u16(), response.headers()[header::RETRY_AFTER].to_str().unwrap()), (429, "3"));
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let status: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!((status["reason"].as_str(), status["code"].as_u64()), (Some("TooManyRequests"), Some(429)));
        assert_eq!(status["details"]["retryAfterSeconds"], 3);
    }
}
