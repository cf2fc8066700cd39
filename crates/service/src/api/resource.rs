//! Custom resources as the API returns them.

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use odc_api::http::{
    DevServerResource, DiskOperationResource, DiskResource, FlavorResource, Page, TeamResource, UserResource,
};
use odc_api::v1alpha1::{DevServer, DevServerFlavor, DevServerUser, Disk, DiskOperation, Team};
use serde::Serialize;

use super::body::Json;
use super::cluster::Watched;
use super::context::RequestContext;
use super::error::{Error, Result};
use super::page::{self, Cursor};

/// A kind that the API returns.
pub(super) trait ApiResource: Sized {
    type Body: Serialize;
    const NOUN: &str;

    /// Converts an object of a user; the user of an object of the cluster is empty.
    fn to_body(&self, user: &str, observed_at: Timestamp) -> Self::Body;
}

macro_rules! api_resource {
    ($kind:ty, $body:ident, $noun:literal) => {
        impl ApiResource for $kind {
            type Body = $body;
            const NOUN: &str = $noun;

            fn to_body(&self, user: &str, observed_at: Timestamp) -> $body {
                let meta = self.metadata.clone();
                $body {
                    name: meta.name.unwrap_or_default(),
                    user: (!user.is_empty()).then(|| user.to_owned()),
                    uid: meta.uid.unwrap_or_default(),
                    created_at: meta.creation_timestamp,
                    deletion_requested_at: meta.deletion_timestamp,
                    observed_at: Time(observed_at),
                    resource_version: meta.resource_version.unwrap_or_default(),
                    generation: meta.generation,
                    spec: self.spec.clone(),
                    status: self.status.clone(),
                }
            }
        }
    };
}

api_resource!(DevServer, DevServerResource, "server");
api_resource!(Disk, DiskResource, "disk");
api_resource!(DiskOperation, DiskOperationResource, "operation");
api_resource!(DevServerFlavor, FlavorResource, "flavor");
api_resource!(DevServerUser, UserResource, "user");
api_resource!(Team, TeamResource, "team");

/// Returns an object with its version as `ETag`, or 304 if the client has this version. With `Prefer: wait`, waits until the
/// object has another version.
pub(super) async fn respond<K>(kinds: &Watched<K>, ctx: &RequestContext, user: &str, name: &str) -> Result<Response>
where
    K: ApiResource + Watchable,
{
    let etag = |object: &K| etag(object.meta().resource_version.as_deref().unwrap_or_default());
    let is_known = |object: &K| ctx.if_none_match.as_deref().is_some_and(|known| contains(known, &etag(object)));
    let object = kinds.wait_for(user, name, ctx.wait, |object| object.is_none_or(|object| !is_known(object))).await;
    let object = object.ok_or_else(|| Error::not_found(K::NOUN, name))?;
    let (is_known, etag) = (is_known(&object), etag(&object));
    let mut response = if is_known {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        Json(object.to_body(user, kinds.observed_at())).into_response()
    };
    if let Ok(value) = HeaderValue::from_str(&etag) {
        response.headers_mut().insert(header::ETAG, value);
    }
    Ok(response)
}

/// Bounds of [`Watched`].
pub(super) trait Watchable:
    kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned + Send + Sync + 'static
{
}
impl<K> Watchable for K where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned + Send + Sync + 'static
{
}

/// Returns one page of objects, of one user or of all.
pub(super) fn list<K>(
    kinds: &Watched<K>,
    user: Option<&str>,
    cursor: Option<&Cursor>,
    limit: Option<u32>,
    matches: impl Fn(&K) -> bool,
) -> Result<Json<Page<K::Body>>>
where
    K: ApiResource + Watchable,
{
    let limit = usize::try_from(page::clamp(limit)).unwrap_or(usize::MAX);
    let after = cursor.map(Cursor::object).transpose()?;
    let mut objects = kinds.list(user, after.as_ref(), limit + 1, matches);
    let has_more = objects.len() > limit;
    objects.truncate(limit);
    let last = objects.last().filter(|_| has_more);
    let next_cursor = last.map(|((user, name), _)| Cursor::after(&[user, name]));
    let observed_at = kinds.observed_at();
    let items = objects.iter().map(|((user, _), object)| object.to_body(user, observed_at)).collect();
    Ok(Json(Page { items, next_cursor }))
}

pub(super) fn etag(version: &str) -> String {
    format!("\"{version}\"")
}

/// Reports whether a list of entity tags contains one, or is `*`.
pub(super) fn contains(tags: &str, etag: &str) -> bool {
    tags.trim() == "*" || tags.split(',').any(|tag| tag.trim().trim_start_matches("W/") == etag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entity_tags_are_compared_as_a_list() {
        assert!(contains(r#""1", W/"7""#, r#""7""#));
        assert!(contains("*", r#""7""#));
        assert!(!contains(r#""70""#, r#""7""#));
        assert!(!contains("", r#""7""#));
    }
}
