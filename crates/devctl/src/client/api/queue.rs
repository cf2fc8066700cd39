//! The queue. It is unavailable for seconds while no operator leads; commands then fall back to the statuses of servers.

use async_trait::async_trait;
use odc_api::http::Page;
use odc_api::queue::{Availability, DryRunSpec, DryRunStatus, Queue, QueueEntry, WhatIfSpec, WhatIfStatus};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::ApiClient;
use super::http::{Request, Retries};
use crate::client::{QueueApi, QueueResult, QueueUnavailable, Scope};
use crate::error::{Error, Kind, Result};

#[async_trait]
impl QueueApi for ApiClient {
    async fn queues(&self) -> Result<QueueResult<Vec<Queue>>> {
        self.list_queue(Request::get("/queue")).await
    }

    async fn queue_entries(&self, scope: Scope) -> Result<QueueResult<Vec<QueueEntry>>> {
        let (parameter, value) = self.scope_parameter(&scope)?;
        self.list_queue(Request::get("/queue/entries").parameter(parameter, value)).await
    }

    async fn availabilities(&self) -> Result<QueueResult<Vec<Availability>>> {
        self.list_queue(self.own(Request::get("/availability"))).await
    }

    async fn dry_run(&self, spec: DryRunSpec) -> Result<QueueResult<DryRunStatus>> {
        self.queue(self.own(Request::post("/queue/dry-run")).body(to_body(&spec)?)).await
    }

    async fn what_if(&self, spec: WhatIfSpec) -> Result<QueueResult<WhatIfStatus>> {
        self.queue(Request::post("/queue/what-if").body(to_body(&spec)?)).await
    }
}

fn to_body(spec: &impl serde::Serialize) -> Result<Value> {
    serde_json::to_value(spec).map_err(|error| Error::failed(error.to_string()))
}

impl ApiClient {
    async fn list_queue<T: DeserializeOwned>(&self, request: Request) -> Result<QueueResult<Vec<T>>> {
        Ok(self.queue::<Page<T>>(request).await?.map(|page| page.items))
    }

    /// Sends a request once more only if the API does not answer: while no operator leads, waiting does not help.
    async fn queue<T: DeserializeOwned>(&self, request: Request) -> Result<QueueResult<T>> {
        let response = match self.http.send(&request.retries(Retries::Unreachable)).await {
            Ok(response) => response,
            Err(error) => {
                return match unavailable(self.http.url(), &error) {
                    Some(reason) => Ok(Err(reason)),
                    None => Err(error),
                };
            }
        };
        Ok(response.parse(&self.http).map_err(|_| QueueUnavailable("incompatible response of the queue".to_owned())))
    }
}

/// Returns the reason if an error only means that the queue is unavailable.
fn unavailable(url: &str, error: &Error) -> Option<QueueUnavailable> {
    let reason = match error.kind {
        Kind::Denied if error.message.starts_with("permission denied") => "permission denied",
        Kind::Failed if error.message.starts_with(&format!("{url} is unavailable")) => "queue.odc.dev does not respond",
        Kind::Timeout => "queue.odc.dev does not respond",
        Kind::NotFound => "this cluster does not serve queue.odc.dev",
        _ => return None,
    };
    Some(QueueUnavailable(reason.to_owned()))
}
