//! Requests to the API server: by kind, and with a timeout.

use std::time::Duration;

use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use odc_core::manifest::Kind;

/// No request may be in progress for longer than this. It is shorter than the time between the renew deadline of a
/// leader and the end of its Lease, so requests of two leaders never overlap.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(4);

pub fn resource(kind: Kind) -> ApiResource {
    let (group, version) = kind.api_version().split_once('/').unwrap_or(("", kind.api_version()));
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind.as_str()), kind.plural())
}

pub fn api(client: &Client, kind: Kind, namespace: Option<&str>) -> Api<DynamicObject> {
    match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource(kind)),
        None => Api::all_with(client.clone(), &resource(kind)),
    }
}

/// Fails a request that takes longer than [`REQUEST_TIMEOUT`].
pub async fn with_timeout<T>(request: impl Future<Output = kube::Result<T>>) -> kube::Result<T> {
    match tokio::time::timeout(REQUEST_TIMEOUT, request).await {
        Ok(response) => response,
        Err(_) => Err(kube::Error::Service("request to the API server timed out".into())),
    }
}
