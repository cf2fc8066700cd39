//! Writes statuses. A status is computed by `odc-core`, except for servers that cannot be deserialized; see
//! [`invalid_objects`](crate::invalid_objects).

use std::fmt::Debug;

use kube::api::{Api, Patch, PatchParams};
use kube::core::object::HasStatus;
use kube::{Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::cache::assumed::AssumeInCache;
use crate::context::Context;
use crate::dynamic_api::with_timeout;
use crate::error::{Error, code};

/// The field manager of objects and statuses.
pub const FIELD_MANAGER: &str = odc_api::label::OPERATOR;

/// The field managers of a status; each owns its part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldManager {
    /// The controllers: everything but [`SCHEDULER_FIELDS`].
    Operator,
    /// The scheduler: [`SCHEDULER_FIELDS`].
    Scheduler,
}

impl FieldManager {
    const fn name(self) -> &'static str {
        match self {
            Self::Operator => FIELD_MANAGER,
            Self::Scheduler => "odc-scheduler",
        }
    }
}

/// Applies a status to the version of the object it was computed from. Returns the stored object.
///
/// Only the operator should write statuses, but other clients can. Their values are overwritten, and fields that the
/// operator did not set are removed.
pub async fn write_status<K>(ctx: &Context, object: &K, status: Value, manager: FieldManager) -> Result<K, Error>
where
    K: Resource<DynamicType = ()> + ResourceExt + HasStatus<Status: Serialize>,
    K: Clone + DeserializeOwned + Debug + AssumeInCache,
    Api<K>: Scoped<K>,
{
    ctx.ensure_leader()?;
    let relists = K::relists(ctx);
    let name = object.name_any();
    let api = <Api<K> as Scoped<K>>::scoped(ctx.client.clone(), object.namespace().as_deref());
    let metadata = |version: Option<String>| json!({"name": name, "resourceVersion": version});
    let body = json!({
        "apiVersion": K::api_version(&()),
        "kind": K::kind(&()),
        "metadata": metadata(object.resource_version()),
        "status": status,
    });
    let failed = |source| Error::Status { kind: kind::<K>(), name: name.clone(), source: Box::new(source) };
    let params = PatchParams::apply(manager.name());
    let mut response = with_timeout(api.patch_status(&name, &params, &Patch::Apply(&body))).await;
    if matches!(&response, Err(error) if is_field_conflict(error)) {
        tracing::warn!(kind = kind::<K>(), name, "status was modified by another client, overwriting");
        ctx.ensure_leader()?;
        response = with_timeout(api.patch_status(&name, &params.clone().force(), &Patch::Apply(&body))).await;
    }
    let mut stored = response.map_err(failed)?;
    if let Some(removal) = unexpected_fields(&stored, &status, manager) {
        tracing::warn!(kind = kind::<K>(), name, "status has fields set by another client, removing them");
        ctx.ensure_leader()?;
        let body = json!({"metadata": metadata(stored.resource_version()), "status": removal});
        stored = with_timeout(api.patch_status(&name, &PatchParams::default(), &Patch::Merge(&body)))
            .await
            .map_err(failed)?;
    }
    ctx.metrics.record_write("status", kind::<K>());
    stored.assume(ctx, relists);
    Ok(stored)
}

/// Returns a merge patch that removes the stored fields of the operator's part that are not in `wanted`.
fn unexpected_fields<K: HasStatus<Status: Serialize>>(
    stored: &K,
    wanted: &Value,
    manager: FieldManager,
) -> Option<Value> {
    if manager == FieldManager::Scheduler {
        return None;
    }
    let stored = serde_json::to_value(stored.status()?).ok()?;
    let fields = stored.as_object()?;
    let unexpected =
        fields.keys().filter(|field| wanted.get(field).is_none() && !SCHEDULER_FIELDS.contains(&field.as_str()));
    let removal: serde_json::Map<String, Value> = unexpected.map(|field| (field.clone(), Value::Null)).collect();
    (!removal.is_empty()).then_some(Value::Object(removal))
}

/// The status fields of all kinds that the scheduler owns.
const SCHEDULER_FIELDS: [&str; 3] = ["admission", "flavor", "usage"];

fn kind<K: Resource<DynamicType = ()>>() -> &'static str {
    match K::kind(&()) {
        std::borrow::Cow::Borrowed(kind) => kind,
        std::borrow::Cow::Owned(_) => "object",
    }
}

/// Reports whether a conflict is about field ownership and not about the version.
fn is_field_conflict(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else { return false };
    let causes = status.details.iter().flat_map(|details| &details.causes);
    code(error) == Some(409) && causes.clone().any(|cause| cause.reason == "FieldManagerConflict")
}

/// Gives namespaced and cluster-scoped kinds one constructor.
pub trait Scoped<K> {
    fn scoped(client: Client, namespace: Option<&str>) -> Self;
}

macro_rules! namespaced {
    ($($kind:ty),+) => {
        $(impl Scoped<$kind> for Api<$kind> {
            fn scoped(client: Client, namespace: Option<&str>) -> Self {
                Self::namespaced(client, namespace.unwrap_or_default())
            }
        })+
    };
}

namespaced!(odc_api::v1alpha1::DevServer, odc_api::v1alpha1::Disk, odc_api::v1alpha1::DiskOperation);

macro_rules! cluster_scoped {
    ($($kind:ty),+) => {
        $(impl Scoped<$kind> for Api<$kind> {
            fn scoped(client: Client, _: Option<&str>) -> Self {
                Self::all(client)
            }
        })+
    };
}

cluster_scoped!(odc_api::v1alpha1::DevServerFlavor, odc_api::v1alpha1::DevServerUser, odc_api::v1alpha1::Team);
