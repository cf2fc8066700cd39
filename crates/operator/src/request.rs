//! How the API server is asked: by kind, and for no longer than a leader may.

use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use odc_core::object::Kind;

use crate::lease::REQUEST_LIMIT;

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

/// An answer that takes too long is none: whoever waits for it may not be leading any more.
pub async fn in_time<T>(request: impl Future<Output = kube::Result<T>>) -> kube::Result<T> {
    match tokio::time::timeout(REQUEST_LIMIT, request).await {
        Ok(answer) => answer,
        Err(_) => Err(kube::Error::Service("the API server did not answer in time".into())),
    }
}
