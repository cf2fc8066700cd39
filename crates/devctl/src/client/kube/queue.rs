//! `queue.odc.dev`, the aggregated API of the scheduler, with the rights of the user.
//!
//! It is optional, and unavailable for seconds while no operator leads. [`QueueUnavailable`] is not an error: commands
//! fall back to the statuses of servers.

use std::time::Duration;

use ::kube::Error as KubeError;
use ::kube::core::Status;
use async_trait::async_trait;
use http::Request;
use odc_api::queue::{
    API_VERSION, Availability, DryRun, DryRunSpec, DryRunStatus, GROUP, Queue, QueueEntry, VERSION, WhatIf, WhatIfSpec,
    WhatIfStatus,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::KubeClient;
use crate::client::{QueueApi, QueueResult, QueueUnavailable, Scope};
use crate::error::Result;

/// The leader answers from memory, and the client retries during a leader election. Longer means the operator is down.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Deserialize)]
struct List<T> {
    items: Vec<T>,
}

#[async_trait]
impl QueueApi for KubeClient {
    async fn queues(&self) -> Result<QueueResult<Vec<Queue>>> {
        self.list_queue_objects("queues").await
    }

    async fn queue_entries(&self, scope: Scope) -> Result<QueueResult<Vec<QueueEntry>>> {
        let path = match scope {
            Scope::Own => format!("namespaces/{}/queueentries", self.target.namespace),
            Scope::Namespace(namespace) => format!("namespaces/{namespace}/queueentries"),
            Scope::All => "queueentries".to_owned(),
        };
        self.list_queue_objects(&path).await
    }

    async fn availabilities(&self) -> Result<QueueResult<Vec<Availability>>> {
        self.list_queue_objects(&format!("namespaces/{}/availabilities", self.target.namespace)).await
    }

    async fn dry_run(&self, spec: DryRunSpec) -> Result<QueueResult<DryRunStatus>> {
        let path = format!("namespaces/{}/dryruns", self.target.namespace);
        let response: QueueResult<DryRun> = self.create_review(&path, "DryRun", &spec).await?;
        Ok(response.and_then(|review| review.status.ok_or_else(empty_response)))
    }

    async fn what_if(&self, spec: WhatIfSpec) -> Result<QueueResult<WhatIfStatus>> {
        let response: QueueResult<WhatIf> = self.create_review("whatifs", "WhatIf", &spec).await?;
        Ok(response.and_then(|review| review.status.ok_or_else(empty_response)))
    }
}

impl KubeClient {
    /// Creates an object that is answered in its status and never stored, like a `SubjectAccessReview`.
    async fn create_review<T: DeserializeOwned>(
        &self,
        path: &str,
        kind: &str,
        spec: &impl Serialize,
    ) -> Result<QueueResult<T>> {
        let body = json!({"apiVersion": API_VERSION, "kind": kind, "spec": spec}).to_string();
        self.send(Request::post(url(path)), body.into_bytes()).await
    }

    async fn list_queue_objects<T: DeserializeOwned>(&self, path: &str) -> Result<QueueResult<Vec<T>>> {
        let response: QueueResult<List<T>> = self.send(Request::get(url(path)), Vec::new()).await?;
        Ok(response.map(|list| list.items))
    }

    async fn send<T: DeserializeOwned>(
        &self,
        request: http::request::Builder,
        body: Vec<u8>,
    ) -> Result<QueueResult<T>> {
        let request = request.header(http::header::CONTENT_TYPE, "application/json").body(body);
        let request = request.map_err(|error| self.error(KubeError::HttpError(error)))?;
        match tokio::time::timeout(REQUEST_TIMEOUT, self.client.request(request)).await {
            Err(_) => Ok(Err(QueueUnavailable(format!("no response within {}s", REQUEST_TIMEOUT.as_secs())))),
            Ok(Ok(response)) => Ok(Ok(response)),
            Ok(Err(error)) => match unavailable(&error) {
                Some(reason) => Ok(Err(reason)),
                None => Err(self.error(error)),
            },
        }
    }
}

fn empty_response() -> QueueUnavailable {
    QueueUnavailable("empty response".to_owned())
}

fn url(path: &str) -> String {
    format!("/apis/{GROUP}/{VERSION}/{path}")
}

/// Returns the reason if an error only means that the queue API is unavailable.
fn unavailable(error: &KubeError) -> Option<QueueUnavailable> {
    let reason = match error {
        KubeError::Api(status) => match &**status {
            Status { code: 404, .. } => "this cluster does not serve queue.odc.dev",
            Status { code: 403, .. } => "permission denied",
            Status { code: 429 | 500 | 502..=504, .. } => "queue.odc.dev does not respond",
            _ => return None,
        },
        KubeError::SerdeError(_) => "incompatible response from queue.odc.dev",
        _ => return None,
    };
    Some(QueueUnavailable(reason.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(code: u16) -> Option<QueueUnavailable> {
        let status = json!({"code": code, "message": "no"});
        unavailable(&KubeError::Api(Box::new(serde_json::from_value(status).unwrap())))
    }

    #[test]
    fn unavailable_queue_api_is_not_an_error() {
        for code in [403, 404, 429, 500, 502, 503, 504] {
            assert!(status(code).is_some(), "{code}");
        }
        // Invalid requests and expired credentials are errors.
        for code in [400, 401, 422] {
            assert_eq!(status(code), None, "{code}");
        }
    }
}
