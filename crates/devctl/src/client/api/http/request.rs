//! One request to the HTTP API.

use std::time::Duration;

use ::http::{Method, header};
use kube::client::Body;
use odc_api::http::IDEMPOTENCY_KEY_HEADER;
use serde_json::Value;

/// What may be repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retries {
    /// Also while the API reports that a part of it is unavailable.
    Unavailable,
    /// Only if the API does not answer.
    Unreachable,
    Never,
}

#[derive(Clone, Debug)]
pub struct Request {
    method: Method,
    /// The path after the prefix, with encoded segments.
    path: String,
    parameters: Vec<(&'static str, String)>,
    headers: Vec<(&'static str, String)>,
    body: Option<Value>,
    /// How long the API is asked to wait.
    pub wait: Duration,
    pub retries: Retries,
}

impl Request {
    fn new(method: Method, path: impl Into<String>) -> Self {
        Self {
            method,
            path: path.into(),
            parameters: vec![],
            headers: vec![],
            body: None,
            wait: Duration::ZERO,
            retries: Retries::Unavailable,
        }
    }

    pub fn get(path: impl Into<String>) -> Self {
        Self::new(Method::GET, path)
    }

    pub fn post(path: impl Into<String>) -> Self {
        Self::new(Method::POST, path)
    }

    pub fn put(path: impl Into<String>) -> Self {
        Self::new(Method::PUT, path)
    }

    pub fn patch(path: impl Into<String>) -> Self {
        Self::new(Method::PATCH, path)
    }

    pub fn delete(path: impl Into<String>) -> Self {
        Self::new(Method::DELETE, path)
    }

    /// Adds a parameter of the query.
    #[must_use]
    pub fn parameter(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.parameters.push((name, value.into()));
        self
    }

    /// Adds a parameter `true` if it is set.
    #[must_use]
    pub fn flag(self, name: &'static str, is_set: bool) -> Self {
        if is_set { self.parameter(name, "true") } else { self }
    }

    #[must_use]
    pub fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    #[must_use]
    pub fn body(self, body: Value) -> Self {
        Self { body: Some(body), ..self }
    }

    /// Applies the request only to this version of the object.
    #[must_use]
    pub fn if_match(self, version: &str) -> Self {
        self.header("if-match", format!("\"{version}\""))
    }

    /// Asks the API to wait for the result, or for a change.
    #[must_use]
    pub fn wait(self, wait: Duration) -> Self {
        Self { wait, ..self }
    }

    #[must_use]
    pub fn retries(self, retries: Retries) -> Self {
        Self { retries, ..self }
    }

    /// Makes the request safe to repeat.
    #[must_use]
    pub fn idempotency_key(self, key: &str) -> Self {
        self.header(IDEMPOTENCY_KEY_HEADER, key.to_owned())
    }

    pub(super) fn build(&self, prefix: &str) -> ::http::Result<::http::Request<Body>> {
        let mut uri = format!("{prefix}{}", self.path);
        for (index, (name, value)) in self.parameters.iter().enumerate() {
            uri += &format!("{}{name}={}", if index == 0 { '?' } else { '&' }, encode(value));
        }
        let mut request = ::http::Request::builder().method(self.method.clone()).uri(uri);
        for (name, value) in &self.headers {
            request = request.header(*name, value);
        }
        let mut preferences = vec![];
        if !self.wait.is_zero() {
            preferences.push(format!("wait={}", self.wait.as_secs()));
            if self.method != Method::GET {
                preferences.push("return=representation".to_owned());
            }
        }
        if !preferences.is_empty() {
            request = request.header("prefer", preferences.join(", "));
        }
        match &self.body {
            Some(body) => {
                request.header(header::CONTENT_TYPE, "application/json").body(Body::from(body.to_string().into_bytes()))
            }
            None => request.body(Body::empty()),
        }
    }
}

/// Percent-encodes a segment of a path or a value of a query (RFC 3986).
pub fn encode(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
        other => format!("%{other:02X}"),
    };
    text.bytes().map(byte).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn head(request: &Request) -> (String, String, Vec<(String, String)>) {
        let built = request.build("/api/v1").unwrap();
        let headers =
            built.headers().iter().map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()));
        (built.method().to_string(), built.uri().to_string(), headers.collect())
    }

    #[test]
    fn request_has_encoded_parameters_and_preferences() {
        let request = Request::patch("/devservers/box")
            .parameter("user", "a&b")
            .flag("dryRun", false)
            .flag("force", true)
            .if_match("7")
            .wait(Duration::from_secs(20))
            .idempotency_key("k")
            .body(json!({}));
        let (method, uri, headers) = head(&request);
        assert_eq!((&method[..], &uri[..]), ("PATCH", "/api/v1/devservers/box?user=a%26b&force=true"));
        let expect = [
            ("if-match", "\"7\""),
            ("idempotency-key", "k"),
            ("prefer", "wait=20, return=representation"),
            ("content-type", "application/json"),
        ];
        assert_eq!(headers, expect.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }

    #[test]
    fn read_waits_without_asking_for_a_representation() {
        let (_, _, headers) = head(&Request::get("/me").wait(Duration::from_secs(5)));
        assert_eq!(headers, [("prefer".to_owned(), "wait=5".to_owned())]);
    }

    #[test]
    fn segments_are_encoded() {
        assert_eq!(encode("a-b.c_d~1"), "a-b.c_d~1");
        assert_eq!(encode("../x y?é"), "..%2Fx%20y%3F%C3%A9");
    }
}
