//! Changes: accepted by the API, executed by the worker. A change returns when it is executed, with the object after it.

use std::time::{Duration, Instant};

use odc_api::http::Accepted;
use rand::RngExt as _;
use serde_json::Value;

use super::ApiClient;
use super::http::Request;
use crate::error::{Error, Result};

/// How long each request asks the API to wait for the worker.
const WAIT: Duration = Duration::from_secs(20);

/// How long to wait for the worker. The API server ends requests after a minute as well.
const EXECUTION_TIMEOUT: Duration = Duration::from_secs(60);

impl ApiClient {
    /// Sends a change and waits until it is executed. Returns the object after the change, unless it no longer exists.
    ///
    /// A request with the same idempotency key is the same request: repeated after a lost response, it is not executed
    /// twice, and repeated while it is pending, it continues to wait.
    pub(super) async fn change(&self, request: Request) -> Result<Executed> {
        let request = request.idempotency_key(&new_key()).wait(WAIT);
        let started = Instant::now();
        loop {
            let response = self.http.send(&request).await?;
            let accepted: Accepted = response.parse(&self.http)?;
            if accepted.request.is_some() {
                return Ok(Executed { name: accepted.name, object: accepted.object });
            }
            if started.elapsed() >= EXECUTION_TIMEOUT {
                return Err(Error::timeout(format!(
                    "the change of {} was accepted but not executed within {}s (request {})",
                    accepted.name,
                    EXECUTION_TIMEOUT.as_secs(),
                    accepted.request_id
                ))
                .with_hint("it is executed when the service is able to; do not repeat it, check the object later"));
            }
        }
    }
}

/// The result of a change.
pub struct Executed {
    pub name: String,
    /// The object after the change, as the API returns it.
    pub object: Option<Value>,
}

/// Returns a new idempotency key.
fn new_key() -> String {
    format!("devctl-{:032x}", rand::rng().random::<u128>())
}
