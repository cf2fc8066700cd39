//! Users: their namespaces, teams and flavors.

mod configuration;
mod deletion;
mod namespace;
mod ownership;

use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use odc_api::v1alpha1::condition::{Condition, Reason, Type};
use odc_api::v1alpha1::{DevServer, DevServerUser, condition};
use serde_json::{Value, json};

use super::fixture::{Fixture, wait_for};

const RBAC: &str = "rbac.authorization.k8s.io/v1";

/// Objects in the namespace of every user with a quota: version, kind, name.
const NAMESPACE_OBJECTS: [(&str, &str, &str); 7] = [
    (RBAC, "RoleBinding", "odc-operator-tenant"),
    ("v1", "LimitRange", "odc"),
    ("v1", "ResourceQuota", "odc"),
    ("networking.k8s.io/v1", "NetworkPolicy", "odc"),
    ("policy/v1", "PodDisruptionBudget", "odc"),
    ("v1", "ServiceAccount", "odc-user"),
    (RBAC, "RoleBinding", "odc-user"),
];

/// Returns the API of any kind, namespaced or cluster-scoped.
fn objects(client: &Client, version: &str, kind: &str, namespace: Option<&str>) -> Api<DynamicObject> {
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    }
}

/// Returns the fields of an object that the operator sets.
fn managed_fields(object: &DynamicObject) -> Value {
    let mut all = object.data.clone();
    if let Some(fields) = all.as_object_mut() {
        fields.remove("status");
        // Set by the token controller.
        fields.remove("secrets");
    }
    json!({"labels": object.metadata.labels, "owners": object.metadata.owner_references, "rest": all})
}

fn is_ready(conditions: Option<&Vec<Condition>>) -> bool {
    conditions.is_some_and(|conditions| condition::is_true(conditions, Type::Ready))
}

/// Returns reason and message of a condition, empty if it is missing.
fn reason_and_message(conditions: &[Condition], kind: Type) -> (String, String) {
    condition::find(conditions, kind)
        .map(|condition| (condition.reason.to_string(), condition.message.to_string()))
        .unwrap_or_default()
}

fn has_reason(conditions: Option<&Vec<Condition>>, kind: Type, reason: Reason) -> bool {
    conditions.is_some_and(|conditions| reason_and_message(conditions, kind).0 == reason.as_str())
}

/// Waits until the Ready condition of a user has this reason, and returns its message.
async fn wait_user_reason(fixture: &Fixture<'_>, name: &str, reason: Reason) -> anyhow::Result<String> {
    let users: Api<DevServerUser> = Api::all(fixture.plane.client.clone());
    let matches = |user: Option<&DevServerUser>| {
        let status = user.and_then(|user| user.status.as_ref());
        has_reason(status.map(|status| &status.conditions), Type::Ready, reason)
    };
    let user = wait_for(&users, name, reason.as_str(), matches).await?;
    let status = user.and_then(|user| user.status).unwrap_or_default();
    Ok(reason_and_message(&status.conditions, Type::Ready).1)
}

/// Waits until the Accepted condition of a server has this reason, and returns its message.
async fn wait_rejected(servers: &Api<DevServer>, name: &str, reason: Reason) -> anyhow::Result<String> {
    let matches = |server: Option<&DevServer>| {
        let status = server.and_then(|server| server.status.as_ref());
        has_reason(status.map(|status| &status.conditions), Type::Accepted, reason)
    };
    let server = wait_for(servers, name, reason.as_str(), matches).await?;
    let status = server.and_then(|server| server.status).unwrap_or_default();
    Ok(reason_and_message(&status.conditions, Type::Accepted).1)
}
