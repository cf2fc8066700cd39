//! `queue.odc.dev`: the queue as it is this moment, through the API server and with the person's own rights.
//!
//! A cluster may do without it, and for seconds nobody leads. Then there is no answer, which is no failure: whoever
//! asked shows what statuses say.

use std::time::Duration;

use ::kube::Error;
use ::kube::core::Status;
use http::Request;
use odc_api::queue::{
    API_VERSION, Availability, DryRun, DryRunSpec, DryRunStatus, GROUP, Queue, QueueEntry, VERSION, WhatIf, WhatIfSpec,
    WhatIfStatus,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::Kube;
use crate::backend::{Live, Scope, Silence};
use crate::failure::Result;

/// The leader answers from memory. Where nobody leads for a moment the client asks again; whoever waits longer than this
/// waits for an operator that is gone.
const LIMIT: Duration = Duration::from_secs(5);

#[derive(Deserialize)]
struct List<T> {
    items: Vec<T>,
}

impl Kube {
    pub(super) async fn queues_now(&self) -> Result<Live<Vec<Queue>>> {
        self.listed("queues").await
    }

    pub(super) async fn entries_now(&self, scope: Scope) -> Result<Live<Vec<QueueEntry>>> {
        let path = match scope {
            Scope::Own => format!("namespaces/{}/queueentries", self.place.namespace),
            Scope::Namespace(namespace) => format!("namespaces/{namespace}/queueentries"),
            Scope::Everybody => "queueentries".to_owned(),
        };
        self.listed(&path).await
    }

    pub(super) async fn availabilities_now(&self) -> Result<Live<Vec<Availability>>> {
        self.listed(&format!("namespaces/{}/availabilities", self.place.namespace)).await
    }

    pub(super) async fn dry_run_now(&self, spec: DryRunSpec) -> Result<Live<DryRunStatus>> {
        let path = format!("namespaces/{}/dryruns", self.place.namespace);
        let answer: Live<DryRun> = self.created(&path, "DryRun", &spec).await?;
        Ok(answer.and_then(|answer| answer.status.ok_or_else(empty)))
    }

    pub(super) async fn what_if_now(&self, spec: WhatIfSpec) -> Result<Live<WhatIfStatus>> {
        let answer: Live<WhatIf> = self.created("whatifs", "WhatIf", &spec).await?;
        Ok(answer.and_then(|answer| answer.status.ok_or_else(empty)))
    }

    /// Questions of some length are objects that are created, answered and never kept.
    async fn created<T: DeserializeOwned>(&self, path: &str, kind: &str, spec: &impl Serialize) -> Result<Live<T>> {
        let question = json!({"apiVersion": API_VERSION, "kind": kind, "spec": spec}).to_string();
        self.asked(Request::post(url(path)), question.into_bytes()).await
    }

    async fn listed<T: DeserializeOwned>(&self, path: &str) -> Result<Live<Vec<T>>> {
        let answer: Live<List<T>> = self.asked(Request::get(url(path)), Vec::new()).await?;
        Ok(answer.map(|list| list.items))
    }

    async fn asked<T: DeserializeOwned>(&self, request: http::request::Builder, body: Vec<u8>) -> Result<Live<T>> {
        let request = request.header(http::header::CONTENT_TYPE, "application/json").body(body);
        let request = request.map_err(|error| self.failure(Error::HttpError(error)))?;
        match tokio::time::timeout(LIMIT, self.client.request(request)).await {
            Err(_) => Ok(Err(Silence(format!("it does not answer within {} s", LIMIT.as_secs())))),
            Ok(Ok(answer)) => Ok(Ok(answer)),
            Ok(Err(error)) => match silence(&error) {
                Some(silence) => Ok(Err(silence)),
                None => Err(self.failure(error)),
            },
        }
    }
}

fn empty() -> Silence {
    Silence("its answer is empty".to_owned())
}

fn url(path: &str) -> String {
    format!("/apis/{GROUP}/{VERSION}/{path}")
}

/// Whether an error only means that the queue cannot be asked.
fn silence(error: &Error) -> Option<Silence> {
    let words = match error {
        Error::Api(status) => match &**status {
            Status { code: 404, .. } => "this cluster does not serve queue.odc.dev",
            Status { code: 403, .. } => "you may not ask queue.odc.dev for that",
            Status { code: 429 | 500 | 502..=504, .. } => "queue.odc.dev is not available now",
            _ => return None,
        },
        Error::SerdeError(_) => "another devctl is needed to understand queue.odc.dev",
        _ => return None,
    };
    Some(Silence(words.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(code: u16) -> Option<Silence> {
        let status = json!({"code": code, "message": "no"});
        silence(&Error::Api(Box::new(serde_json::from_value(status).unwrap())))
    }

    #[test]
    fn a_queue_that_cannot_be_asked_is_no_failure() {
        for code in [403, 404, 429, 500, 502, 503, 504] {
            assert!(refused(code).is_some(), "{code}");
        }
        // What was asked for cannot be had, or the login has run out: that is the answer.
        for code in [400, 401, 422] {
            assert_eq!(refused(code), None, "{code}");
        }
    }
}
