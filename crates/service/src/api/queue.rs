//! `queue.odc.dev`: the leading operator answers questions about the queue from memory.

use std::time::Duration;

use http::Request;
use odc_api::http::ProblemType;
use odc_api::queue::{API_VERSION, GROUP, VERSION};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::error::{Error, Result};

/// The leader answers from memory. Longer means that there is no leader.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Deserialize)]
struct List<T> {
    items: Vec<T>,
}

/// Lists objects, such as `namespaces/dev-ada/queueentries`.
pub(super) async fn list<T: DeserializeOwned>(client: &kube::Client, path: &str) -> Result<Vec<T>> {
    let list: List<T> = send(client, Request::get(url(path)), vec![]).await?;
    Ok(list.items)
}

/// Creates an object that is answered in its status and not stored.
pub(super) async fn review<T: DeserializeOwned>(
    client: &kube::Client,
    path: &str,
    kind: &str,
    spec: &impl Serialize,
) -> Result<T> {
    let body = json!({"apiVersion": API_VERSION, "kind": kind, "spec": spec}).to_string();
    send(client, Request::post(url(path)), body.into_bytes()).await
}

fn url(path: &str) -> String {
    format!("/apis/{GROUP}/{VERSION}/{path}")
}

async fn send<T: DeserializeOwned>(client: &kube::Client, request: http::request::Builder, body: Vec<u8>) -> Result<T> {
    let request = request.header(http::header::CONTENT_TYPE, "application/json").body(body);
    let request = request.map_err(|error| Error::internal(&error))?;
    let unavailable =
        || Error::unavailable("the queue is unavailable, because no operator leads; repeat the request later");
    match tokio::time::timeout(REQUEST_TIMEOUT, client.request(request)).await {
        Err(_) => Err(unavailable()),
        Ok(Ok(response)) => Ok(response),
        Ok(Err(kube::Error::Api(status))) if status.code == 404 => {
            Err(Error::with_detail(ProblemType::NotFound, "this cluster does not serve queue.odc.dev"))
        }
        Ok(Err(kube::Error::Api(status))) if matches!(status.code, 400 | 409 | 422) => {
            Err(Error::rejected(Some(status.code), Some(status.message.clone())))
        }
        Ok(Err(error)) => {
            tracing::warn!(%error, "queue.odc.dev does not answer");
            Err(unavailable())
        }
    }
}
